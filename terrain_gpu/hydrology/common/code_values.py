"""Values of cells without a direction or without a height above drainage."""

OUTLET, NOWHERE = 0, 255
"""D8 codes of outlets, and of cells that are nodata or do not drain."""

NODATA = -9999
"""Nodata value of heights above drainage and of distances to it."""
