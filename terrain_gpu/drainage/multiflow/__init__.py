"""Flow accumulation over several directions: each cell divides what drains through it.

`surface` opens heights and directions; `split` says how a cell divides; `kernels` follows the flow
within a block; `visits` takes blocks as their inflow becomes known; `operation` writes the sums.
"""

from .operation import MultipleFlow
from .surface import open_surface

__all__ = ["MultipleFlow", "open_surface"]
