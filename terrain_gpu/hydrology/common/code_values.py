"""Values of cells without a direction, or without a height above drainage."""

OUTLET, NOWHERE = 0, 255
"""D8 codes of outlets, and of cells that do not drain or have no value."""

NODATA = -9999
"""Of heights above drainage, and of distances to it."""
