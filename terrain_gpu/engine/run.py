"""Run any operation: plan, layers, resume, phases, progress, commit and report."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ..errors import ClusterError, OutputError, ReprojectionError, VerificationError
from ..facts import Findings, Settings
from ..grid import Block
from ..grid.lengths import warn_of_mercator
from ..progress import Passes, Progress, silent
from ..report import Report
from ..store import Layer, LayerWriter, TileStore
from ..store.labels import Layered
from ..store.outputs import together
from .arrays import ArrayLayer
from .compression import outputs_of, told_of
from .ledger import Ledger
from .machine import COMPILED_BASELINE, CUDA_BASELINE, NO_LIMIT, Machine
from .operation import Operation, OutputLayer, Phase, SolvedBlock, State
from .plan import StreamPlan
from .proof import Limits
from .schedule import pass_on, stream

if TYPE_CHECKING:
    from ..cuda.backend import Gpu
    from .cluster import Cluster

log = logging.getLogger(__name__)

Outcome = TypeVar("Outcome")

Patch = tuple[int, int, np.ndarray, np.ndarray, np.ndarray]
"""Arguments of `LayerWriter.patch_block`."""

PATCHERS = 4
"""Smallest number of threads that patch blocks; as they wait for the disk, more than processors."""


@dataclass(repr=False)
class Result(Layered):
    """The result of a run.

    Attributes
    ----------
    layers
        The output layers by name.
    found
        The totals recorded with them.
    report
        The run's `Report`.
    """

    layers: dict[str, Layer]
    found: Findings
    report: Report


class Engine(Protocol):
    """Solves blocks; see `Threads` and `cluster.Cluster`.

    Attributes
    ----------
    slots
        Number of items that `each` processes in parallel.
    remote
        Whether other processes, which do not share memory with this one, solve the blocks.
    """

    slots: int
    remote: bool

    def map(self, run: Run, phase: Phase, state: State, blocks: Iterator[Block]) -> None:
        """Solve blocks, add their knowledge to the state, write them and report progress."""

    def patch(self, run: Run, name: str, patches: Iterable[Patch]) -> None:
        """Set bits in written blocks; `patches` are arguments of `LayerWriter.patch_block`."""

    def each(
        self, run: Run, work: Callable[..., Outcome], items: Iterable[object]
    ) -> Generator[Outcome, None, None]:
        """Yield ``work(operation, folder, item)`` for all items, in any order."""

    def lend(self, run: Run, names: Iterable[str]) -> AbstractContextManager[Loan]:
        """Lend the writers of some outputs to the processes that solve blocks."""


class Loan(Protocol):
    """Work in processes that have writers; see `Engine.lend`.

    Processes keep their data until the loan ends.
    """

    def each(
        self, work: Callable[..., Outcome], items: Iterable[object]
    ) -> Generator[Outcome, None, None]:
        """Yield ``work(operation, writers, item)`` for all items, in any order."""

    def converse(
        self, give: Callable[[str, Collection[str]], Any], waiting: int = 0
    ) -> Generator[tuple[str, Any], None, None]:
        """Yield names of processes and results of items that depend on earlier results.

        Parameters
        ----------
        give
            Called with the names of an idle process and of all processes. Returns a function and
            an item, whose result is ``work(operation, writers, item)``; or None if this process
            has to wait for the next result. If a process dies, another one repeats its items.
        waiting
            Number of items that may wait in each process for the item in progress.
        """


class Threads:
    """The engine of this process: readers, workers and writers over a bounded pool of buffers."""

    slots = 1
    remote = False

    def map(self, run: Run, phase: Phase, state: State, blocks: Iterator[Block]) -> None:
        operation, plan = run.operation, run.plan
        local = threading.local()

        def solve(block: Block, cells: list[np.ndarray]) -> SolvedBlock:
            if not hasattr(local, "work"):
                local.work = operation.new_work()
            return operation.solve_read(phase, block, cells, state.given(phase, block), local.work)

        def solve_group(
            group: Iterable[Block], data: Iterable[list[np.ndarray]]
        ) -> list[SolvedBlock]:
            return list(map(solve, group, data))

        def take(group: Iterable[Block], solved: list[SolvedBlock]) -> None:
            for block, solved_block in zip(group, solved, strict=True):
                run.take(phase, state, block, solved_block)

        def solve_and_take(group: Iterable[Block], data: Iterable[list[np.ndarray]]) -> None:
            for block, cells in zip(group, data, strict=True):
                run.take(phase, state, block, solve(block, cells))

        def done(group: Iterable[Block]) -> None:
            for block in group:
                run.tick(block)

        # Without workers in the plan, the writers solve, each holding one solved block at a time.
        alone = not plan.workers
        stream(
            operation.groups(plan, blocks),
            operation.read_group,
            solve_and_take if alone else take,
            compute=pass_on if alone else solve_group,
            buffers=[operation.group_buffer(plan) for _ in range(plan.buffers)],
            readers=plan.readers,
            workers=plan.workers or 1,
            writers=1 if phase.ordered else plan.writers,
            ordered=phase.ordered,
            done=done,
        )

    def patch(self, run: Run, name: str, patches: Iterable[Patch]) -> None:
        writer = run.writers[name]
        baseline = COMPILED_BASELINE + (CUDA_BASELINE if run.gpu is not None else 0)
        # Three copies per thread: the block as read, with its bits set, and as written.
        room = (run.plan.memory_limit - baseline) // (3 * run.operation.blocks.largest(tiled=True))
        patchers = max(min(max(PATCHERS, run.machine.threads), room), 1)
        stream(
            patches,
            lambda patch, _: patch,
            lambda _, patch: writer.patch_block(*patch),
            buffers=[None] * patchers,
            writers=patchers,
        )

    def each(
        self, run: Run, work: Callable[..., Outcome], items: Iterable[object]
    ) -> Generator[Outcome, None, None]:
        for item in items:
            yield work(run.operation, run.folder, item)

    @contextmanager
    def lend(self, run: Run, names: Iterable[str]) -> Iterator[Loan]:
        yield _Own(run.operation, [run.writers[name] for name in names])


class _Own(NamedTuple):
    """The `Loan` of this process to itself."""

    operation: Operation
    writers: list[Any]

    def each(
        self, work: Callable[..., Outcome], items: Iterable[object]
    ) -> Generator[Outcome, None, None]:
        for item in items:
            yield work(self.operation, self.writers, item)

    def converse(
        self, give: Callable[[str, Collection[str]], Any], waiting: int = 0
    ) -> Generator[tuple[str, Any], None, None]:
        while (work_item := give("here", ["here"])) is not None:
            work, item = work_item
            yield "here", work(self.operation, self.writers, item)


class Location(Protocol):
    """Runs steps on a GPU or the CPU; see `cuda.backend.Placement`."""

    gpu: Any
    held: int
    progress: Passes

    def settings(self) -> dict[str, str]: ...

    def run(self, step: Callable[[Any], Outcome]) -> Outcome: ...


class Here:
    """The location of operations that run on the CPU only."""

    gpu, held = None, 0

    def __init__(self, progress: Progress = silent) -> None:
        self.progress = Passes(progress, 1)

    def settings(self) -> dict[str, str]:
        return {}

    def run(self, step: Callable[[Any], Outcome]) -> Outcome:
        return step(None)


@dataclass
class Run:
    """A run in progress, with the methods that phases of operations are composed of.

    Attributes
    ----------
    writers
        Writers of the outputs by name: `LayerWriter`, or arrays wrapped as such.
    folder, spill
        A folder for data that do not fit in memory; the run deletes it. `folder` is None for
        arrays, which are in memory, and for an output file; `spill` is then created next to it.
    machine
        The resources that the caller allows.
    gpu
        The GPU to compute on; None for the CPU.
    cluster
        The engine, if that is a cluster.
    told
        Entries for the report that are not recorded, because they depend on the course of the run.
    counted
        Whether progress counts the current phase.
    ledger
        Records the messages of blocks; None if no later run can use it.
    adding
        A lock, so that one thread at a time adds to the state.
    """

    operation: Operation
    plan: StreamPlan
    writers: dict[str, Any]
    report: Report
    progress: Passes
    machine: Machine
    folder: Path | None = None
    engine: Engine = field(default_factory=Threads)
    gpu: Any = None
    held: int = 0
    cluster: Cluster | None = None
    told: Settings = field(default_factory=dict)
    counted: bool = True
    ledger: Ledger | None = None
    adding: threading.Lock = field(default_factory=threading.Lock)

    @property
    def spill(self) -> Path:
        if self.folder is not None:
            return self.folder
        (writer,) = self.writers.values()
        return writer.spill

    @property
    def proof_limits(self) -> Limits:
        """For a proof on the CPU."""
        cuda = self.held if self.gpu is None else self.gpu.held
        cluster = self.cluster if self.operation.proven_by_workers else None
        # By now more libraries may be loaded than at the start.
        machine = Machine.of(self.machine.memory_limit - cuda, self.machine.threads)
        return Limits(machine, self.progress, cluster)

    @property
    def in_memory(self) -> bool:
        """Whether the operation runs on arrays."""
        return isinstance(self.operation.layers[0], ArrayLayer)

    def written(self, block: Block) -> bool:
        """Return whether an earlier run wrote all outputs of a block."""
        return all(writer.done[block] for writer in self.writers.values())

    def tick(self, block: Block) -> None:
        """Report a block to progress as done."""
        if self.counted:
            r0, r1, c0, c1 = self.operation.window(block)
            self.progress((r1 - r0) * (c1 - c0), self.operation.grid.cells)

    def take(self, phase: Phase, state: State, block: Block, solved: SolvedBlock) -> None:
        """Store what other blocks need to know about a block, then write the block."""
        self.add(phase, state, block, self.operation.keep(phase, block, solved.known, self.folder))
        for writer, data in zip(self.writers.values(), solved.arrays, strict=phase.writes):
            if data is not None and self.wanted(state, writer, block):
                writer.write_block(*block, data)

    def add(self, phase: Phase, state: State, block: Block, message: Any) -> None:
        """Add the message of a block to the state; record it if a resumed run needs it.

        Passes that revisit blocks are not recorded, since they might fill the disk; a resumed run
        repeats them.
        """
        if self.ledger is not None and phase.counted and (state.again or not phase.writes):
            self.ledger.record(block, message)
        with self.adding:
            state.add(phase, block, message)

    @staticmethod
    def wanted(state: State, writer: Any, block: Block) -> bool:
        """Return whether a solved block must be written."""
        return not (writer.finished or (state.again and writer.done[block]))

    def write(self, name: str, block: Block, data: np.ndarray) -> None:
        """Write a block of an output unless the output is finished. Thread-safe."""
        if not self.writers[name].finished:
            self.writers[name].write_block(*block, data)

    def map(self, phase: Phase, state: State) -> None:
        """Run a phase over all unfinished blocks."""
        order = partial(self.operation.order, self.plan)
        self.counted = phase.counted

        with self.report.phase(phase.name):
            replayed = self._replay(phase, state)

            def finished(block: Block) -> bool:
                done = phase.writes and not state.again and self.written(block)
                return state.finished(phase, block, done or bool(replayed[block]))

            # Report finished blocks first, so that progress comes from one thread only.
            for block in filter(finished, order()):
                self.tick(block)
            left = (block for block in order() if not finished(block))
            self.engine.map(self, phase, state, left)
        if phase.joined:
            with self.report.phase(phase.joined):
                state.join(phase)

    def _replay(self, phase: Phase, state: State) -> np.ndarray:
        """Add the messages of a pass that an earlier run recorded; return the mask of blocks."""
        replayed = np.zeros(self.operation.blocks.shape, bool)
        if self.ledger is None or not phase.counted:
            return replayed
        for block, message in self.ledger.replay(phase.name):
            with self.ledger.errors():
                valid = self.written(block) or not phase.writes
                if valid and not replayed[block] and state.finished(phase, block, True):
                    replayed[block] = True
                    state.add(phase, block, message)
        return replayed

    def patch(self, name: str, patches: Iterable[Patch]) -> None:
        """Set bits in written blocks; `patches` are arguments of `LayerWriter.patch_block`."""
        with self.report.phase("patches"):
            self.engine.patch(self, name, patches)

    def forget(self) -> None:
        """Discard the written blocks at the end, so that no run resumes from them."""
        for writer in self.writers.values():
            writer.keep = False

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Keep a ledger if a later run can use it, and save it if this run is stopped."""
        if self.folder is None:
            yield
            return
        operation = self.operation
        self.ledger = Ledger(self.folder / "ledger", operation.messages, operation.fingerprint())
        try:
            yield
        except BaseException as error:
            # Ctrl-C and SIGTERM are no `Exception`.
            stopped = isinstance(error, OutputError | ClusterError)
            if self.ledger.filled and (stopped or not isinstance(error, Exception)):
                self.keep_spill(True)
            raise
        finally:
            self.ledger.close()

    def keep_spill(self, needed: bool) -> None:
        """Set whether a resumed run needs data in `folder` in addition to the finished blocks."""
        for writer in self.writers.values():
            if not writer.finished and writer.spill == self.folder:
                writer.spilled = needed

    def layer(self, name: str) -> Any:
        """Return an output for reading."""
        writer = self.writers[name]
        # A finished output is already in the store, not in the writer's temporary folder.
        return TileStore.open(self.operation.store).layer(name) if writer.finished else writer


def run(
    operation: Operation,
    *,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    verify: bool = False,
    compress: str | None = None,
    place: Location | None = None,
    client: Any = None,
    engine: Engine | None = None,
    report: Report | None = None,
) -> Result:
    """Compute the outputs of an operation; they become visible only when all are complete.

    Parameters
    ----------
    verify
        Verify the outputs before they become visible.
    compress
        Compression of output layers; see `compression.outputs_of`.
    place
        Where to compute, with the progress to report to; None for the CPU.
    client
        A Dask client, or its `Cluster`, whose workers solve the blocks; None for this process.
    report
        A report with earlier phases to continue; None for a new one.

    Raises
    ------
    ClusterError
        If the cluster has no worker, or the connection is lost.
    InputError
        If an output would replace an input or a layer of another command.
    PlanError
        If the memory limit is too small.
    StoreError
        If the store is damaged, or the outputs exist.
    OutputError
        If the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        If an output is wrong.
    """
    report, place = report or Report(operation.command), place or Here()
    _refuse_and_warn(operation, overwrite)
    cluster = None
    if client is not None:
        from .cluster import Cluster

        cluster = client if isinstance(client, Cluster) else Cluster(client, operation.shared)
        engine = cluster
        memory_limit = cluster.limit(memory_limit)
    machine = Machine.of(memory_limit, threads)
    plan_on = _planner(operation, machine, place, cluster)
    place.run(plan_on)
    if verify:
        _plan_proof(operation, machine, place, cluster)
    with report.measured(), ExitStack() as stack:
        writers: dict[str, Any] = {
            output.name: stack.enter_context(
                output.open(operation, resume=resume, overwrite=overwrite)
            )
            for output in outputs_of(operation, compress, machine.threads, resume=resume)
        }
        resumed = np.logical_and.reduce([writer.done for writer in writers.values()]).sum()
        unfinished = [writer for writer in writers.values() if not writer.finished]
        place.progress.count = operation.passes * bool(unfinished) + operation.proof_passes * verify
        begun = Run(
            operation,
            plan_on(place.gpu),
            writers,
            report,
            place.progress,
            machine,
            folder=_folder(unfinished),
            engine=engine or Threads(),
            cluster=cluster,
        )
        with together(apart=True):  # a complete layer always has its table
            if unfinished:
                with unfinished[0].errors(), begun.recorded():
                    totals = execute(begun, place, plan_on)
            else:
                operation.refuse_finished()
                totals = operation.recorded(next(iter(writers.values())).info)
                begun.gpu, begun.held = place.gpu, place.held
            if verify:
                _verify(begun, totals)
        with report.phase("commit"), together():
            committed: dict[str, Any] = {}
            for output in operation.outputs:
                attributes = {
                    **operation.record(totals),
                    **output.attributes,
                    **operation.beside(committed),
                }
                committed[output.name] = writers[output.name].commit(attributes)
    layers = {name: layer for name, layer in committed.items() if layer is not None}
    settings = {**operation.fingerprint(), **place.settings(), **told_of(compress, layers)}
    if cluster is not None:
        settings["cluster"] = cluster.settings()
    report.settings = {**settings, "plan": plan_on(place.gpu).as_dict()}
    report.cells = operation.grid.cells
    if layers:
        report.valid_cells = next(iter(layers.values())).info["valid_cells"]
    report.result = {
        **totals,
        "store": operation.store,
        "layers": list(layers),
        "blocks_resumed": int(resumed),
        **begun.told,
    }
    return Result(layers, totals, report)


def run_in_memory(
    operation: Operation,
    *,
    memory_limit: int | str | None = NO_LIMIT,
    threads: int | None = None,
    verify: bool = False,
    place: Location | None = None,
    report: Report | None = None,
) -> tuple[dict[str, np.ndarray], Report]:
    """Compute the outputs of an operation `over` arrays; return them and the report.

    Raises
    ------
    InputError, PlanError, VerificationError
        As for `run`.
    """
    report = report or Report(operation.command)
    place = place or Here()
    machine = Machine.of(memory_limit, threads)
    plan_on = _planner(operation, machine, place)
    place.run(plan_on)
    blocks = operation.blocks
    place.progress.count = operation.passes + operation.proof_passes * verify
    arrays = {
        output.name: np.zeros(operation.grid.shape, output.dtype)
        for output in operation.outputs
        if isinstance(output, OutputLayer)
    }
    begun = Run(
        operation,
        plan_on(place.gpu),
        {name: ArrayLayer(array, blocks, operation.grid) for name, array in arrays.items()},
        report,
        place.progress,
        machine,
    )
    with report.measured(), together():
        totals = execute(begun, place, plan_on)
        if verify:
            _verify(begun, totals)
    report.settings = {**operation.settings(), **place.settings()}
    report.settings["plan"] = plan_on(place.gpu).as_dict()
    report.cells = operation.grid.cells
    report.result = {**totals, **begun.told}
    return arrays, report


def execute(begun: Run, place: Location, plan_on: Callable[[Any], StreamPlan]) -> Findings:
    """Run all phases; if the GPU runs out of memory, run them again on the CPU."""

    def step(gpu: Gpu | None) -> Findings:
        begun.gpu, begun.held, begun.plan = gpu, place.held, plan_on(gpu)
        if begun.ledger is not None:
            begun.ledger.rewind()
        return begun.operation.execute(begun)

    return place.run(step)


def _verify(begun: Run, totals: Findings) -> None:
    figures = None if begun.cluster is None else begun.cluster.figures
    before = 0 if figures is None else figures.tasks
    with begun.report.phase("verify"):
        try:
            begun.told |= begun.operation.verify(begun, totals)
            if figures is not None:
                begun.told["proof_tasks"] = figures.tasks - before
        except VerificationError:
            if not begun.in_memory:
                begun.forget()
            raise
        except ReprojectionError as error:
            error.name_file(next(iter(begun.writers.values())).path)
            raise


def _plan_proof(
    operation: Operation, machine: Machine, place: Location, cluster: Cluster | None = None
) -> None:
    """Reject limits that are too small for the proof and, where it is used, CUDA."""
    if not operation.proven_by_workers:
        cluster = None

    with Limits(machine, cluster=cluster).planning() as each:
        place.run(
            lambda gpu: operation.plan_verify(each.beside(place.held if gpu is None else gpu.held))
        )


def _refuse_and_warn(operation: Operation, overwrite: bool) -> None:
    operation.examine()
    operation.refuse(overwrite=overwrite)
    warn_of_mercator(operation.grid, operation.measures)


def _planner(
    operation: Operation, machine: Machine, place: Location, cluster: Cluster | None = None
) -> Callable[[Any], StreamPlan]:
    """Return a function that plans for a GPU or the CPU (or a cluster's processes), cached."""

    @cache
    def plan_on(gpu: Gpu | None) -> StreamPlan:
        available = machine.beside(place.held).on(gpu)
        plan = operation.plan(available) if cluster is None else cluster.plan(operation, available)
        for line in plan.describe().splitlines():
            log.info("%s", line)
        return plan

    return plan_on


def _folder(writers: list[Any]) -> Path | None:
    return next((w.spill for w in writers if isinstance(w, LayerWriter)), None)
