"""Operations: a problem, the layers it reads and writes, and the passes over their blocks.

An operation is a frozen dataclass whose fields define it completely: the path of a store, names of
layers, parameters. It can therefore be pickled, and any thread, process or machine with access to
the store can solve its blocks. `Operation.solve` takes the cells of a block and what it needs to
know about other blocks; it returns result arrays and what other blocks need to know about it.
`State` collects that knowledge in the process that runs the operation.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from ..errors import InputError, StoreError
from ..facts import Findings, JsonObject, Settings
from ..grid import Block, BlockGrid, GridSpec, Window
from ..grid.lengths import Measured
from ..store import Layer, LayerWriter, TileStore, create_layer
from ..store.file_writer import FileWriter, writable_file
from .machine import Machine
from .plan import StreamPlan

if TYPE_CHECKING:
    from .run import Run


class Phase(NamedTuple):
    """A pass over the blocks.

    Attributes
    ----------
    name
        Name in reports.
    writes
        Whether the phase writes the outputs; if so, a resumed run skips finished blocks.
    joined
        Name of the step that `State.join` runs after all blocks; no such step if empty.
    ordered
        Whether blocks are written in the order of `Operation.order`, as sequential files need.
    counted
        Whether progress counts its cells; not for a phase that revisits a few blocks.
    """

    name: str
    writes: bool = False
    joined: str = ""
    ordered: bool = False
    counted: bool = True


@dataclass(frozen=True)
class OutputLayer:
    """A layer that an operation writes.

    Attributes
    ----------
    nodata
        Value of cells without a result.
    holds
        The content of the layer, for messages: "slopes".
    attributes
        This package's own attributes, recorded with the result.
    described
        Attributes for all readers, such as "units".
    compress
        A name in `store.coding.NAMES`; None for the compression that the run uses.
    origin
        Origin of the cells, for messages.
    """

    name: str
    dtype: np.dtype
    nodata: float | int | None = None
    holds: str = "results"
    attributes: JsonObject = field(default_factory=dict)
    described: JsonObject = field(default_factory=dict)
    compress: str | None = None
    origin: str = "the new layer"

    def refuse(self, operation: Operation, *, overwrite: bool) -> None:
        """Raise an error if this would replace a layer of another command."""
        store = TileStore.open(operation.store)
        store.refuse_foreign(self.name, operation.mark, self.holds, self.holds)

    def open(self, operation: Operation, *, resume: bool, overwrite: bool) -> LayerWriter:
        """Create the layer's writer, or resume it."""
        return create_layer(
            operation.store,
            self.name,
            operation.grid,
            self.dtype,
            nodata=self.nodata,
            block_size=operation.blocks.block,
            compress=self.compress,
            attributes=self.described,
            settings=operation.fingerprint(),
            overwrite=overwrite,
            resume=resume,
            origin=self.origin,
        )


@dataclass(frozen=True)
class OutputFile:
    """A file that an operation writes completely or not at all; it cannot be resumed.

    Attributes
    ----------
    name
        Its path.
    """

    name: str
    attributes: ClassVar[Mapping[str, Any]] = {}

    def refuse(self, operation: Operation, *, overwrite: bool) -> None:
        """Raise an error if the path cannot be written."""
        writable_file(Path(self.name), overwrite=overwrite)

    def open(self, operation: Operation, *, resume: bool, overwrite: bool) -> FileWriter:
        """Create the file's writer."""
        return FileWriter(Path(self.name).absolute(), operation.blocks.shape)


class SolvedBlock(NamedTuple):
    """Result of a block: the cells of the outputs, and what other blocks need to know about it.

    None stands for an output that is written later.
    """

    arrays: tuple[np.ndarray | None, ...] = ()
    known: Any = None


class State:
    """What blocks need to know about each other; nothing in this base class.

    Attributes
    ----------
    again
        Whether messages of blocks in the writing phase are also needed. A resumed run takes them
        from the ledger, or else solves these blocks again.
    """

    again = False

    def given(self, phase: Phase, block: Block) -> Any:
        """Return what a block needs to know about others: small and picklable. Thread-safe."""
        return None

    def finished(self, phase: Phase, block: Block, done: bool) -> bool:
        """Return whether a block can be skipped; `done` says whether an earlier run finished it."""
        return done

    def add(self, phase: Phase, block: Block, message: Any) -> None:
        """Add what other blocks need to know about a block, before it counts as written.

        The plan's writers call this, one thread at a time.
        """

    def join(self, phase: Phase) -> None:
        """Finish a phase after all its blocks were added."""

    def found(self) -> Findings:
        """Return the totals that are recorded with the outputs and reported."""
        return {}

    def close(self) -> None:
        """Release resources at the end of the run, successful or not."""


class Operation(ABC):
    """A problem over the layers of a store; subclasses are frozen dataclasses."""

    store: str
    command: ClassVar[str]
    messages: ClassVar[tuple[type, ...]] = ()
    """Named tuples and dataclasses in the messages of blocks; see `ledger`."""
    mark: ClassVar[str]
    """A setting that marks an output as made by this operation, so that it may be replaced."""
    halo: ClassVar[int] = 0
    """Width, in cells, of the margin that is read around a block."""
    proof_passes: ClassVar[int] = 1
    """Number of times that progress counts every cell during verification; 0 without a proof."""
    after: Operation | None = None
    """An operation to run once the layers of this one are complete, which writes a file."""
    solved_by_workers: ClassVar[bool] = True
    """Whether workers of a cluster solve blocks; they cannot if blocks need files of this process.
    """

    @property
    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """The passes; the last one writes."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Names of the layers it reads."""

    @property
    @abstractmethod
    def outputs(self) -> tuple[OutputLayer | OutputFile, ...]:
        """The layers it writes, or the file."""

    @abstractmethod
    def plan(self, machine: Machine) -> StreamPlan:
        """Plan how blocks stream within the limits, on the machine's GPU if it has one."""

    @property
    def measures(self) -> tuple[Measured, ...]:
        """The quantities measured on the map; `run` warns if the projection distorts them."""
        return ()

    def settings(self) -> Settings:
        """Return the settings that the outputs depend on. A run resumes only if they are equal."""
        settings = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        del settings["store"]
        return settings

    def new_work(self) -> Any:
        """Allocate the work arrays of one thread."""
        return None

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        """Return the initial state; compile the kernels of the phases.

        Parameters
        ----------
        spill
            A folder for data that do not fit in memory. It may not exist yet; the run deletes it.
        """
        return State()

    @property
    def passes(self) -> int:
        """Number of times that progress counts every cell."""
        return sum(phase.counted for phase in self.phases)

    def execute(self, run: Run) -> Findings:
        """Run all phases; return the totals to record with the outputs and to report.

        By default blocks stream through one phase after another. Operations with other phases
        compose them from the methods of `run`.
        """
        state = self.begin(run.plan, run.spill)
        try:
            for phase in self.phases:
                run.map(phase, state)
            return state.found()
        finally:
            state.close()

    proven_by_workers: ClassVar[bool] = True
    """Whether workers of a cluster check blocks; they cannot if checks need files of this process.
    """

    def plan_verify(self, machine: Machine) -> None:  # noqa: B027
        """Raise PlanError, before the work starts, if the limits are too small for `verify`."""

    def verify(self, run: Run, totals: Findings) -> Findings:
        """Verify the outputs before they are committed; return entries for the report."""
        raise NotImplementedError(f"{self.command} has no proof")

    def backend_for(self, requested: str) -> str:
        """Return the backend to use if this one is requested."""
        return requested

    @property
    def only_on_cpu(self) -> str | None:
        """Words, with a verb, for what runs only on the CPU; None if all of it can run on a GPU."""
        return None

    def result(self, result: Any) -> Any:
        """Convert the `Result` of the run to what the public function returns."""
        return result

    def record(self, totals: Findings) -> Findings:
        """Return the totals of `execute` as attributes of the outputs."""
        return {"result": totals}

    def beside(self, committed: Mapping[str, Layer | None]) -> Settings:
        """Return what an output records about the outputs committed before it."""
        return {}

    def recorded(self, attributes: JsonObject) -> Findings:
        """Return the totals of `execute` from the attributes of a finished output."""
        return attributes["result"]

    def refuse_finished(self) -> None:  # noqa: B027 - most have no further files
        """Raise an error if the output layers are complete but a further file is missing."""

    def solve(
        self,
        phase: Phase,
        block: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        context: Any,
        work: Any,
    ) -> SolvedBlock:
        """Solve a block. Not needed if `execute` visits blocks repeatedly in its own way.

        Parameters
        ----------
        cells
            Cells of the inputs, with `halo`.
        out
            Arrays that may be used for the outputs of `SolvedBlock`.
        context
            From `State.given`.
        work
            From `new_work`.
        """
        raise NotImplementedError(f"{self.command} has no blocks that are solved once")

    def keep(self, phase: Phase, block: Block, message: Any, folder: Path | None) -> Any:
        """Store knowledge about a block for later phases, before the block is written.

        Called in the process that solved the block.

        Parameters
        ----------
        folder
            The run's folder, which all processes can access; None for arrays.

        Returns
        -------
        Any
            The argument of `State.add`: small, because it may be sent between processes.
        """
        return message

    # -- in another process -----------------------------------------------------------------------

    @property
    def shared(self) -> str:
        """The folder that all processes must be able to access: the store."""
        return self.store

    def open(self) -> None:
        """Open the inputs in a process that is going to solve blocks."""
        _ = self.layers

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Close the inputs in that process."""

    # -- derived from these ---------------------------------------------------------------------

    @cached_property
    def layers(self) -> list[Layer]:
        """The opened input layers."""
        opened = TileStore.open(self.store)
        return [opened.layer(name) for name in self.inputs]

    def over(self, layers: Sequence[Any]) -> Self:
        """Return a copy of this operation over layers in memory; see `arrays`."""
        operation = copy(self)
        vars(operation)["layers"] = list(layers)
        return operation

    @property
    def grid(self) -> GridSpec:
        return self.layers[0].grid

    @property
    def blocks(self) -> BlockGrid:
        """The blocks of the input that has the largest ones."""
        return max((layer.blocks for layer in self.layers), key=lambda blocks: blocks.block)

    def identity(self) -> dict[str, str]:
        """Return names and digests of the inputs, so that a run over other cells is not resumed."""
        return {layer.name: layer.identity for layer in self.layers}

    def fingerprint(self) -> Settings:
        """Return what must be equal to resume a run; recorded with the outputs."""
        return {**self.settings(), "of": self.identity()}

    def refuse(self, *, overwrite: bool) -> None:
        """Reject outputs that would replace an input or a layer of another command.

        Raises
        ------
        InputError
            If an output would do so.
        """
        refuse_shared(self.store, [output.name for output in self.outputs], self.inputs)
        for output in self.outputs:
            output.refuse(self, overwrite=overwrite)

    def examine(self) -> None:  # noqa: B027 - most take any cells
        """Reject inputs that cannot be used, and warn, before anything is written."""

    def window(self, block: Block) -> Window:
        """Return the window of a block's cells that are computed."""
        return self.blocks.window(*block)

    def order(self, plan: StreamPlan) -> Iterator[Block]:
        """Yield the blocks to compute, in the order in which they are read."""
        return self.blocks.ids()

    def new_buffer(self) -> list[np.ndarray]:
        """Allocate flat arrays for a block of each input and output."""
        rows, cols = (min(self.blocks.block, side) for side in self.grid.shape)
        ring = (rows + 2 * self.halo) * (cols + 2 * self.halo)
        layers = [output for output in self.outputs if isinstance(output, OutputLayer)]
        return [
            *(np.empty(ring, layer.dtype) for layer in self.layers),
            *(np.empty(rows * cols, output.dtype) for output in layers),
        ]

    def read(self, block: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        """Read a block into a buffer; return views of the block's shape for inputs and outputs."""
        r0, r1, c0, c1 = self.window(block)
        views = []
        for k, flat in enumerate(buffer):
            halo = self.halo if k < len(self.layers) else 0
            shape = r1 - r0 + 2 * halo, c1 - c0 + 2 * halo
            # Contiguous in every shape, so that kernels are compiled only once.
            view = flat[: shape[0] * shape[1]].reshape(shape)
            if k < len(self.layers):
                self.layers[k].read_ring((r0, r1, c0, c1), view, halo=halo)
            views.append(view)
        return views

    # Sources stored in strips are read several blocks at a time.

    def groups(self, plan: StreamPlan, blocks: Iterator[Block]) -> Iterator[Iterable[Block]]:
        """Group the blocks that are read together; by default, each is alone."""
        return ([block] for block in blocks)

    def group_buffer(self, plan: StreamPlan) -> list[np.ndarray]:
        """Allocate a buffer for a group, see `new_buffer`."""
        return self.new_buffer()

    def read_group(
        self, group: Iterable[Block], buffer: list[np.ndarray]
    ) -> Iterable[list[np.ndarray]]:
        """Read each block of a group, see `read`."""
        return [self.read(block, buffer) for block in group]

    def solve_read(
        self, phase: Phase, block: Block, data: list[np.ndarray], context: Any, work: Any
    ) -> SolvedBlock:
        """Solve a block from the arrays that `read` returned."""
        count = len(self.layers)
        return self.solve(phase, block, data[:count], data[count:], context, work)

    def __getstate__(self) -> JsonObject:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


def refuse_shared(store: object, results: Sequence[str], inputs: Sequence[str]) -> None:
    """Reject results that share a name with an input or with each other.

    Raises
    ------
    InputError
    """
    if len({*results, *inputs}) < len(results) + len(set(inputs)):
        raise InputError(
            f"{store}: the results ({', '.join(results)}) and the layers that they are computed "
            f"from ({', '.join(inputs)}) must have different names"
        )


def refuse_without_table(operation: Any) -> None:
    """Raise an error if a layer is complete but the table of the operation is missing."""
    if operation.table is not None and not os.path.exists(operation.table):
        raise StoreError(
            f"{operation.store}: layer {operation.into!r} is complete but {operation.table} is "
            "missing; --overwrite without --resume computes both again"
        )
