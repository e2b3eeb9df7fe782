"""Running an operation: plan, layers, resume, phases, progress, commit and report, once for all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import InputError
from ..grid import Block
from ..progress import Passes, Progress, silent
from ..report import Report
from ..store import Layer, LayerWriter, TileStore, create_layer
from ..store.files import output_errors
from .operation import Operation, Phase, SolvedBlock, State
from .plan import StreamPlan
from .schedule import stream

log = logging.getLogger(__name__)


@dataclass
class Result:
    """What a run has made.

    Attributes
    ----------
    layers
        The outputs, by name.
    found
        What is recorded with them.
    report
        The run's `Report`.
    """

    layers: dict[str, Layer]
    found: dict[str, Any]
    report: Report


class Engine(Protocol):
    """Where blocks are solved."""

    def map(
        self,
        operation: Operation,
        phase: Phase,
        blocks: Iterator[Block],
        plan: StreamPlan,
        given: Callable[[Block], Any],
        take: Callable[[Block, SolvedBlock], None],
        done: Callable[[Block], None],
    ) -> None:
        """Solve blocks; `take` what was found, and tell of it, from one thread."""


class Threads:
    """The engine of this process: readers, workers and writers over a bounded pool of buffers."""

    def map(
        self,
        operation: Operation,
        phase: Phase,
        blocks: Iterator[Block],
        plan: StreamPlan,
        given: Callable[[Block], Any],
        take: Callable[[Block, SolvedBlock], None],
        done: Callable[[Block], None],
    ) -> None:
        local = threading.local()

        def solve(at: Block, data: list[np.ndarray]) -> SolvedBlock:
            if not hasattr(local, "work"):
                local.work = operation.new_work()
            return operation.solve_read(phase, at, data, given(at), local.work)

        stream(
            blocks,
            operation.read,
            take,
            compute=solve,
            buffers=[operation.new_buffer() for _ in range(plan.buffers)],
            readers=plan.readers,
            workers=plan.workers,
            writers=plan.writers,
            done=done,
        )


def run(
    operation: Operation,
    *,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
    engine: Engine | None = None,
) -> Result:
    """Compute the outputs of an operation; they appear when all are complete.

    Raises
    ------
    InputError
        when an output would replace an input, or what another command made.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, or the outputs exist.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    """
    report = Report(operation.command)
    _refuse_names(operation)
    plan = operation.plan(memory_limit, threads)
    for line in plan.describe().splitlines():
        log.info("%s", line)
    passes = Passes(progress, len(operation.phases))
    with report.measured(), ExitStack() as stack:
        writers = [stack.enter_context(writer) for writer in _writers(operation, resume, overwrite)]
        resumed = sum(int(writer.done.sum()) for writer in writers)
        if all(writer.finished for writer in writers):
            operation.refuse_finished()
            found = writers[0].info["result"]
        else:
            unfinished = next(writer for writer in writers if not writer.finished)
            with output_errors(unfinished.spill):
                state = operation.begin(plan, unfinished.spill)
                stack.callback(state.close)
                for phase in operation.phases:
                    _pass(operation, phase, plan, state, writers, passes, report, engine)
                found = state.found()
        with report.phase("commit"):
            layers = {
                writer.path.name: writer.commit({"result": found, **output.attributes})
                for writer, output in zip(writers, operation.outputs, strict=True)
            }
    report.settings = {**operation.settings(), "of": operation.identity(), "plan": plan.as_dict()}
    report.cells = operation.grid.cells
    report.valid_cells = next(iter(layers.values())).info["valid_cells"]
    report.result = {
        **found,
        "store": operation.store,
        "layers": list(layers),
        "blocks_resumed": resumed,
    }
    return Result(layers, found, report)


def _refuse_names(operation: Operation) -> None:
    names = [output.name for output in operation.outputs]
    if len({*names, *operation.inputs}) < len(names) + len(set(operation.inputs)):
        raise InputError(
            f"{operation.store}: the results {' and '.join(map(repr, names))} and the layers "
            f"{' and '.join(map(repr, operation.inputs))} need names of their own"
        )
    store = TileStore.open(operation.store)
    for output in operation.outputs:
        store.refuse_foreign(output.name, operation.mark, output.holds, output.holds)


def _writers(operation: Operation, resume: bool, overwrite: bool) -> Iterator[LayerWriter]:
    settings = {**operation.settings(), "of": operation.identity()}
    for output in operation.outputs:
        yield create_layer(
            operation.store,
            output.name,
            operation.grid,
            output.dtype,
            nodata=output.nodata,
            block_size=operation.blocks.block,
            settings=settings,
            overwrite=overwrite,
            resume=resume,
        )


def _pass(
    operation: Operation,
    phase: Phase,
    plan: StreamPlan,
    state: State,
    writers: list[LayerWriter],
    passes: Passes,
    report: Report,
    engine: Engine | None,
) -> None:
    """One phase over all blocks, or over those that are not written yet."""
    blocks, total = operation.blocks, operation.grid.cells

    def done(at: Block) -> None:
        r0, r1, c0, c1 = blocks.window(*at)
        passes((r1 - r0) * (c1 - c0), total)

    def finished(at: Block) -> bool:
        return phase.writes and not state.again and all(writer.done[at] for writer in writers)

    def take(at: Block, solved: SolvedBlock) -> None:
        state.add(phase, at, solved.known)
        for writer, data in zip(writers, solved.arrays, strict=phase.writes):
            if not writer.done[at]:
                writer.write_block(*at, data)

    with report.phase(phase.name):
        # Told first, so that progress does not come from two threads.
        for at in filter(finished, blocks.ids()):
            done(at)
        left = (at for at in blocks.ids() if not finished(at))
        (engine or Threads()).map(
            operation, phase, left, plan, lambda at: state.given(phase, at), take, done
        )
    if phase.joined:
        with report.phase(phase.joined):
            state.join(phase)
