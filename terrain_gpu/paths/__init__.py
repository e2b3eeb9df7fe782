"""Shortest paths over a raster, in three phases: boundary, relax, finalise."""
