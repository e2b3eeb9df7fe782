"""What an operation is: a problem, the layers it reads and writes, and passes over their blocks.

An operation is a frozen dataclass whose fields say everything: the path of a store, names of
layers, parameters. So it can be pickled, and one of its blocks solved in any thread, process or
machine that sees the store: `Operation.solve` takes the cells of a block and what the block must
know of the others, and gives arrays and what the others must know of it. `State` is what is known
of all blocks, in the process that runs the operation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from ..errors import InputError
from ..grid import Block, BlockGrid, GridSpec, Window
from ..store import Layer, LayerWriter, TileStore, create_layer
from ..store.file_writer import FileWriter, writable_file
from .plan import StreamPlan

if TYPE_CHECKING:
    from .run import Run


class Phase(NamedTuple):
    """A pass over the blocks.

    Attributes
    ----------
    name
        In reports.
    writes
        Whether it gives the blocks of the outputs; then finished ones are not solved again.
    joined
        Name of what `State.join` does once all blocks were seen; nothing when empty.
    ordered
        Whether blocks are written in the order of `Operation.order`, for files that are.
    counted
        Whether progress counts its cells; not where it looks at few blocks once more.
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
        What it holds, for messages: "slopes".
    attributes
        Of this package, beside the result.
    described
        Attributes for all readers, such as "units".
    compress
        None or "zstd".
    origin
        Where the cells come from, for messages.
    """

    name: str
    dtype: np.dtype
    nodata: float | int | None = None
    holds: str = "results"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    described: Mapping[str, Any] = field(default_factory=dict)
    compress: str | None = None
    origin: str = "the new layer"

    def refuse(self, operation: Operation, *, overwrite: bool) -> None:
        """Refuse to replace what another command made."""
        store = TileStore.open(operation.store)
        store.refuse_foreign(self.name, operation.mark, self.holds, self.holds)

    def open(self, operation: Operation, *, resume: bool, overwrite: bool) -> LayerWriter:
        """Begin it, or go on with it."""
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
    """A file that an operation writes, whole or not at all; it is not resumed.

    Attributes
    ----------
    name
        Its path.
    """

    name: str
    attributes: ClassVar[Mapping[str, Any]] = {}

    def refuse(self, operation: Operation, *, overwrite: bool) -> None:
        """Refuse a place that cannot be written."""
        writable_file(Path(self.name), overwrite=overwrite)

    def open(self, operation: Operation, *, resume: bool, overwrite: bool) -> Any:
        """What receives it."""
        return FileWriter(Path(self.name).absolute(), operation.blocks.shape)


class SolvedBlock(NamedTuple):
    """What is found in a block: the cells of the outputs, and what others must know of it."""

    arrays: tuple[np.ndarray, ...] = ()
    known: Any = None


class State:
    """What is known of all blocks. Here nothing: blocks do not depend on each other.

    Attributes
    ----------
    again
        Whether finished blocks are solved again, for what is known of them.
    """

    again = False

    def given(self, phase: Phase, at: Block) -> Any:
        """What a block must know of the others; small, and picklable. From any thread."""
        return None

    def finished(self, phase: Phase, at: Block, written: bool) -> bool:
        """Whether a block need not be solved, its outputs being `written`."""
        return phase.writes and written and not self.again

    def add(self, phase: Phase, at: Block, known: Any) -> None:
        """Take what others must know of a block, before it counts as written.

        From the plan's writers: one thread at a time where there is one of them.
        """

    def join(self, phase: Phase) -> None:
        """All blocks were seen."""

    def found(self) -> dict[str, Any]:
        """What is recorded with the outputs, and reported."""
        return {}

    def close(self) -> None:
        """The run ends, well or not."""


class Operation(ABC):
    """A problem over the layers of a store; subclasses are frozen dataclasses."""

    store: str
    command: ClassVar[str]
    mark: ClassVar[str]
    """The setting by which an output is known to be of this operation, and may be replaced."""
    halo: ClassVar[int] = 0
    """Rings of cells around a block that it reads."""

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
    def plan(
        self, memory_limit: int | str | None, threads: int | None, gpu: Any = None
    ) -> StreamPlan:
        """How its blocks stream within a memory limit, on a GPU unless that is None."""

    def settings(self) -> dict[str, Any]:
        """What the outputs depend on beside the inputs' cells: a run resumes only with the same."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        del own["store"]
        return own

    def new_work(self) -> Any:
        """Arrays to work in, of one thread."""
        return None

    def begin(self, plan: StreamPlan, spill: Path) -> State:
        """What is known before the first block; compiles what the phases need.

        Parameters
        ----------
        spill
            A folder for what does not fit memory; it need not exist, and goes with the run.
        """
        return State()

    @property
    def passes(self) -> int:
        """How often progress counts every cell."""
        return sum(phase.counted for phase in self.phases)

    def execute(self, run: Run) -> dict[str, Any]:
        """All phases; what is recorded with the outputs, and reported.

        Here blocks stream through one phase after another. Operations whose phases have other
        shapes compose them from what `run` offers.
        """
        state = self.begin(run.plan, run.spill)
        try:
            for phase in self.phases:
                run.map(phase, state)
            return state.found()
        finally:
            state.close()

    def verify(self, run: Run, found: dict[str, Any]) -> dict[str, Any]:
        """Prove the outputs, which are not committed yet; what is reported of it."""
        raise NotImplementedError(f"{self.command} has no proof")

    def record(self, found: dict[str, Any]) -> dict[str, Any]:
        """What `execute` found, as it is recorded among the attributes of the outputs."""
        return {"result": found}

    def beside(self, made: Mapping[str, Layer | None]) -> dict[str, Any]:
        """What an output records of those that were made before it."""
        return {}

    def recorded(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """What `execute` found, of a run that is complete."""
        return attributes["result"]

    def refuse_finished(self) -> None:  # noqa: B027 - most have nothing beside
        """The outputs are complete already: refuse if something beside them is missing."""

    @abstractmethod
    def solve(
        self,
        phase: Phase,
        at: Block,
        cells: list[np.ndarray],
        out: list[np.ndarray],
        given: Any,
        work: Any,
    ) -> SolvedBlock:
        """Solve a block.

        Parameters
        ----------
        cells
            Of the inputs, with `halo`.
        out
            Arrays for the outputs, to be given back in `SolvedBlock` or not.
        given
            Of `State.given`.
        work
            Of `new_work`.
        """

    def keep(self, phase: Phase, at: Block, known: Any, folder: Path | None) -> Any:
        """Keep what is known of a block where later phases find it, before the block is written.

        Called where the block was solved, which may be another process.

        Parameters
        ----------
        folder
            The run's own, which all processes see; None over arrays.

        Returns
        -------
        Any
            What `State.add` is told: small, where blocks are solved elsewhere.
        """
        return known

    # -- in another process -----------------------------------------------------------------------

    @property
    def shared(self) -> str:
        """A folder that all processes must see: the store."""
        return self.store

    def open(self) -> None:
        """Open the inputs, in a process that is about to solve blocks."""
        _ = self.layers

    def close(self) -> None:  # noqa: B027 - most hold nothing open
        """Close them: the process goes on to something else."""

    # -- what follows from these ----------------------------------------------------------------

    @cached_property
    def layers(self) -> list[Layer]:
        """The inputs, open."""
        opened = TileStore.open(self.store)
        return [opened.layer(name) for name in self.inputs]

    def over(self, layers: Sequence[Any]) -> Self:
        """This operation over layers in memory, see `arrays`."""
        found = copy(self)
        vars(found)["layers"] = list(layers)
        return found

    @property
    def grid(self) -> GridSpec:
        return self.layers[0].grid

    @property
    def blocks(self) -> BlockGrid:
        """Those of the input with the largest."""
        return max((layer.blocks for layer in self.layers), key=lambda blocks: blocks.block)

    def identity(self) -> dict[str, str]:
        """Names and digests of the inputs, so that a run over other cells is not resumed."""
        return {layer.name: layer.identity for layer in self.layers}

    def fingerprint(self) -> dict[str, Any]:
        """What a run has in common with the one that it resumes; recorded with the outputs."""
        return {**self.settings(), "of": self.identity()}

    def refuse(self, *, overwrite: bool) -> None:
        """Refuse outputs that would replace an input, or what another command made.

        Raises
        ------
        InputError
        """
        names = [output.name for output in self.outputs]
        if len({*names, *self.inputs}) < len(names) + len(set(self.inputs)):
            raise InputError(
                f"{self.store}: the results {' and '.join(map(repr, names))} and the layers "
                f"{' and '.join(map(repr, self.inputs))} need names of their own"
            )
        for output in self.outputs:
            output.refuse(self, overwrite=overwrite)

    def window(self, at: Block) -> Window:
        """The cells of a block that are computed."""
        return self.blocks.window(*at)

    def order(self, plan: StreamPlan) -> Iterator[Block]:
        """Blocks in the order in which they are read; those that are left out are not computed."""
        return self.blocks.ids()

    def new_buffer(self) -> list[np.ndarray]:
        """Flat arrays for a block of each input and output."""
        rows, cols = (min(self.blocks.block, side) for side in self.grid.shape)
        ring = (rows + 2 * self.halo) * (cols + 2 * self.halo)
        layers = [output for output in self.outputs if isinstance(output, OutputLayer)]
        return [
            *(np.empty(ring, layer.dtype) for layer in self.layers),
            *(np.empty(rows * cols, output.dtype) for output in layers),
        ]

    def read(self, at: Block, buffer: list[np.ndarray]) -> list[np.ndarray]:
        """Cells of a block into a buffer: views of its shape, for inputs and outputs."""
        r0, r1, c0, c1 = self.window(at)
        found = []
        for k, flat in enumerate(buffer):
            halo = self.halo if k < len(self.layers) else 0
            shape = r1 - r0 + 2 * halo, c1 - c0 + 2 * halo
            # Contiguous for every shape, so that kernels are compiled once.
            view = flat[: shape[0] * shape[1]].reshape(shape)
            if k < len(self.layers):
                self.layers[k].read_ring((r0, r1, c0, c1), view, halo=halo)
            found.append(view)
        return found

    # Sources whose cells are stored in strips are read several blocks at a time.

    def groups(self, plan: StreamPlan, blocks: Iterator[Block]) -> Iterator[list[Block]]:
        """Blocks that are read together: here each alone."""
        return ([at] for at in blocks)

    def group_buffer(self, plan: StreamPlan) -> list[np.ndarray]:
        """As `new_buffer`, for a group."""
        return self.new_buffer()

    def read_group(self, group: list[Block], buffer: list[np.ndarray]) -> list[list[np.ndarray]]:
        """`read` of each block of a group."""
        return [self.read(at, buffer) for at in group]

    def solve_read(
        self, phase: Phase, at: Block, data: list[np.ndarray], given: Any, work: Any
    ) -> SolvedBlock:
        """`solve` of what `read` gave."""
        count = len(self.layers)
        return self.solve(phase, at, data[:count], data[count:], given, work)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]


class Unit(NamedTuple):
    """A block of a phase, for a process of its own."""

    operation: Operation
    phase: Phase
    at: Block
    given: Any

    def solve(self) -> SolvedBlock:
        """Read and solve it."""
        operation = self.operation
        data = operation.read(self.at, operation.new_buffer())
        work = operation.new_work()
        return operation.solve_read(self.phase, self.at, data, self.given, work)
