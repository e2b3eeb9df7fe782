"""Drainage: along the spanning forest, or along given flow directions.

`source` opens the forest and the cells it was computed from, `block` roots the forest within a
block, and `skeleton` joins the contracted blocks. `accumulation` uses `tree` and `drain`. `network`
and its operation `network_problem` use `prune`, which removes dead ends, `lines`, which joins cells
into polylines, and `features`, which writes them.

`directions` makes layers of flow directions from the forest: `outlets` says where water leaves, and
`voids` which voids reach the edge of the raster. `breaching` and `burning` lower heights before.
`codes`, `sums`, `weights`, `above` and `index_rule` define what layers of directions, of sums, of
heights above streams and of indices hold, for operations and proofs alike; `pour_points` and `snap`
where watersheds end. `flow` follows directions, `channels` makes them streams, `indices` combines
slopes and areas. `needs` says what each function needs; with `chain`, it computes the layers that
are missing, for the commands and, by `completing`, for the functions.
"""

from .accumulation import Accumulation, accumulate, plan_accumulation
from .breaching import breach, plan_breach
from .burning import burn, plan_burn
from .channels.problem import plan_streams
from .channels.streams import Streams, streams
from .directions import flow_direction
from .flow import basins, fill, flow_accumulation, hand, watershed
from .hierarchy import depressions
from .indices import terrain_indices
from .network import Network, extract_network
from .network_problem import plan_network
from .ponds import fill_spill_merge

__all__ = [
    "Accumulation",
    "Network",
    "Streams",
    "accumulate",
    "basins",
    "breach",
    "burn",
    "depressions",
    "extract_network",
    "fill",
    "fill_spill_merge",
    "flow_accumulation",
    "flow_direction",
    "hand",
    "plan_accumulation",
    "plan_breach",
    "plan_burn",
    "plan_network",
    "plan_streams",
    "streams",
    "terrain_indices",
    "watershed",
]
