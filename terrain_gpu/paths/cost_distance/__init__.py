"""Cost distances, backlinks and allocation of a raster: `shortest_paths`."""
