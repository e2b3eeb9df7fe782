"""D8 flow directions of filled DEMs, with gradients in flats.

`kernels` solves a block, `operation` has the passes over all blocks.
"""

from .operation import GradientDirection

__all__ = ["GradientDirection"]
