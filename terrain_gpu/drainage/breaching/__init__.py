"""Least-cost breaching of depressions.

`kernels` finds pits and ways in a block, `pits` joins flats over blocks, `operation` has the passes
over all blocks.
"""

from .operation import MAX_DISTANCE, Breach, breach, breaching_of, plan_breach

__all__ = ["MAX_DISTANCE", "Breach", "breach", "breaching_of", "plan_breach"]
