"""Overviews of layers: the same cells, two by two, in coarser levels of the store."""

from .operation import build_overviews

__all__ = ["build_overviews"]
