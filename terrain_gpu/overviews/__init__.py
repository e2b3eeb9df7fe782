"""Overviews of layers: the same cells, two by two, in coarser levels of the store."""

from .problem import build_overviews

__all__ = ["build_overviews"]
