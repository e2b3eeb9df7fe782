"""Raster and vector input and output: `convert`, `export`, and the readers and writers they use."""
