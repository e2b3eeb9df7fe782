"""Plan and solve a matrix on the requested device, and have its rows written: `run_matrix`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ...arguments import Devices, is_demanded
from ...cuda.backend import Gpu, Placement, find_gpu
from ...engine.machine import NO_LIMIT, Machine
from ...errors import ArgumentError
from ...facts import Findings
from ...grid.units import of_lengths
from ...io.features import library_bytes
from ...progress import Progress, in_cells, silent
from ...report import Report
from ...store.temporary import TemporaryFolder
from .folder import BATCH, run_folder
from .operation import GPU_SIDE, BatchPlan, MatrixProblem
from .solve import MatrixRun, solve_on_cluster


class RowWriter(Protocol):
    """Writes the rows of a matrix.

    Attributes
    ----------
    files
        The files that it writes.
    beside
        The file next to which finished batches are kept for `resume`; None for arrays in memory.
    lines
        Whether it needs the steps of paths.
    """

    @property
    def files(self) -> Sequence[Path]: ...

    @property
    def beside(self) -> Path | None: ...

    @property
    def lines(self) -> bool: ...

    def write(self, run: MatrixRun) -> Findings:
        """Write the rows of all sources, in their order; return entries of the report."""


class RunSettings(NamedTuple):
    """How a matrix is solved: see `settings_of`."""

    machine: Machine
    place: Placement
    cluster: Any
    resume: bool
    overwrite: bool


def settings_of(
    problem: MatrixProblem,
    writer: RowWriter,
    *,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    backend: str = "auto",
    device: Devices = 0,
    gpu_memory_limit: int | str | None = None,
    client: Any = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> RunSettings:
    """How a matrix is solved, from the parameters of `cost_matrix`.

    Raises
    ------
    InputError
        when CUDA is requested but does not work, or a cluster cannot solve the problem.
    """
    cluster = gpu = None
    limit = NO_LIMIT if memory_limit is None and not problem.store else memory_limit
    if client is not None:
        cluster = _cluster(client, problem, backend, writer.beside)
        limit = cluster.limit(memory_limit)
    machine = Machine.of(limit, threads)
    if cluster is None:
        gpu = find_gpu(backend, device, gpu_memory_limit, machine.memory_limit, GPU_SIDE)
        gpu = gpu and gpu._replace(others=())  # sources share the cells of one GPU
    return RunSettings(machine, Placement(gpu, progress), cluster, resume, overwrite)


def _cluster(client: Any, problem: MatrixProblem, backend: str, beside: Path | None) -> Any:
    """The cluster of a client; raise an error if it cannot solve the problem."""
    from ...engine.cluster import Cluster

    if beside is None:
        raise ArgumentError("a cluster stores finished batches next to the table; give {output}")
    if backend == "cuda" and is_demanded("backend"):
        raise ArgumentError(
            "workers of a cluster compute cost matrices on the CPU; leave out {backend} cuda, or "
            "{client}"
        )
    return Cluster(client, problem.store)


def run_matrix(problem: MatrixProblem, writer: RowWriter, how: RunSettings) -> Report:
    """Solve all batches, and write their rows; finished batches are kept until all is done."""
    report, place, cluster = Report(problem.command), how.place, how.cluster
    beside = max((library_bytes(str(file)) for file in writer.files), default=0)

    def plan_on(gpu: Gpu | None) -> BatchPlan:
        if cluster is not None:
            found: BatchPlan = cluster.plan(problem, how.machine)
            return found
        return problem.plan_batches(how.machine.on(gpu), beside + place.held)

    place.run(plan_on)  # refuses a limit before a folder is made
    settings = problem.fingerprint() if problem.store else problem.settings()
    with report.measured(), ExitStack() as stack:
        if writer.beside is None:
            folder = stack.enter_context(TemporaryFolder(tempfile.gettempdir()))
        else:
            kept = {**settings, "paths": writer.lines}
            again = {"resume": how.resume, "overwrite": how.overwrite}
            folder = stack.enter_context(run_folder(writer.beside, kept, **again))

        def solve(gpu: Gpu | None) -> MatrixRun:
            plan = plan_on(gpu)
            run = MatrixRun(problem.of(plan), plan, folder, lines=writer.lines)
            if cluster is None:
                run.run(report, place.progress, gpu)
            else:
                solve_on_cluster(run, cluster, report, place.progress)
            return run

        resumed = sum(1 for _ in folder.glob(BATCH.format("*")))
        place.progress.count = 1 + (problem.verified and writer.lines)
        run = place.run(solve)
        run.proof_progress = in_cells(place.progress, problem.grid.cells * len(run.sources))
        with report.phase("write"):
            written = writer.write(run)
    report.cells = problem.grid.cells
    if problem.store:
        report.valid_cells = problem.layers[0].info.get("valid_cells") or 0
    report.settings = {**settings, **place.settings(), "plan": run.plan._asdict()}
    if cluster is not None:
        report.settings["cluster"] = cluster.settings()
    report.result = {
        **({"store": problem.store} if problem.store else {}),
        **written,
        "wrap": problem.wrap,
        "unit": problem.unit,
        "length_unit": of_lengths(problem.grid),
        "batches": len(run.sources),
        "batches_resumed": resumed,
        "block_visits": run.visits.blocks,
        "tile_visits": run.visits.tiles,
        "spilled_bytes": run.visits.spilled,
        "loaded_bytes": run.visits.loaded,
        **({"verified_steps": run.proven} if problem.verified else {}),
    }
    return report


def name_files(report: Report, files: dict[str, str | os.PathLike[str] | None]) -> None:
    """Record the files of a run in its report, under the caller's names."""
    report.result |= {key: os.fspath(file) for key, file in files.items() if file is not None}
