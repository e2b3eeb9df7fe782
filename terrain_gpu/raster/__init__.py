"""Layers from layers: a folder for each command."""
