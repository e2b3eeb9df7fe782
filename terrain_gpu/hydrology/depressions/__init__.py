"""The hierarchy of depressions, which spill into which: the tool `Depressions`.

`kernels` merges catchments along the spanning forest; `block` does so within a block, `state`
between blocks, `table` adds up areas and volumes, and `operation` runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import not_negative
from ...facts import Findings
from ...plurals import counted
from ...tool import InputLayer, PathLike, Tool, file, made_by, option, reads, tool, writes

if TYPE_CHECKING:
    from ...engine.run import Result

LAYER = "depressions"


@tool
class Depressions(Tool):
    """Find depressions: how deep they are, what they hold, and into which others they spill.

    Water that fills a depression rises to its spill: the lowest elevation over which it leaves for
    a deeper depression or an outlet. A depression is what lies below that elevation around a pit,
    and holds all shallower ones that spill into it. Outlets are those of the flow directions.

    The layer has the number of the smallest depression that each cell lies in; the table has all of
    them.

    Returns
    -------
    Result
        Its `layers` are named {into} and {conditioned}; `found` has the number of "depressions",
        the "deepest" depth, and the "area" and "volume" of all together.

    Raises
    ------
    InputError
        when a name cannot be used, a limit is negative, or integers differ by more than 2**53.
    StoreError
        when the directions are not those of `flow_direction`, or the elevations or the spanning
        forest have changed since.

    Notes
    -----
    The branches of the merge tree of the elevations, paired by the elder rule (H. Edelsbrunner,
    D. Letscher, A. Zomorodian 2002, Topological persistence and simplification). The depth of a
    depression is the persistence of its pit. R. Barnes, K. L. Callaghan, A. D. Wickert (2020,
    Earth Surface Dynamics 8) have two entries where two depressions meet, and one more for both;
    here the deeper one continues.

    Each depression of {min_depth} takes about 220 bytes of memory. The proof covers the layers and
    the totals; not the table, which is written from the same totals.

    Examples
    --------
    >>> result = depressions("dem.zarr", min_depth=1, table="depressions.csv")
    """

    directions: str = reads(
        default="flow_direction", help="Layer of flow directions (D8), with their outlets."
    )
    into: str = writes(
        default=LAYER,
        help="Layer to write the numbers to: 1, 2, ... in row-major order of the pits, and 0, the "
        "nodata value, outside depressions. uint32, int64 for rasters of 2^32 or more cells.",
    )
    conditioned: str | None = writes(
        default=None,
        help="Also write a layer of elevations in which the depressions left out are filled.",
    )
    table: PathLike | None = file(
        default=None,
        kind="table",
        help="Also write a table of the depressions, with pits, spills, parents, areas and "
        "volumes: .csv, .parquet, .geojson, .gpkg or .fgb.",
    )
    min_depth: float = option(
        default=0.0,
        metavar="NUMBER",
        check=not_negative,
        help="Leave out depressions shallower than this, in units of the elevations.",
    )
    min_area: float = option(
        default=0.0,
        metavar="NUMBER",
        check=not_negative,
        help="Leave out depressions with a smaller area, in square map units (square metres in a "
        "geographic CRS).",
    )
    min_volume: float = option(
        default=0.0,
        metavar="NUMBER",
        check=not_negative,
        help="Leave out depressions with a smaller volume, in units of area times those of the "
        "elevations.",
    )

    command = function = accessor = "depressions"
    group = "Hydrology"
    short = "Measure depressions and where they spill to"
    style = "labels"
    examples = """
    terrain-gpu depressions dem.zarr --min-depth 1 --table depressions.csv
    terrain-gpu depressions dem.zarr --min-volume 500 --conditioned conditioned
    terrain-gpu depressions dem.tif -o depressions.tif --table depressions.gpkg
    """
    operation = ".operation:operation_of"
    refuses = "..forest.source:refuse_wide"
    needs = ("flow-direction",)
    mark = "depressions_of"
    proof = ".proof:verify_stored_depressions"

    def inputs(self) -> tuple[InputLayer, ...]:
        tree = InputLayer("mst", "uint8")
        codes = InputLayer(self.directions, "uint8", made_by=made_by("flow-direction"))
        return InputLayer("elevation"), tree, codes

    @staticmethod
    def summary(result: Result) -> str:
        from ..forest.source import over_heights

        count, deepest = result.found["depressions"], result.found["deepest"]
        text = counted(count, "depression") + f", depth up to {deepest:g}" * (count > 0)
        return text + over_heights(result)

    @staticmethod
    def proven(totals: Findings) -> str:
        return counted(totals["depressions"], "depression")
