"""Where the water of a rain comes to rest: the tool `FillSpillMerge`.

`block` finds the catchments of a block, `kernels` computes on cells and on the tree of pools,
`pools` is that tree for all blocks, `table` lists depressions, and `operation` runs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import not_negative
from ...facts import Findings, Settings
from ...plurals import counted
from ...tool import InputLayer, PathLike, Tool, file, made_by, option, reads, tool, writes

if TYPE_CHECKING:
    from ...engine.run import Result

LAYER = "water"


def _rain(name: str, value: object) -> float | str:
    """A depth from 0 on, or the name of a layer."""
    return value if isinstance(value, str) else not_negative(name, value)


@tool
class FillSpillMerge(Tool):
    """Find where the water of a rain comes to rest: how deep it stands at each cell.

    Water runs down the steepest way to the pit of its catchment. Depressions fill; what one cannot
    hold spills over the lowest edge around it into the catchment beyond. Where that depression is
    full, too, both are one, and fill up to the next edge. What reaches an outlet leaves. Outlets
    are those of the flow directions.

    Returns
    -------
    Result
        Its layer is named {into}. `found` has the volumes "rain", "water", which stands, "outflow",
        and "on_cells", the water by the depths as written; numbers of "depressions", of those
        "with_water" at the pit and "full" up to the spill, and of "wet_cells"; their "area", and
        the "deepest" depth.

    Raises
    ------
    InputError
        when a name cannot be used, or a depth of rain is negative or infinite.
    StoreError
        when the directions are not those of `flow_direction`, the tree is not of weight "flow", or
        the heights or the tree have changed since.

    Notes
    -----
    R. Barnes, K. L. Callaghan, A. D. Wickert (2021, Earth Surface Dynamics 9), Computing water flow
    through complex landscapes, part 3: Fill-Spill-Merge. Volumes are whole numbers of units, 2^-61
    of the most that can fall, so none is lost and blocks do not matter. Levels are found by
    Newton's iteration, which ends: volumes are convex and piecewise linear.

    Each catchment of a block takes about 260 bytes of memory. The proof checks that the water
    rests, and that none is lost.

    Examples
    --------
    >>> found = fill_spill_merge("dem.zarr", rain=0.02, table="water.csv")
    """

    rain: float | str = option(
        form="depth",
        check=_rain,
        help="Depth of the water that falls, in units of the heights: a number, a layer, or a "
        "raster on the same grid. Cells of it without a value get none. Subtract evaporation and "
        "seepage first.",
    )
    directions: str = reads(
        default="flow_direction", help="Layer of flow directions (D8), with their outlets."
    )
    into: str = writes(
        default=LAYER,
        help="Layer to write the depths of the water to: float32, 0 where it is dry, NaN without a "
        "height.",
    )
    table: PathLike | None = file(
        default=None,
        kind="table",
        help="Also write a table of the depressions: .csv, .parquet, .geojson, .gpkg or .fgb. "
        "Columns: id, parent, row, col, x, y, height and spill_height as of depressions; inflow, "
        "the water that fell or ran into it, and water, what stands below the spill, both with all "
        "depressions within; and level, the height of the surface at the pit. Depressions that no "
        "outlet drains come last; their spill_height is infinite.",
    )

    command, function, accessor = "fill-spill-merge", "fill_spill_merge", "fill_spill_merge"
    group = "Hydrology"
    short = "Find where the water of a rain comes to rest"
    title = "Fill, spill, merge"
    style = "distance"
    examples = """
    terrain-gpu fill-spill-merge dem.zarr --rain 0.02 --table water.csv
    terrain-gpu fill-spill-merge dem.zarr --rain runoff
    terrain-gpu fill-spill-merge dem.tif --rain runoff.tif -o water.tif
    """
    operation = ".operation:operation_of"
    refuses = "..forest.source:refuse_wide"
    needs = ("flow-direction",)
    mark = "water_of"
    proof = ".proof:verify_stored_water"

    def inputs(self) -> tuple[InputLayer, ...]:
        forest = InputLayer("elevation"), InputLayer("mst", "uint8")
        rain = (InputLayer(self.rain, option="rain"),) if isinstance(self.rain, str) else ()
        codes = InputLayer(self.directions, "uint8", made_by=made_by("flow-direction"))
        return *forest, codes, *rain

    @classmethod
    def planned(cls, asked: Settings) -> FillSpillMerge:
        return cls("rain" if asked["rain"] else 0.0)

    @staticmethod
    def summary(result: Result) -> str:
        from ...grid.units import unit_of
        from ..forest.source import over_heights

        share = result.found["water"] / (result.found["rain"] or 1)
        unit = unit_of(*result.layers.values())
        depth = f"{result.found['deepest']:.3g} {unit}".strip()
        return f"{share:.1%} of the rain stands, up to {depth} deep{over_heights(result)}"

    @staticmethod
    def proven(found: Findings) -> str:
        return counted(found["cells"], "cell under water")
