"""From the final distances of a block: the cells of the outputs, and the steps on flats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...grid import TILE, Block, BlockGrid, Window
from ...plurals import counted
from ..cost.edges import infinity_of
from ..cost.knights import halo_of, mask_dtype, options_of
from ..cost.models import Hops
from ..cost.steps import unreached
from .finalise import Flats, close_flats, predecessors
from .relaxation import CellSource, Relaxation

if TYPE_CHECKING:
    from ...io.places import Places
    from ..cost.fields import Field
    from ..cost.terrain import Terrain
    from ..cost_distance.operation import CostDistance

Kind = TypeVar("Kind", bound=Relaxation)


def distances_of(
    problem: CostDistance, paths: Relaxation, at: Block
) -> tuple[np.ndarray, int, int]:
    """Return a block's distances to write, and how many cells are reached, and have a value."""
    window = problem.blocks.window(*at)
    with paths.solved(at) as field:
        distances = paths.interior(window, field.distances).copy()
        valid = np.count_nonzero(~paths.interior(window, field.absent))
        if paths.farthest != paths.infinity:
            distances[~(distances <= paths.farthest)] = paths.infinity
    inside = distances != paths.infinity
    distances[~inside] = unreached(problem.dtype)
    return distances, int(np.count_nonzero(inside)), int(valid)


def steps_of(
    problem: CostDistance, paths: Relaxation, at: Block
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return predecessors of a block, the steps on its flats, and the number of cells on these."""
    with paths.solved(at) as field:
        return steps_in(problem, paths.ground, at, field, paths.farthest)


def steps_in(
    problem: CostDistance, ground: CellSource, at: Block, field: Field, farthest: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """As `steps_of`, from the field of a block with its halo."""
    halo = halo_of(problem.options)
    height, width = (n - 2 * halo for n in field.absent.shape)
    distances, infinity = field.distances, infinity_of(field.distances)
    if farthest != infinity:
        distances = np.where(distances <= farthest, distances, infinity)
    codes = np.empty((height, width), np.uint8)
    flat = np.empty(field.absent.shape, mask_dtype(halo))
    count = predecessors(
        problem.model.kernel,
        field.heights,
        field.frictions,
        field.absent,
        field.lengths,
        problem.options,
        distances,
        ground.seeds(at, field),
        np.empty((8 * halo, TILE, TILE), problem.dtype),
        codes,
        flat,
    )
    if seam := problem.blocks.seam(at, halo):  # these cells belong to the block across
        beyond = flat[:, seam : seam + halo]
        count -= np.count_nonzero(beyond)
        beyond[...] = 0
    return codes, flat, int(count)


def closed_codes(
    problem: CostDistance, flats: Relaxation, at: Block, codes: np.ndarray, flat: np.ndarray
) -> np.ndarray:
    """Return the predecessors of a block to write: from `steps_of`, and along hops on flats."""
    with flats.solved(at) as hops:
        return codes_along(problem, hops, at, codes, flat)


def codes_along(
    problem: CostDistance, hops: Field, at: Block, codes: np.ndarray, flat: np.ndarray
) -> np.ndarray:
    """As `closed_codes`, along the hops of a block."""
    lost = close_flats(flat, hops.distances, codes)
    if lost:
        raise AssertionError(
            f"block {at}: {counted(lost, 'cell of flats leads', 'cells of flats lead')} nowhere"
        )
    return own_cells(problem.blocks.window(*at), codes)


def relaxation_of(
    kind: Callable[..., Kind],
    problem: CostDistance,
    ground: Terrain,
    farthest: float,
    capacity: int,
    spill: Path,
    targets: Places | None,
    **more: Any,
) -> Kind:
    """Return the relaxation of a problem's distances."""
    how = problem.model.kernel, problem.options, problem.dtype, farthest, capacity, spill
    return kind(
        ground,
        *how,
        targets=targets,
        guarded=problem.dtype.kind != "f",
        method=problem.method,
        **more,
    )


def relaxation_of_hops(
    kind: Callable[..., Kind],
    blocks: BlockGrid,
    halo: int,
    steps: Callable[[Block], np.ndarray],
    capacity: int,
    spill: Path,
    **more: Any,
) -> Kind:
    """Return the relaxation of hops on flats, from their rims."""
    how = Hops(), options_of(8 * halo, True, False), np.dtype(np.uint32), 2**31 - 1
    return kind(Flats(blocks, steps), *how, capacity, spill, **more)


def own_cells(window: Window, padded: np.ndarray) -> np.ndarray:
    """Return the raster's own cells of an array that is padded to whole tiles."""
    return padded[: window[1] - window[0], : window[3] - window[2]]
