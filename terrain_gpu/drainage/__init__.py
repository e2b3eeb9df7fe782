"""What the spanning forest of a raster says: how much drains through each cell, and its main lines.

`source` opens the forest and the cells that it belongs to, `block` makes vertices of a block's
cells, `skeleton` joins what blocks are contracted to. `accumulation` stands on `tree` and `drain`;
`network` and its operation, `network_problem`, on `prune`, which removes dead ends, `lines`, which
strings cells together, and `features`, which writes them.
"""

from .accumulation import Accumulation, accumulate, plan_accumulation
from .network import Network, extract_network
from .network_problem import plan_network

__all__ = [
    "Accumulation",
    "Network",
    "accumulate",
    "extract_network",
    "plan_accumulation",
    "plan_network",
]
