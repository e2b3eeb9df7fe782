"""Proofs of layers on the CPU: blocks of outputs and inputs are streamed through a check.

Threads of this process or the workers of a cluster check the blocks. The check of a block is a
module-level function, or a method of an object that does not grow with the raster, because it is
sent to workers together with the paths of layers. This process collects the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol

import numpy as np

from ..errors import StoreError, VerificationError
from ..facts import Findings, Settings
from ..grid import Block, BlockGrid
from ..progress import Progress, silent
from ..store import Layer, TileStore
from .machine import Machine
from .plan import PER_ROW, StreamPlan, fit_blocks
from .schedule import stream

if TYPE_CHECKING:
    from .cluster import Cluster


class HasPath(Protocol):
    """An object with a path, for messages."""

    @property
    def path(self) -> object: ...


class Read(NamedTuple):
    """A layer that a proof reads, and the width of the margin around each block."""

    layer: Any
    halo: int = 0


@dataclass(frozen=True)
class Limits:
    """The resources of a proof, and where it reports progress.

    Attributes
    ----------
    machine
        The resources of this process, and of each worker.
    cluster
        The cluster whose workers check the blocks; None for this process.
    """

    machine: Machine = field(default_factory=Machine.of)
    progress: Progress = silent
    cluster: Cluster | None = None

    @classmethod
    def of(
        cls,
        memory_limit: int | str | None = None,
        threads: int | None = None,
        progress: Progress = silent,
        cluster: Cluster | None = None,
    ) -> Limits:
        """Return the limits of a proof by itself; see `Machine.of`."""
        return cls(Machine.of(memory_limit, threads), progress, cluster)

    @property
    def memory_limit(self) -> int:
        """Bytes that each process may use."""
        return self.machine.memory_limit

    @property
    def checkers(self) -> int:
        """Number of threads that check blocks, in this process or in each worker."""
        return self.machine.threads if self.cluster is None else self.cluster.threads

    @contextmanager
    def planning(self) -> Iterator[Machine]:
        """Plan in the body for each process that checks blocks; see `Cluster.planning`."""
        if self.cluster is None:
            yield self.machine
        else:
            with self.cluster.planning(self.machine) as machine:
                yield machine

    def here(self) -> Limits:
        """Return limits for a pass that must run in this process."""
        return replace(self, cluster=None)

    def quietly(self) -> Limits:
        """Return limits for a pass that progress does not count."""
        return replace(self, progress=silent)


def plan_proof(
    blocks: BlockGrid,
    reads: Sequence[Read],
    limits: Limits,
    *,
    worker: int,
    held: int = 0,
    measures: bool = True,
    compiled: bool = True,
) -> StreamPlan:
    """Plan how blocks stream through a check.

    Parameters
    ----------
    worker, held
        Bytes that a thread needs in addition to its buffer, and bytes of data on all blocks.
    measures
        Whether lengths of steps or areas of cells are held in memory.
    compiled
        Whether the check has compiled kernels.

    Raises
    ------
    PlanError
        when the limit is too small.
    """
    sizes = [blocks.largest(halo, tiled=True) * layer.dtype.itemsize for layer, halo in reads]
    with limits.planning() as machine:
        return fit_blocks(
            blocks,
            ", ".join(layer.dtype.name for layer, _ in reads),
            "to verify",
            buffer=sum(sizes),
            worker=worker,
            scratch=max(sizes),
            common=PER_ROW * blocks.rows * measures,
            held=held,
            compiled=compiled,
            machine=machine,
        )


def plan_threads(
    blocks: BlockGrid, dtype: str, threads: int, worker: int, limits: Limits
) -> StreamPlan:
    """Plan blocks for `threads` threads that read them themselves and use `worker` bytes each."""
    with limits.planning() as machine:
        memory = machine.baseline(blocks.block) + threads * worker
    return StreamPlan.of_blocks(
        blocks,
        dtype,
        buffers=threads,
        readers=1,
        writers=1,
        passes=1,
        memory_limit=machine.memory_limit,
        memory=memory,
        bytes_read=0,
        bytes_written=0,
        workers=threads,
        worker_memory=0 if limits.cluster is None else memory,
    )


class Checks(NamedTuple):
    """The layers that are read for each block, and the function that checks their cells."""

    blocks: BlockGrid
    reads: Sequence[Read]
    check: Callable[..., Any]

    def new_buffer(self) -> list[np.ndarray]:
        """Allocate arrays for the cells of a block."""
        rows, cols = (min(self.blocks.block, side) for side in (self.blocks.rows, self.blocks.cols))
        return [
            np.empty((rows + 2 * halo) * (cols + 2 * halo), layer.dtype)
            for layer, halo in self.reads
        ]

    def read(self, block: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        """Read the cells of a block, with their margins."""
        r0, r1, c0, c1 = self.blocks.window(*block)
        cells = []
        for (layer, halo), flat in zip(self.reads, buffer, strict=True):
            shape = r1 - r0 + 2 * halo, c1 - c0 + 2 * halo
            # Contiguous in every shape, so that kernels are compiled only once.
            view = flat[: shape[0] * shape[1]].reshape(shape)
            cells.append(layer.read_ring((r0, r1, c0, c1), view, halo=halo))
        return cells

    def of(self, block: Block, data: list[np.ndarray], *context: Any) -> Any:
        """Return the result of the check of a block, or its VerificationError."""
        try:
            return self.check(block, data, *context)
        except VerificationError as error:
            return error


def check_blocks(
    plan: StreamPlan,
    blocks: BlockGrid,
    reads: Sequence[Read],
    check: Callable[..., Any],
    add: Callable[[Block, Any], None],
    limits: Limits,
    *,
    only: Collection[Block] | None = None,
    given: Callable[[Block], Any] | None = None,
) -> None:
    """Check blocks in threads or workers, and pass each result to `add`, one at a time.

    Parameters
    ----------
    check
        Called as ``check(block, cells)`` or, with `given`, ``check(block, cells, given(block))``.
        Must be picklable.
    only
        The blocks to check; None for all.
    given
        Returns what a block needs to know about others.

    Raises
    ------
    VerificationError
        For the first faulty block, in whatever order blocks are checked.
    """
    checks, cluster = Checks(blocks, reads, check), limits.cluster
    faults: dict[Block, VerificationError] = {}

    def order() -> Iterator[Block]:
        yield from blocks.ids() if only is None else only

    def due() -> Iterator[Block]:
        # Blocks are handed out in order, so that all blocks before the first fault are checked.
        for block in order():
            if faults:
                return
            yield block

    def context(block: Block) -> list[Any]:
        return [] if given is None else [given(block)]

    def take(block: Block, result: Any) -> None:
        if isinstance(result, VerificationError):
            faults[block] = result
        else:
            add(block, result)

    def done(block: Block) -> None:
        r0, r1, c0, c1 = blocks.window(*block)
        limits.progress((r1 - r0) * (c1 - c0), blocks.rows * blocks.cols)

    if cluster is None:
        stream(
            due(),
            checks.read,
            take,
            compute=lambda block, data: checks.of(block, data, *context(block)),
            buffers=[checks.new_buffer() for _ in range(plan.buffers)],
            readers=plan.readers,
            workers=plan.workers,
            done=done,
        )
    else:
        with closing(
            cluster.check(plan, checks, ((block, context(block)) for block in due()))
        ) as results:
            for block, result in results:
                take(block, result)
                done(block)
    for block in order():
        if block in faults:
            raise faults[block]


def border_ids(blocks: BlockGrid, block: Block, *, inside: bool = True) -> np.ndarray:
    """Return the sorted ids of the cells around a block and, with `inside`, of those at its rim."""
    r0, r1, c0, c1 = blocks.window(*block)
    chosen = np.ones((r1 - r0 + 2, c1 - c0 + 2), bool)
    rings = 2 if inside else 1
    chosen[rings:-rings, rings:-rings] = False
    row, col = np.nonzero(chosen)
    row, col = row + (r0 - 1), col + (c0 - 1)
    inside_raster = (row >= 0) & (row < blocks.rows) & (col >= 0) & (col < blocks.cols)
    ids: np.ndarray = row[inside_raster] * blocks.cols + col[inside_raster]
    return ids


def known_of(ids: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return those of the ids that are in the sorted array `known`, and their positions in it."""
    where = np.searchsorted(known, ids)
    met = where < len(known)
    met[met] = known[where[met]] == ids[met]
    return ids[met], where[met]


def around(one: np.ndarray) -> np.ndarray:
    """Return whether a cell or any of its eight neighbours is True; the mask has a margin of 1."""
    rows = one[:-2] | one[1:-1] | one[2:]
    return rows[:, :-2] | rows[:, 1:-1] | rows[:, 2:]


def wrong(layer: HasPath, fault: str, check: str, row: int, col: int) -> NoReturn:
    """Raise `VerificationError` for a cell."""
    raise VerificationError(
        f"{layer.path}: row {row}, column {col}: {fault}; compute it again with --overwrite",
        check,
        row,
        col,
    )


def wrong_totals(layer: HasPath, unit: str, total: float, recorded: object) -> None:
    """Raise `VerificationError` unless a total equals the recorded one."""
    if total != recorded:
        raise VerificationError(
            f"{layer.path}: wrong totals: {total:,} {unit}, but {recorded!r} recorded; compute it "
            "again with --overwrite",
            "totals",
        )


class RunRecord:
    """The settings and totals that a layer records; checked, since metadata may be damaged.

    Parameters
    ----------
    inputs
        Names of the layers that it was computed from; all recorded ones if empty.

    Raises
    ------
    StoreError
        If something is missing, or the inputs hold other cells now.
    """

    def __init__(self, store: TileStore, layer: Layer) -> None:
        self.store, self.layer = store, layer
        self.settings: Settings = layer.info.get("settings")  # type: ignore[assignment]
        self.result: Findings = layer.info.get("result")  # type: ignore[assignment]
        for key in ("settings", "result"):
            if not isinstance(getattr(self, key), dict):
                raise self.damaged(key, getattr(self, key))

    def damaged(self, key: str, value: object) -> StoreError:
        return StoreError(
            f"{self.layer.path}/zarr.json: {key} is recorded as {value!r}; compute it again"
        )

    def get(self, key: str, kind: type) -> Any:
        """Return a setting, which must be of exactly this type."""
        value = self.settings.get(key)
        if type(value) is not kind:
            raise self.damaged(key, value)
        return value

    def inputs(self) -> dict[str, Layer]:
        """The layers that it was computed from."""
        return {name: self.input(name) for name in self.get("of", dict)}

    def input(self, name: str) -> Layer:
        """Return a layer that it was computed from, unchanged since."""
        layer = self.store.layer(name)
        if not self.store.holds(name, self.get("of", dict).get(name)):
            raise StoreError(
                f"{self.layer.path}: computed from other cells than {layer.path} holds now; "
                "compute it again with --overwrite"
            )
        return layer
