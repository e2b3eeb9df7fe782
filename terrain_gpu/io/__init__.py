"""Rasters and vectors in and out: `convert`, `export`, and what reads and writes their files."""
