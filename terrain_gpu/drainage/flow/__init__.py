"""Operations along layers of D8 flow directions.

`kernels` follows the flow within a `block`; `entries` joins the blocks; `operation` has the passes
that all operations share.
"""

from .accumulation import FlowAccumulation, flow_accumulation
from .basins import Basins, basins
from .fill import Fill, fill
from .hand import Hand, hand
from .watershed import Watershed, watershed

__all__ = [
    "Basins",
    "Fill",
    "FlowAccumulation",
    "Hand",
    "Watershed",
    "basins",
    "fill",
    "flow_accumulation",
    "hand",
    "watershed",
]
