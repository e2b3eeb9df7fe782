"""The proof of distances on a GPU: the blocks' steps and flats, see ``kernels/proof.cu``.

Blocks are read as on the CPU. What is wrong is only told to be so; where, the CPU finds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...cuda.device import RESERVED, Gpu, module
from ...errors import PlanError
from ...grid import TILE, BlockGrid, ceil_div, round_up
from ...planner import MB, format_size
from ..costs import Langmuir, Scaled
from ..gpu import launch, step_macros
from ..relax import Field

_BLOCK = np.dtype(
    [
        (name, "<i8")
        for name in (
            *("height", "width", "pitch", "rows"),
            *("heights", "frictions", "absent", "lengths", "written", "codes"),
        )
    ]
)
"""Block in kernels/proof.cu; places in memory are numbers."""


class Proven(NamedTuple):
    """A block without a fault.

    Attributes
    ----------
    steps, reached, roots, flats
        How many: steps into its cells, reached cells, roots, and cells of flats.
    labels, outward
        Of all places of the block's rims, where flats were joined: what each is joined to, 0 for a
        way to a root; and tight steps from outside of the block.
    """

    steps: int
    reached: int
    roots: int
    flats: int
    labels: np.ndarray
    outward: np.ndarray


class Prover:
    """Proves blocks on a GPU, one at a time.

    Parameters
    ----------
    cost, options, dtype, farthest
        As for `verify_paths`.
    heights, frictions
        Types of a field's; no friction layer when the latter is None.
    join
        Whether flats are joined; without, they are only counted.
    """

    def __init__(
        self,
        blocks: BlockGrid,
        cost: Any,
        options: tuple[bool, bool, bool],
        dtype: np.dtype,
        farthest: Any,
        heights: np.dtype,
        frictions: np.dtype | None,
        *,
        join: bool,
        device: int,
    ) -> None:
        import cupy

        self.cupy, self.block, self.join, self.device = cupy, blocks.block, join, device
        self.dtype, self.farthest = dtype, dtype.type(farthest)
        whole = dtype.kind == "u" and farthest == np.iinfo(dtype).max >> 1
        self.bounded = np.int32(whole)
        rows, cols = min(blocks.block, blocks.rows), min(blocks.block, blocks.cols)
        padded = (round_up(rows, TILE) + 2) * (round_up(cols, TILE) + 2)
        cells = rows * cols
        with cupy.cuda.Device(device):
            self.stream = cupy.cuda.Stream(non_blocking=True)
            with self.stream:
                self.heights = cupy.empty(padded, heights)
                self.frictions = self.heights
                if frictions is not None:
                    self.frictions = cupy.empty(padded, frictions)
                self.absent = cupy.empty(padded, np.bool_)
                self.lengths = cupy.empty(4 * (round_up(rows, TILE) + 2), np.float64)
                self.written = cupy.empty((rows + 2) * (cols + 2), dtype)
                self.codes, self.level, self.marks = (cupy.empty(cells, np.uint8) for _ in range(3))
                self.parent = cupy.empty(cells + 1 if join else 0, np.int32)
                self.labels = cupy.empty(4 * blocks.block, np.int32)
                self.outward = cupy.empty(4 * blocks.block, np.uint8)
                self.tally = cupy.empty(5, np.uint64)
                model = cost.cost if isinstance(cost, Scaled) else cost
                parameters = model if isinstance(model, Langmuir) else [0.0] * 6
                self.parameters = cupy.array(parameters, np.float64)
                self.kernels = module(
                    "proof", step_macros(cost, heights, frictions, dtype, options)
                )
            self.stream.synchronize()

    def prove(
        self,
        field: Field,
        written: np.ndarray,
        codes: np.ndarray | None,
        seeds: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
        rule: int,
    ) -> Proven | None:
        """What is found of a block; None when something is wrong.

        Parameters
        ----------
        written
            Distances as the layer holds them, with one ring.
        codes
            Backlinks, if there are any.
        seeds
            Rows, columns and start values of sources; None where another `rule` tells roots.
        """
        height, width = written.shape[0] - 2, written.shape[1] - 2
        cells = height * width
        with self.cupy.cuda.Device(self.device), self.stream:
            own = self.frictions is not self.heights
            sent = [
                self._sent(*pair)
                for pair in (
                    (self.heights, field.heights),
                    (self.frictions, field.frictions if own else None),
                    (self.absent, field.absent),
                    (self.lengths, field.lengths),
                    (self.written, written),
                )
            ]
            described = height, width, *field.absent.shape[::-1], *sent
            described += (0 if codes is None else self._sent(self.codes, codes),)
            block = self.cupy.asarray(np.array([described], _BLOCK).view(np.uint8))
            self.tally[...] = 0
            self.marks[:cells] = 0
            if seeds is not None and len(seeds[0]):
                rows, cols, starts = seeds
                places = self.cupy.asarray((rows * width + cols).astype(np.int64))
                values = self.cupy.asarray(starts.astype(self.dtype))
                self._launch(
                    "seeds", len(rows), block, places, values, len(rows), self.farthest,
                    self.marks, self.tally,
                )  # fmt: skip
            self._launch(
                "check", cells, block, self.parameters, self.farthest, self.bounded,
                np.int32(rule), self.marks, self.level, self.parent if self.join else np.uint64(0),
                self.tally,
            )  # fmt: skip
            steps, reached, roots, flats, faults = map(int, self.tally.get())
            joined = flats and self.join and not faults
            if joined:
                self._join(height, width)
                faults = int(self.tally.get()[4])
            if faults:
                return None
            rims = (self.labels.get(), self.outward.get()) if joined else (_NONE, _NONE)
        return Proven(steps, reached, roots, flats, *rims)

    def _join(self, height: int, width: int) -> None:
        """Join flats, and look for those that lead nowhere."""
        cells, side = height * width, self.block
        self._launch("flats", cells, height, width, self.level, self.parent)
        self.marks[:cells] = 0
        given = height, width, side, self.level, self.parent
        self._launch("rims", 4 * side, *given, self.labels, self.outward, self.marks)
        self._launch("lost", cells, cells, self.level, self.parent, self.marks, self.tally)

    def _sent(self, array: Any, values: np.ndarray | None) -> int:
        """Copy to the front of an array on the GPU; its place in memory."""
        if values is not None:
            array[: values.size].set(np.ascontiguousarray(values).reshape(-1))
        return int(array.data.ptr)

    def _launch(self, name: str, cells: int, *arguments: Any) -> None:
        launch(self.kernels.get_function(name), min(cells, 1 << 19), *arguments)


_NONE = np.empty(0, np.int32)


def prover_bytes(blocks: BlockGrid, item: int) -> int:
    """GPU memory that a `Prover` takes, for distances of `item` bytes, at most."""
    cells = (min(blocks.block, blocks.rows) + TILE + 2) * (
        min(blocks.block, blocks.cols) + TILE + 2
    )
    # Heights, frictions, distances; absent cells, codes, levels, marks; labels of flats.
    return cells * (2 * 8 + item + 4 + 4) + 64 * blocks.block + MB


def provers_within(gpu: Gpu, blocks: BlockGrid, item: int, threads: int) -> int:
    """How many threads can prove at a time.

    Raises
    ------
    PlanError
        when the GPU's memory is too small for one.
    """
    limit, one = gpu.limit(), prover_bytes(blocks, item)
    if RESERVED + one > limit:
        raise PlanError(
            f"verifying distances in blocks of {blocks.block} takes {ceil_div(RESERVED + one, MB)} "
            f"MB of GPU memory, more than {format_size(limit)}; raise --gpu-memory-limit, or use "
            "--backend cpu"
        )
    return min(threads, (limit - RESERVED) // one)
