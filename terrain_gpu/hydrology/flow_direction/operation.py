"""D8 flow directions, from the spanning forest or a filled DEM: `flow_direction`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...arguments import Backend, DepressionsMethod, FlatsMethod, LayerCompression, checked
from ...engine.machine import Machine
from ...engine.plan import StreamPlan
from ...engine.proof import RunRecord
from ...engine.run import Result, Run, run
from ...errors import ArgumentError, InputError, StoreError
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...io.places import PlacesLike
from ...progress import Progress, silent
from ...store import Layer, TileStore
from ..accumulate.operation import Accumulate
from ..common.backend import placed, refuse_cuda
from ..common.codes import DIRECTIONS
from ..common.outlets import LOW_EDGE, Asked, Outlets, named_outlets
from ..completing import completed
from ..fill import LAYER as FILLED
from ..forest.source import open_drained, open_filled
from .gradient import GradientDirection


@dataclass(frozen=True)
class FlowDirection(Accumulate):
    """The operation; fields are as of `Accumulate`."""

    digest: str = LOW_EDGE
    into: None = None
    directions: str | None = DIRECTIONS

    command = "flow-direction"

    def plan(self, machine: Machine) -> StreamPlan:
        if machine.gpu is None:
            return super().plan(machine)
        from .gpu import plan_directions

        return plan_directions(self, machine)

    def execute(self, run: Run) -> dict[str, Any]:
        if run.gpu is None:
            return super().execute(run)
        from .gpu import solve

        return solve(self, run)


def only_on_cpu(flats: str) -> str | None:
    """Return what of this runs on the CPU alone, see `placed`."""
    return "gradients in flats run" if flats == "gradient" else None


def ways_of(
    depressions: DepressionsMethod | None, flats: FlatsMethod | None
) -> tuple[DepressionsMethod, FlatsMethod]:
    """How water leaves depressions and flats: of two arguments, one may follow from the other.

    Raises
    ------
    InputError
        when they contradict each other.
    """
    if depressions == "fill" and flats == "tree":
        raise ArgumentError(
            "{depressions} fill with {flats} tree: filled depressions are flats, which drain by "
            "gradients; leave out {flats}, or carve along the tree ({depressions} carve)"
        )
    if depressions == "carve" and flats == "gradient":
        raise ArgumentError(
            "{depressions} carve with {flats} gradient: gradients lead over filled heights; leave "
            "out {flats}, or fill ({depressions} fill)"
        )
    filled = depressions == "fill" or flats == "gradient"
    return depressions or ("fill" if filled else "carve"), "gradient" if filled else "tree"


def refuse_arguments(settings: Mapping[str, Any]) -> None:
    """Refuse arguments of `flow_direction` that contradict each other.

    Raises
    ------
    InputError
    """
    _, flats = ways_of(settings["depressions"], settings["flats"])
    refuse_cuda(settings["backend"], only_on_cpu(flats))


@takes_dataarrays
@checked(refuse_arguments)
@completed(reads=("filled",), writes=("into",))
def flow_direction(
    store: StoreLike,
    outlets: PlacesLike | str = LOW_EDGE,
    *,
    add_outlets: PlacesLike | None = None,
    depressions: DepressionsMethod | None = None,
    flats: FlatsMethod | None = None,
    filled: str = FILLED,
    into: str = DIRECTIONS,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: Backend = "auto",
    device: int = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Result:
    """Compute the D8 flow direction of every cell.

    Each cell drains to its steepest lower neighbour. By default, flats drain along the spanning
    forest, and depressions are carved at their lowest passes. With gradients, depressions are
    filled, and what is flat then drains towards lower and away from higher cells. Where heights
    were breached before, either holds for the depressions that are left. Every way ends at an
    outlet.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray. Missing layers of default names that it needs
        are computed: "mst" of weight "flow"; with gradients "filled", along "flow_direction_tree";
        and with depressions "breach", where there is no tree, "breached" with the default limits.
    outlets
        "low_edge": of the cells at the raster's edge and beside voids (cells without a value,
        joined over eight neighbours) that reach it, those without a lower neighbour, and those over
        which a depression spills; the others drain to their steepest lower neighbour. "low_border":
        also of the cells beside inner voids. "edge" and "border": all of these cells, also where
        the ground falls inwards. Or cells, in the forms that `shortest_paths` accepts as sources.
        With gradients, those for which the heights were filled.
    add_outlets
        Cells that are outlets in addition to those of a name, in the same forms.
    depressions
        How water leaves depressions: "carve", along the spanning forest over their lowest passes;
        "fill", across the surface of filled heights; or "breach": the heights, from which the
        forest was computed or which were filled, were made by `breach`, and what it left is carved,
        or filled with `flats` "gradient". None: "fill" with "gradient", else "carve", whether the
        heights were breached or not.
    flats
        How flats drain: "tree", along the spanning forest; or "gradient", over filled heights.
        None: "gradient" with "fill", else "tree".
    filled
        With gradients, the layer of heights, as `fill` made it.
    into
        Layer to write, uint8: E 1, SE 2, S 4, SW 8, W 16, NW 32, N 64, NE 128; 0 at outlets; 255,
        the nodata value, at cells that have no value or reach no outlet.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    backend
        "cuda", "cpu", or "auto": CUDA if it works and the raster fits its memory. The results have
        the same bits.
    device
        Number of the GPU.
    gpu_memory_limit
        Limit on the GPU memory in bytes; nine tenths of the free memory when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the result in another pass over the cells, or two.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing result once the new one is complete.
    progress
        Called with the cells just done and the cells of all passes.

    Returns
    -------
    Result
        Its `layers` are named `into`; `found` has the numbers of "cells" with a value and of
        "outlets". The report's `valid_cells` drain.

    Raises
    ------
    InputError
        when a name or the outlets cannot be used, heights were filled for other outlets, or flats
        cannot drain so in such depressions.
    PlanError
        when the memory limit is too small.
    StoreError
        when the weight of the spanning forest is not "flow", or there are no such filled heights;
        when heights were breached and should not be, or the other way round; when a layer is
        damaged, or the result exists already.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no result then.

    Notes
    -----
    The minimum spanning forest relative to the outlets (J. Cousty and others 2009, Watershed cuts),
    of edges ordered by their higher end, then the steeper first. Gradients in flats: R. Barnes,
    C. Lehman, D. Mulla (2014), An efficient assignment of drainage direction over flat surfaces in
    raster digital elevation models; Computers & Geosciences 62.

    Examples
    --------
    >>> codes = flow_direction("dem.zarr").layers["flow_direction"]

    Depressions breached where 5 m suffice, and the others carved:

    >>> breach("dem.zarr", max_depth=5)
    >>> minimum_spanning_tree("dem.zarr", weight="flow", layer="breached", overwrite=True)
    >>> flow_direction("dem.zarr", depressions="breach", overwrite=True)
    """
    opened = opened_store(store)
    _, flats = ways_of(depressions, flats)
    operation: FlowDirection | GradientDirection
    if flats == "gradient":
        along = _along(opened, filled, Asked(outlets, add_outlets), depressions)
        if into == along:
            raise InputError(
                f"{opened.path}: {filled} was filled along {into}, which must stay; give these "
                "directions another name (--into)"
            )
        operation = GradientDirection(str(opened.path), filled, along, into)
    else:
        heights = open_drained(opened, "flow-direction", ("flow",)).cells
        _refuse_heights(heights, depressions)
        ends = Outlets.of(heights, outlets, add_outlets)
        operation = FlowDirection(
            str(opened.path), ends.digest, directions=into, places=ends.places
        )
    where = backend, device, gpu_memory_limit, memory_limit, client, progress, only_on_cpu(flats)
    return run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=placed(operation.blocks.block, *where),
        client=client,
    )


def _refuse_heights(heights: Layer, depressions: DepressionsMethod | None) -> None:
    """Refuse heights that were breached and should not be, or the other way round."""
    breached = "breach_of" in (heights.info.get("settings") or {})
    if depressions == "breach" and not breached:
        raise StoreError(
            f"{heights.path}: not made by breach; run breach, and compute-mst --layer breached "
            "--weight flow --overwrite"
        )
    if depressions in ("carve", "fill") and breached:
        raise StoreError(
            f"{heights.path}: the spanning tree is that of breached heights; give depressions "
            "'breach', or compute the tree again (compute-mst --weight flow --overwrite)"
        )


def _along(
    store: TileStore,
    filled: str,
    asked: Asked,
    depressions: DepressionsMethod | None,
) -> str:
    """Return the directions along which heights were filled; refuse other outlets than theirs."""
    layer = open_filled(store, filled)
    recorded = RunRecord(store, layer)
    heights = recorded.input(recorded.get("fill_of", str))
    _refuse_heights(heights, depressions)
    ends = Outlets.of(heights, *asked)
    codes = recorded.input(recorded.get("directions", str))
    theirs = RunRecord(store, codes).get("outlets", str)
    if ends.digest != theirs:
        raise InputError(
            f"{layer.path}: filled for {named_outlets(theirs)}, and these are others; give the "
            "same, or fill along directions to these (terrain-gpu fill --directions)"
        )
    return codes.name
