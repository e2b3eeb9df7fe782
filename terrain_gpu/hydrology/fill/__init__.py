"""Fill depressions: the tool `Fill`.

`operation` fills to the level at which water leaves, `epsilon` so that every flow path falls, and
`depressions.filling` around depressions that are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import amount, not_negative
from ...facts import Findings, Settings
from ...plurals import counted
from ...tool import InputLayer, PlacesLike, Tool, late_rule, made_by, option, reads, tool, writes
from ..common.outlet_options import added_outlets, outlets

if TYPE_CHECKING:
    from ...engine.run import Result

LAYER = "filled"


@tool
class Fill(Tool):
    """Fill depressions: raise every cell to the level at which water leaves it for an outlet.

    Outlets are those of the flow directions. By default, these are on the raster's edge, and on the
    coast of voids that reach it. Directions to other outlets need another name, but no other tree.

    With {epsilon}, each cell is raised until a neighbour is strictly lower, by steps of floats:
    flow paths then fall strictly. With {keep_deeper_than} or {keep_larger_than}, such depressions
    stay, as closed lakes do; with both, those that are deeper and larger.

    Returns
    -------
    Result
        Its `layers` are named {into}: of the type of the elevations, with their nodata value.
        `found` has, with {epsilon}, the number of cells "raised_above_fill", above the levels
        without it, and the "largest_rise" above these. With depressions to keep, it has their
        number "depressions", the "deepest" depth, and the "area" and "volume" of all together.

    Raises
    ------
    InputError
        when a name, a limit or {epsilon} with one cannot be used; when, with {epsilon}, elevations
        are integers, or would exceed the largest float; or when there are directions to other
        outlets than those given.
    StoreError
        when the store is damaged or has no such directions, the elevations or the spanning forest
        have changed since, or the layer exists already.

    Notes
    -----
    The result of priority-flood (R. Barnes, C. Lehman, D. Mulla 2014, Computers & Geosciences 62).
    The path to an outlet along the spanning forest has the lowest highest cell, which is the level.
    {epsilon} is their Priority-Flood+Epsilon: the level of a cell is the higher of its elevation
    and the next float above the least level next to it. Depressions to keep are those of
    `depressions`, with thresholds. Both are computed on the CPU.

    Examples
    --------
    >>> filled = fill("dem.zarr").layers["filled"]
    """

    epsilon: bool = option(
        default=False, help="Raise cells until a neighbour is strictly lower; only floats."
    )
    keep_deeper_than: float | None = option(
        default=None,
        metavar="DEPTH",
        check=not_negative,
        help="Keep depressions that are deeper, from pit to spill, in units of the elevations.",
    )
    keep_larger_than: float | str | None = option(
        default=None,
        metavar="AREA|N",
        check=amount,
        help="Keep depressions whose area below the spill is larger than this: an area such as "
        "5km2, 300ha or 90000m2, or a number of cells.",
    )
    outlets: PlacesLike | str | None = outlets(
        python="Outlets of the flow directions that are computed, in the forms that "
        "`flow_direction` accepts; existing directions must have these outlets. None: those of "
        "existing directions.",
    )
    add_outlets: PlacesLike | None = added_outlets()
    directions: str = reads(
        default="flow_direction", help="Layer of flow directions made by flow_direction."
    )
    into: str = writes(
        default=LAYER,
        help="Layer to write the filled elevations to. Cells that reach no outlet keep theirs.",
    )

    command = function = accessor = "fill"
    group = "Hydrology"
    short = "Fill depressions"
    examples = """
    terrain-gpu fill dem.zarr
    terrain-gpu fill dem.tif --epsilon -o filled.tif
    terrain-gpu fill dem.tif --keep-deeper-than 5 --keep-larger-than 1km2 -o f.tif
    terrain-gpu fill dem.zarr --outlets lakes.gpkg --directions to_lakes --into f
    """
    operation = ".operation:operation_of"
    gpu = "one"
    rules = (late_rule("hydrology.fill.operation:refuse_arguments"),)
    refuses = ".operation:refuse"
    needs = ("flow-direction",)
    mark = "fill_of"
    proof = ".proof:verify_stored_fill"
    modules = ("hydrology.depressions.operation",)

    @property
    def keeps(self) -> bool:
        """Whether depressions are kept."""
        return self.keep_deeper_than is not None or self.keep_larger_than is not None

    @property
    def ends(self) -> Settings:
        """The outlets that are given."""
        arguments = {"outlets": self.outlets, "add_outlets": self.add_outlets}
        return {name: one for name, one in arguments.items() if one is not None}

    def inputs(self) -> tuple[InputLayer, ...]:
        to_these = {"into": self.directions, **self.ends} if self.ends else {}
        maker, heights = made_by("flow-direction", **to_these), InputLayer("elevation")
        codes = InputLayer(self.directions, "uint8", made_by=maker)
        return (heights, InputLayer("mst", "uint8"), codes) if self.keeps else (codes, heights)

    @classmethod
    def planned(cls, options: Settings) -> Fill:
        return cls(epsilon=options["epsilon"], keep_deeper_than=0.0 if options["keep"] else None)

    @staticmethod
    def summary(result: Result) -> str:
        from ..forest.source import over_heights

        totals, text = result.found, Tool.summary(result)
        if "depressions" in totals:
            count = totals["depressions"]
            text += f", {counted(count, 'depression')} kept"
            text += f", depth up to {totals['deepest']:g}" * (count > 0)
        if "raised_above_fill" in totals:
            count, most = totals["raised_above_fill"], totals["largest_rise"]
            text += f", {count:,} above plain fill" + f" by up to {most:.3g}" * (count > 0)
        return text + over_heights(result)

    @staticmethod
    def proven(totals: Findings) -> str:
        if "cells" in totals:
            return counted(totals["cells"], "cell that drains", "cells that drain")
        return f"{counted(totals['depressions'], 'depression')} kept"
