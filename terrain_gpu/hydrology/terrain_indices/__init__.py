"""Indices of slopes and catchment areas: `terrain_indices`."""
