"""Features of vector files as a layer: `rasterize`."""
