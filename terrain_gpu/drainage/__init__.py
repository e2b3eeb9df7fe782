"""What the spanning forest of a raster says: how much drains through each cell, and its main lines.

`source` opens the forest and the cells that it belongs to, `block` makes vertices of a block's
cells, `skeleton` joins what blocks are contracted to, `stream` reads blocks. `accumulation` stands
on `tree` and `drain`; `network` on `prune`, which removes dead ends, and `lines`, which strings
cells together.
"""

from .accumulation import Accumulation, accumulate, plan_accumulation
from .network import Network, extract_network, plan_network

__all__ = [
    "Accumulation",
    "Network",
    "accumulate",
    "extract_network",
    "plan_accumulation",
    "plan_network",
]
