"""Drainage basins: `basins`."""
