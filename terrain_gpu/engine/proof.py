"""Proofs of layers on the CPU: their blocks, and those of the inputs, streamed through a check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..errors import StoreError, VerificationError
from ..grid import Block, BlockGrid
from ..progress import Progress, silent
from ..store import Layer, TileStore
from .plan import StreamPlan, fit_blocks
from .schedule import stream


class Read(NamedTuple):
    """A layer that a proof reads, with so many rings of cells around each block."""

    layer: Any
    halo: int = 0


class Limits(NamedTuple):
    """What a proof may use, and whom it tells of blocks that are checked."""

    memory_limit: int | str | None = None
    threads: int | None = None
    progress: Progress = silent


def plan_proof(
    blocks: BlockGrid, reads: Sequence[Read], limits: Limits, *, worker: int, held: int = 0
) -> StreamPlan:
    """How blocks stream through a check.

    Parameters
    ----------
    worker, held
        Bytes of a thread beside what it is given, and of what is known of all blocks.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    sizes = [(blocks.block + 2 * halo) ** 2 * layer.dtype.itemsize for layer, halo in reads]
    return fit_blocks(
        blocks,
        ", ".join(layer.dtype.name for layer, _ in reads),
        "to verify",
        buffer=sum(sizes),
        worker=worker,
        scratch=max(sizes) + 64 * blocks.rows,
        held=held,
        memory_limit=limits.memory_limit,
        threads=limits.threads,
    )


def check_blocks(
    plan: StreamPlan,
    blocks: BlockGrid,
    reads: Sequence[Read],
    check: Callable[[Block, list[np.ndarray]], Any],
    add: Callable[[Block, Any], None],
    progress: Progress,
    *,
    only: Iterable[Block] | None = None,
) -> None:
    """Give blocks to `check`, in threads, and what that returns to `add`, one at a time.

    Parameters
    ----------
    only
        The blocks; all when None.
    """
    sides = [min(blocks.block, side) for side in (blocks.rows, blocks.cols)]

    def new_buffer() -> list[np.ndarray]:
        return [
            np.empty((sides[0] + 2 * halo) * (sides[1] + 2 * halo), layer.dtype)
            for layer, halo in reads
        ]

    def read(at: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        r0, r1, c0, c1 = blocks.window(*at)
        found = []
        for (layer, halo), flat in zip(reads, buffer, strict=True):
            shape = r1 - r0 + 2 * halo, c1 - c0 + 2 * halo
            # Contiguous for every shape, so that kernels are compiled once.
            view = flat[: shape[0] * shape[1]].reshape(shape)
            found.append(layer.read_ring((r0, r1, c0, c1), view, halo=halo))
        return found

    def done(at: Block) -> None:
        r0, r1, c0, c1 = blocks.window(*at)
        progress((r1 - r0) * (c1 - c0), blocks.rows * blocks.cols)

    stream(
        blocks.ids() if only is None else only,
        read,
        add,
        compute=check,
        buffers=[new_buffer() for _ in range(plan.buffers)],
        readers=plan.readers,
        workers=plan.workers,
        done=done,
    )


def around(one: np.ndarray) -> np.ndarray:
    """Whether any of a cell and its eight neighbours is True; of a mask with one ring."""
    rows = one[:-2] | one[1:-1] | one[2:]
    return rows[:, :-2] | rows[:, 1:-1] | rows[:, 2:]


def wrong(layer: Any, what: str, check: str, row: int, col: int) -> NoReturn:
    """Raise `VerificationError` for a cell."""
    raise VerificationError(
        f"{layer.path}: row {row}, column {col}: {what}; compute it again with --overwrite",
        check,
        row,
        col,
    )


def wrong_totals(layer: Any, what: str, found: float, recorded: Any) -> None:
    """Raise `VerificationError` unless a figure is the one that is recorded."""
    if found != recorded:
        raise VerificationError(
            f"{layer.path}: wrong totals: {found:,} {what}, recorded are {recorded!r}; compute it "
            "again with --overwrite",
            "totals",
        )


class RunRecord:
    """What a layer records of the run that made it; checked, for it may be damaged.

    Parameters
    ----------
    inputs
        Names of the layers that it was computed from; all that are recorded when empty.

    Raises
    ------
    StoreError
        when something is missing, or the inputs hold other cells now.
    """

    def __init__(self, store: TileStore, layer: Layer) -> None:
        self.store, self.layer = store, layer
        self.settings: dict[str, Any] = layer.info.get("settings")  # type: ignore[assignment]
        self.result: dict[str, Any] = layer.info.get("result")  # type: ignore[assignment]
        for key in ("settings", "result"):
            if not isinstance(getattr(self, key), dict):
                raise self.damaged(key, getattr(self, key))

    def damaged(self, key: str, value: Any) -> StoreError:
        return StoreError(
            f"{self.layer.path}/zarr.json: {key} is recorded as {value!r}; compute it again"
        )

    def get(self, key: str, kind: type) -> Any:
        """A setting of a type, exactly."""
        value = self.settings.get(key)
        if type(value) is not kind:
            raise self.damaged(key, value)
        return value

    def input(self, name: str) -> Layer:
        """A layer that it was computed from."""
        found = self.store.layer(name)
        if not self.store.holds(name, self.get("of", dict).get(name)):
            raise StoreError(
                f"{self.layer.path}: computed from other cells than {found.path} holds now; "
                "compute it again with --overwrite"
            )
        return found
