"""What a run on a cluster will do, from its plan and measured rates: `forecast`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..engine import cluster
from ..engine.plan import StreamPlan, format_size, of_cluster
from ..grid import BlockGrid, ceil_div
from ..io.convert_problem import PART
from ..mst.problem import blocks_of_a_task


class Pass(NamedTuple):
    """A phase over the blocks of a raster, as measured.

    Attributes
    ----------
    rate
        Cells per second of one worker with one thread.
    given, known
        Bytes to and from the workers, for each cell beside a border between blocks.
    rim, cell
        Bytes from the workers, for each cell at the sides of blocks, and for each cell.
    line
        Bytes of what records a block that it writes; 0 where it writes none.
    """

    name: str
    rate: float
    given: float = 0
    known: float = 0
    rim: float = 0
    cell: float = 0
    line: int = 0


# Rates: seconds of processor time on one core of an EPYC (virtual), hydrology on one of a Xeon,
# float32 terrain of 8192^2 in blocks of 1024, 2026-11-23. Bytes: the same terrain of 1024^2 to
# 8192^2, blocks of 128 to 1024. Flow directions: of rasters without voids.
PASSES = {
    "convert": (Pass("convert", 98e6, line=110),),
    "slope": (Pass("slope", 36e6, line=110),),
    "mst": (Pass("blocks", 25e6, line=85), Pass("patches", 470e6, given=17.1, line=33)),
    "components": (
        Pass("survey", 260e6, known=3.1, rim=4),
        Pass("label", 95e6, given=2.7, line=84),
    ),
    "accumulate": (
        Pass("outlines", 16e6, known=41),
        Pass("drain", 14e6, given=11, line=90),
    ),
    "flow-direction": (
        Pass("outlines", 19e6, known=31),
        Pass("drain", 19e6, given=8, line=85),
    ),
    "flow-accumulation": (
        Pass("ways", 22e6, known=8.5),
        Pass("cells", 19e6, given=3.5, line=85),
    ),
    "fill": (
        Pass("ways", 66e6, known=5.4),
        Pass("cells", 17e6, given=2.5, line=85),
    ),
    "basins": (
        Pass("ways", 29e6, known=9.1),
        Pass("cells", 13e6, given=6.2, line=85),
    ),
    "hand": (
        Pass("ways", 22e6, known=7.6),
        Pass("cells", 5.8e6, given=5.4, line=170),
    ),
    "network": (
        Pass("outlines", 24e6, known=45.5),
        Pass("lines", 10e6, given=15.7, cell=2.6),
        Pass("ends", 9.7e6, given=15.7, cell=2.6),
    ),
}
"""By the purpose of a plan."""

JOIN_SECONDS = {
    "mst": 0.3e-6,
    "components": 0.1e-6,
    "accumulate": 0.2e-6,
    "flow-direction": 0.2e-6,
    "network": 0.2e-6,
    **dict.fromkeys(("flow-accumulation", "fill", "basins", "hand"), 0.05e-6),
}
"""Of the process that starts the run, for each cell beside a border between blocks."""
LINES_RATE = 2.6e6
"""Cells per second whose lines that process writes to a GeoPackage."""
CHECKSUM_RATE = 1e9
"""Bytes per second."""
TASK_COST = 1e-3
"""Seconds of the scheduler for each task, at most."""

JOB, WRITING_JOB, BLOCK, ANSWER, EDGE = 760, 2100, 20, 50, 8
"""Bytes of a task, of one that writes, of a block in it, of what returns, and of a final edge."""


def forecast(
    purpose: str,
    planned: Callable[[int, int, int | None], StreamPlan],
    raster: tuple[int, int, int | None],
    workers: int,
) -> tuple[StreamPlan, dict[str, Any]]:
    """Plan a run by workers of one thread each, and predict it.

    Parameters
    ----------
    planned
        The plan of a raster: rows, cols, and side of a block or None.

    Returns
    -------
    StreamPlan
        Of each process.
    dict
        What `predicted` finds.
    """
    with of_cluster(cluster.OVERHEAD):
        plan = planned(*raster)
    return plan, predicted(purpose, plan, workers)


def predicted(purpose: str, plan: StreamPlan, workers: int) -> dict[str, Any]:
    """Predict a run.

    Returns
    -------
    dict
        workers, tasks, bytes_sent and bytes_received (through the scheduler), bytes_read and
        bytes_written (by the workers), and seconds: by phase, with the total, if storage is fast
        enough.
    """
    cells, blocks = plan.rows * plan.cols, BlockGrid(plan.rows, plan.cols, plan.block_size)
    down, across = blocks.shape
    inner = 2 * blocks.line_cells
    rims = 2 * (down * plan.cols + across * plan.rows)
    units = ceil_div(plan.rows, plan.unit_rows) * ceil_div(plan.cols, plan.unit_cols)
    tasks = sent = received = 0.0
    seconds: dict[str, float] = {}

    def spread(name: str, items: int, work: float) -> int:
        """Count the tasks of items that take so many seconds in all."""
        nonlocal tasks
        found = _tasks(items, work, workers)
        tasks += found
        seconds[name] = max(work / max(min(workers, items), 1), TASK_COST * found)
        return found

    for one in PASSES[purpose]:
        if one.name == "patches":
            side = blocks_of_a_task(blocks.count, workers)
            seconds["levels"] = JOIN_SECONDS[purpose] * inner
            if side > 1:  # the lower levels
                below = inner - 2 * (
                    (ceil_div(down, side) - 1) * plan.cols
                    + (ceil_div(across, side) - 1) * plan.rows
                )
                tops = ceil_div(down, side) * ceil_div(across, side)
                sent += JOB * spread("levels", tops, JOIN_SECONDS[purpose] * below)
                received += EDGE * below
                seconds["levels"] += JOIN_SECONDS[purpose] * (inner - below)
            if blocks.count == 1:
                continue
        items = units if purpose == "convert" else blocks.count
        count = spread(one.name, items, cells / one.rate)
        sent += count * (WRITING_JOB if one.line else JOB)
        sent += BLOCK * blocks.count + one.given * inner
        received += one.known * inner + one.rim * rims + one.cell * cells
        received += ANSWER * count + one.line * blocks.count
    read = plan.bytes_read
    if purpose == "convert":
        size = read // plan.passes
        if workers > 1:
            read += size
            sent += JOB * spread("checksums", ceil_div(size, PART), size / CHECKSUM_RATE)
    elif purpose == "network":
        read += read // 2  # the third pass
        seconds["write"] = cells / LINES_RATE
    if purpose in JOIN_SECONDS and purpose != "mst":
        seconds["join"] = JOIN_SECONDS[purpose] * inner
    return {
        "workers": workers,
        "tasks": round(tasks),
        "bytes_sent": round(sent),
        "bytes_received": round(received),
        "bytes_read": read,
        "bytes_written": plan.bytes_written,
        "seconds": {**seconds, "total": sum(seconds.values())},
    }


def _tasks(items: int, work: float, workers: int) -> int:
    """Count tasks as a `Cluster` makes them: of single items first, then by what these took."""
    single = min(items, 2 * workers)
    several = min(max(int(cluster.TASK_SECONDS * items / work), 1), cluster.MOST_BLOCKS)
    return single + ceil_div(items - single, several)


def described(plan: StreamPlan, found: dict[str, Any]) -> str:
    """The prediction in words, several lines."""
    seconds = dict(found["seconds"])
    total = seconds.pop("total")
    phases = ", ".join(f"{name} {value:.3g}" for name, value in seconds.items())
    through = (found["bytes_read"] + found["bytes_written"]) / max(total, 1e-9)
    return "\n".join(
        (
            f"workers        {found['workers']:,} of one thread, {found['tasks']:,} task(s)",
            f"memory         {format_size(plan.memory)} of the process that starts the run, "
            f"{format_size(plan.worker_memory)} of each worker",
            f"scheduler      {format_size(found['bytes_sent'])} to workers, "
            f"{format_size(found['bytes_received'])} back",
            f"workers' I/O   {format_size(found['bytes_read'])} read, "
            f"{format_size(found['bytes_written'])} written at most",
            f"seconds        {total:.3g} if storage moves {format_size(through)}/s ({phases})",
        )
    )
