"""Flow directions, and what follows them, of rasters that fit a GPU's memory."""
