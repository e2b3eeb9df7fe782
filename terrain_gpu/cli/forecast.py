"""What a run on a cluster will do, from its plan and measured rates: `forecast`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ..engine import cluster
from ..engine.plan import StreamPlan, format_size, of_cluster
from ..errors import InputError
from ..grid import BlockGrid, ceil_div
from ..io.convert_problem import PART
from ..mst.problem import regions_of_a_task
from ..paths.cpu.remote import MOST


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
    told
        Bytes from the workers, for each block beside that.
    given_cell
        Bytes to the workers for each cell.
    outputs
        Layers that it writes.
    stored
        The usual share of the tiles that hold something; the others are not stored.
    """

    name: str
    rate: float
    given: float = 0
    known: float = 0
    rim: float = 0
    cell: float = 0
    line: int = 0
    given_cell: float = 0
    outputs: int = 1
    stored: float = 1
    told: int = 0


class Case(NamedTuple):
    """What else a forecast depends on.

    Attributes
    ----------
    weight
        Of a spanning tree.
    item
        Bytes of a distance.
    visits
        How often shortest paths visit a block.
    backlink
        Whether they compute backlinks.
    slower
        How many times as long as by the rates below a core takes.
    storage
        Bytes per second that storage moves for all workers together; None if that is no limit.
    stored
        The share of the tiles that hold something; None for what is usual.
    cold
        Whether what a run reads must come from storage, and is not in memory already.
    layers
        How many layers calc or a corridor read; None for the least number.
    """

    weight: str = "max"
    item: int = 8
    visits: float = 1
    backlink: bool = False
    slower: float = 1
    storage: int | None = None
    stored: float | None = None
    cold: bool = False
    layers: int | None = None


# Rates: processor seconds of tasks, without the loading of kernels, on hosts of 32 cores (virtual
# Intel Xeon), uint16 terrain in blocks of 1024, 2026-11-25: of 16 workers on 30 000^2, for slope,
# spanning tree and components the mean of these and of 32 workers on 100 000^2 on another host.
# Rates of what did not run there are those of an EPYC core, divided by what the others lost. Bytes:
# float32 terrain of 1024^2 to 8192^2, blocks of 128 to 1024. Flow directions and breach: of rasters
# without voids. calc (a product), rasterize and corridor (of two layers): of two workers on the
# machine of benchmarks.md with two cores, 8192^2 float32, times 0.53, which is what convert, slope,
# burn and absdiff, measured beside them, have here of what they have there.
PASSES = {
    "convert": (Pass("convert", 94e6, line=110),),
    "slope": (Pass("slope", 22.9e6, line=110),),
    "mst": (Pass("blocks", 15.8e6, line=85), Pass("patches", 270e6, given=17.1, line=33)),
    "components": (
        Pass("survey", 213e6, known=3.1, rim=4),
        Pass("label", 77.5e6, given=2.7, line=84, stored=0.5),
    ),
    "accumulate": (
        Pass("outlines", 14.3e6, known=41),
        Pass("drain", 12.5e6, given=11, line=90),
    ),
    "flow-direction": (
        Pass("outlines", 16.9e6, known=31),
        Pass("drain", 16.9e6, given=8, line=85),
    ),
    "flow-accumulation": (
        Pass("ways", 19.1e6, known=8.5),
        Pass("cells", 16.5e6, given=3.5, line=85),
    ),
    "fill": (
        Pass("ways", 53e6, known=5.4),
        Pass("cells", 13.7e6, given=2.5, line=85),
    ),
    "basins": (
        Pass("ways", 23e6, known=9.1),
        Pass("cells", 10.5e6, given=6.2, line=85),
    ),
    "hand": (
        Pass("ways", 17.7e6, known=7.6),
        Pass("cells", 4.7e6, given=5.4, line=170, outputs=2),
    ),
    "network": (
        Pass("outlines", 20e6, known=45.5),
        Pass("lines", 8.5e6, given=15.7, cell=2.6),
        Pass("ends", 8.2e6, given=15.7, cell=2.6),
    ),
    "watershed": (
        Pass("ways", 60e6, known=6.5),
        Pass("cells", 14e6, given=4.6, line=140, outputs=2),
    ),
    "depressions": (
        Pass("merge", 8.7e6, known=21.7, cell=1.22),
        Pass("measure", 6.5e6, given=14.2, given_cell=0.245, known=1.2, cell=1.21),
        Pass("label", 5.5e6, given=13.4, given_cell=0.245, line=85),
    ),
    "streams": (
        Pass("pieces", 50e6, known=1.4, cell=0.027),
        Pass("streams", 50e6, given_cell=0.005, line=85),
    ),
    "terrain-indices": (Pass("indices", 7.2e6, line=300, outputs=3),),
    "polygons": (Pass("trace", 10e6, known=0.5, cell=0.042),),
    "contours": (Pass("trace", 10e6, known=0.5, cell=2.7),),
    "breach": (Pass("pits", 41e6, known=9.1, cell=0.015), Pass("breach", 2.2e6, line=110)),
    "burn": (Pass("burn", 130e6, line=110),),
    "calc": (Pass("calc", 72e6, line=110),),
    "rasterize": (Pass("rasterize", 158e6, line=110, told=55),),
    "corridor": (Pass("optimum", 92e6, told=168), Pass("corridor", 50e6, line=110)),
    "index": (Pass("build", 0.55e6, line=42),),
    "sssp": (),  # see `_visits`
}
"""By the purpose of a plan."""
COMMANDS = {
    "convert": "convert-dataset",
    "mst": "compute-mst",
    "sssp": "compute-sssp",
    "index": "build-index",
    "components": "label-components",
}
"""Names in reports, where they differ."""

FINALISE_RATE, BACKLINK_RATE, BACKLINK_BYTES = 24e6, 12e6, 5
"""Cells per second when shortest paths are written, without and with backlinks; then also bytes
from the workers, for each cell beside a border between blocks."""
WEIGHTS = {"flow": 1.5, "absdiff": 1.4}
"""How many times as long as with "max" blocks of a spanning tree take."""
LAYERS = {"calc": (1, 0.7), "corridor": (2, 0.5)}
"""The fewest layers, and how much longer each further one takes, beside the time of those."""
VISITS = {"friction": 4.2}
OTHER_VISITS = 12.0
"""How often shortest paths visit a block: friction, and costs of heights."""
VISIT_SECONDS = 0.029e-6, 0.0134e-6
"""Of shortest paths, for each cell once and at every visit of its block."""
AGAIN = 0.8
"""Visits of a block that are followed by one in the same task, for each that is not; over the root
of the workers, because few of them keep more of the blocks around."""
TOGETHER = 1.4
"""Visits of a task, beside the square root of a worker's blocks; at most `MOST`."""
WAVE = 0.25
"""Blocks that can be visited at a time, beside the square root of all."""

JOIN_SECONDS = {
    "mst": 0.83e-6,
    "components": 0.015e-6,
    "accumulate": 0.37e-6,
    "flow-direction": 0.33e-6,
    "network": 0.37e-6,
    **dict.fromkeys(("flow-accumulation", "fill", "basins", "hand", "watershed"), 0.12e-6),
}
"""Of the process that starts the run, for each cell beside a border between blocks."""
HIERARCHY_SECONDS = 0.03e-6
"""For each cell: the depressions of all blocks are joined."""
LINES_RATE, POLYGONS_RATE = 2e6, 15e6
"""Cells per second whose lines or polygons that process writes to a GeoPackage."""
READ = {"network": 1.5, "breach": 2 / 3}
"""What is read, beside the plan: a third pass; none for voids."""
CHECKSUM_RATE = 0.8e9
"""Bytes per second."""
TASK_COST = 4e-3
"""Seconds of the scheduler and of the process that starts the run for each task, on two cores."""
ALONE, CROWD = 0.7, 16
"""How long one worker of a host takes for what takes one of so many a second."""
WAIT = 1.5e-9
"""Seconds until a byte is on the disk that no other worker uses."""
FIRST, LATER = 0.5, 0.02
"""Seconds of a worker's first task of a run, which loads kernels, and of a later phase."""
FILES = 4e9
"""Bytes of files that a host keeps in memory for each worker: the measured ones have 8 GB for each
processor, and workers leave most of it."""
COMMIT = 1e-4
"""Seconds for each block in the end."""

JOB, WRITING_JOB, OUTPUT, BLOCK, ANSWER, EDGE, VISIT = 760, 2100, 1000, 20, 50, 8, 3500
"""Bytes of a task, of one that writes a layer, of each further layer, of a block in a task, of what
returns, of a final edge, and of a task of visits."""


def forecast(
    purpose: str,
    planned: Callable[[int, int, int | None], StreamPlan],
    raster: tuple[int, int, int | None],
    workers: int,
    case: Case,
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
    return plan, predicted(purpose, plan, workers, case)


def learned(purpose: str, case: Case, file: str) -> Case:
    """Return the case with what the report of a smaller run tells about this host and terrain.

    Raises
    ------
    InputError
        when it is not the report of such a run on a cluster.
    """
    try:
        told = json.loads(Path(file).read_text(encoding="utf-8"))
        cells, each = told["cells"], told["settings"]["cluster"]["each"]
        used = sum(float(one["processor_seconds"]) for one in each.values())
        command, visits = told["command"], told["result"].get("block_visits_per_block", case.visits)
    except OSError as error:
        raise InputError(f"--like {file}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            f"--like {file}: not the report of a run on a cluster; give what --json of a run with "
            "--workers wrote"
        ) from None
    wanted = COMMANDS.get(purpose, purpose)
    if told["settings"].get("backend") == "cuda":
        raise InputError(
            f"--like {file}: a run on GPUs, and this predicts CPUs; give one with --backend cpu"
        )
    if command != wanted:
        raise InputError(f"--like {file}: a report of {command}; --for {purpose} needs {wanted}")
    case = case._replace(visits=visits)
    own = sum(_work(purpose, cells, case).values()) + FIRST * len(each)
    if purpose != "sssp" and (most := told["settings"].get("plan", {}).get("bytes_written")):
        wrote = sum(one.get("bytes_written", most) for one in each.values())
        case = case._replace(stored=min(wrote / most, 1.0))
    return case._replace(slower=used / (_crowded(len(each)) * own))


def _crowded(workers: int) -> float:
    """Return how long so many workers of a host take for what takes many a second."""
    return ALONE + (1 - ALONE) * min(workers - 1, CROWD - 1) / (CROWD - 1)


def _work(purpose: str, cells: int, case: Case) -> dict[str, float]:
    """Return the seconds that one core takes for the tasks of each phase."""
    if purpose == "sssp":
        once, visit = VISIT_SECONDS
        rate = BACKLINK_RATE if case.backlink else FINALISE_RATE
        return {"relax": cells * (once + visit * case.visits), "finalise": cells / rate}
    found = {one.name: cells / one.rate for one in PASSES[purpose]}
    if purpose == "mst":
        found["blocks"] *= WEIGHTS.get(case.weight, 1.0)
    if case.layers and purpose in LAYERS:
        least, each = LAYERS[purpose]
        share = 1 + each * (case.layers - least)
        return {name: seconds * share for name, seconds in found.items()}
    return found


class _Forecast:
    """A forecast in the making.

    Attributes
    ----------
    kept
        Whether the hosts keep all files of the run in memory. Then nothing is read from storage
        that the run itself, or one before it, has read or written.
    """

    def __init__(self, plan: StreamPlan, workers: int, case: Case) -> None:
        self.slower = case.slower * _crowded(workers)
        self.workers, self.storage, self.cold = workers, case.storage, case.cold
        files = plan.bytes_read / max(plan.passes, 1) + plan.bytes_written
        self.kept = files <= workers * FILES
        self.tasks = self.sent = self.received = self.fetched = 0.0
        self.seconds: dict[str, float] = {}
        self.limits: dict[str, str] = {}

    def phase(
        self, name: str, items: int, work: float, written: float = 0, read: float = 0, *,
        at_once: float = math.inf, tasks: int | None = None,
    ) -> int:  # fmt: skip
        """Add a phase whose items take so many seconds of one core; return its tasks."""
        loads = FIRST if name != "convert" and not self.seconds else LATER
        spent, first = self.slower * work + WAIT * written, self.slower * loads
        if self.kept and (self.seconds or not self.cold):
            read = 0
        self.fetched += read
        busy = max(min(self.workers, items, at_once), 1)
        stored = (read + written) / self.storage if self.storage else 0.0
        shared = _shared(busy, spent, stored)
        if tasks is None:
            tasks = _tasks(items, busy * shared, self.workers, first)
        # In the end others wait for the last task.
        last = busy * shared / tasks * (1 - 1 / busy) / 2
        slowest = "storage" if stored > spent / busy else "workers"
        took = {slowest: first + shared + last, "tasks": TASK_COST * tasks}
        self.limits[name] = max(took, key=lambda limit: took[limit])
        self.seconds[name] = self.seconds.get(name, 0.0) + took[self.limits[name]]
        self.tasks += tasks
        return tasks

    def alone(self, name: str, work: float) -> None:
        """Add work of the process that starts the run."""
        self.seconds[name] = self.seconds.get(name, 0.0) + work


def _shared(workers: float, work: float, stored: float) -> float:
    """Return the seconds of workers that compute, and take turns at the storage.

    Mean value analysis of a closed queueing network (Reiser and Lavenberg 1980): a worker that
    comes to the storage finds there as many as there are on average with one worker less.

    Parameters
    ----------
    work, stored
        Seconds of one worker that computes, and of the storage, for all of the work.
    """
    rate = waiting = 0.0
    for present in range(1, math.ceil(workers) + 1):
        at_storage = stored * (1 + waiting)
        rate = min(present, workers) / (work + at_storage)
        waiting = rate * at_storage
        if rate * stored > 0.9999:
            break
    return 1 / rate if stored else work / workers


def predicted(purpose: str, plan: StreamPlan, workers: int, case: Case) -> dict[str, Any]:
    """Predict a run.

    Returns
    -------
    dict
        workers, tasks, bytes_sent and bytes_received (through the scheduler), bytes_read and
        bytes_written (by the workers), bytes_fetched (what of the read ones is not in memory),
        seconds by phase with the total, the range of the total, and what limits each phase.
    """
    found, read, written = _forecast(purpose, plan, workers, case)

    def otherwise(stored: float) -> float:
        """Return the seconds if other tiles are stored, the most if also nothing is in memory."""
        other = case._replace(cold=stored > 0)
        if case.stored is None and any(one.stored < 1 for one in PASSES[purpose]):
            other = other._replace(stored=stored)
        return sum(_forecast(purpose, plan, workers, other)[0].seconds.values())

    return {
        "workers": workers,
        "tasks": round(found.tasks),
        "bytes_sent": round(found.sent),
        "bytes_received": round(found.received),
        "bytes_read": round(read),
        "bytes_written": round(written),
        "bytes_fetched": round(found.fetched),
        "seconds": {**found.seconds, "total": sum(found.seconds.values())},
        "range": [otherwise(0.0), otherwise(1.0)],
        "limits": found.limits,
    }


def _forecast(
    purpose: str, plan: StreamPlan, workers: int, case: Case
) -> tuple[_Forecast, float, float]:
    """Predict a run; also the bytes that workers read, and most bytes that they write."""
    cells, blocks = plan.rows * plan.cols, BlockGrid(plan.rows, plan.cols, plan.block_size)
    down, across = blocks.shape
    inner = 2 * blocks.line_cells
    rims = 2 * (down * plan.cols + across * plan.rows)
    units = ceil_div(plan.rows, plan.unit_rows) * ceil_div(plan.cols, plan.unit_cols)
    found, work = _Forecast(plan, workers, case), _work(purpose, cells, case)
    share = 1.0 if case.stored is None else case.stored
    read, written = READ.get(purpose, 1) * plan.bytes_read, share * plan.bytes_written
    patched = cells * (purpose == "mst" and blocks.count > 1)  # written twice, a byte each
    if purpose == "sssp":
        spilled = _visits(found, plan, blocks.count, work, case)
        read, written = read + spilled, written + spilled
        found.received += BACKLINK_BYTES * inner * case.backlink
        told = 1 + (case.visits - 1) / (1 + AGAIN / math.sqrt(workers))
        found.sent += (told + 1) * rims * case.item
        found.received += told * rims * case.item
    for one in PASSES[purpose]:
        moved = (written - share * patched) * (one.line > 0), read - patched
        if one.name == "patches":
            _levels(found, blocks, inner)
            if blocks.count == 1:
                continue
            moved = share * patched, patched
        elif not patched:
            usual = one.stored if case.stored is None else 1
            moved = usual * moved[0], read / len(PASSES[purpose])
        items = units if purpose == "convert" else blocks.count
        count = found.phase(one.name, items, work[one.name], *moved)
        job = WRITING_JOB + OUTPUT * (one.outputs - 1) if one.line else JOB
        found.sent += count * job + BLOCK * blocks.count
        found.sent += one.given * inner + one.given_cell * cells
        found.received += ANSWER * count + (one.line + one.told) * blocks.count
        found.received += one.known * inner + one.rim * rims + one.cell * cells
    if purpose == "convert" and workers > 1:
        size = plan.bytes_read // plan.passes
        read += size
        found.sent += JOB * found.phase(
            "checksums", ceil_div(size, PART), size / CHECKSUM_RATE, read=size
        )
    elif purpose == "network":
        found.alone("write", cells / LINES_RATE)
    elif purpose in ("polygons", "contours"):
        found.alone("write", cells / POLYGONS_RATE)
    elif purpose == "depressions":
        found.alone("join", HIERARCHY_SECONDS * cells)
    if purpose in JOIN_SECONDS and purpose != "mst":
        found.alone("join", JOIN_SECONDS[purpose] * inner)
    found.alone("commit", COMMIT * blocks.count)
    return found, read, written


def _levels(found: _Forecast, blocks: BlockGrid, inner: int) -> None:
    """Add the levels of a spanning tree, the lower ones in tasks."""
    side, each = regions_of_a_task(blocks.count, found.workers), JOIN_SECONDS["mst"]
    if side > 1:
        tops = BlockGrid(blocks.rows, blocks.cols, side * blocks.block)
        below, inner = inner - 2 * tops.line_cells, 2 * tops.line_cells
        found.sent += JOB * found.phase("levels", tops.count, each * below)
        found.received += EDGE * below
    found.alone("levels", each * inner)


def _visits(
    found: _Forecast, plan: StreamPlan, blocks: int, work: dict[str, float], case: Case
) -> float:
    """Add shortest paths; return the bytes of distances that leave memory, and return."""
    away = max(1 - found.workers * plan.buffers / blocks, 0)  # these leave memory at every visit
    spilled = away * case.visits * plan.rows * plan.cols * case.item
    together = min(TOGETHER * math.sqrt(blocks / found.workers), MOST)
    visits = math.ceil(blocks * case.visits / max(together, 1))
    last = ceil_div(blocks, MOST) + found.workers - 1
    at_once = WAVE * math.sqrt(blocks)
    read = plan.bytes_read + spilled
    found.phase("relax", blocks, work["relax"], spilled, read, at_once=at_once, tasks=visits)
    found.phase("finalise", blocks, work["finalise"], plan.bytes_written, tasks=last)
    found.sent += VISIT * (visits + last)
    found.received += ANSWER * (visits + last)
    return spilled


def _tasks(items: int, seconds: float, workers: int, first: float) -> int:
    """Count tasks as a `Cluster` makes them: of single items first, then by what these took."""
    target, single = cluster.TASK_SECONDS, min(items, 2 * workers)
    several = min(max(int(target * items / seconds), 1), cluster.MOST_BLOCKS)
    if several == 1:
        return items
    # Until much is done, first tasks weigh on the mean: the integral over what is done.
    slow_start = first * workers / target * math.log(items / single)
    return min(single + ceil_div(items - single, several) + round(slow_start), items)


def described(plan: StreamPlan, found: dict[str, Any], case: Case, purpose: str) -> str:
    """The prediction in words, several lines."""
    seconds = dict(found["seconds"])
    total, (least, most) = seconds.pop("total"), found["range"]
    phases = ", ".join(f"{name} {value:.3g}" for name, value in seconds.items())
    slow, full = (
        [name for name, limit in found["limits"].items() if limit == of]
        for of in ("tasks", "storage")
    )
    moved, usual = found["bytes_fetched"] + found["bytes_written"], f"{total:.3g}"
    origin = "from memory"
    if fetched := found["bytes_fetched"]:
        origin = f"{format_size(fetched)} of it from storage"
    if not case.storage and moved:
        usual += f" if storage moves {format_size(moved / max(total, 1e-9))}/s"
    lines = [
        f"workers        {found['workers']:,} of one thread, {found['tasks']:,} task(s)",
        f"memory         {format_size(plan.memory)} of the process that starts the run, "
        f"{format_size(plan.worker_memory or plan.memory)} of each worker",
        f"scheduler      {format_size(found['bytes_sent'])} to workers, "
        f"{format_size(found['bytes_received'])} back",
        f"workers' I/O   {format_size(found['bytes_read'])} read ({origin}), "
        f"{format_size(found['bytes_written'])} written at most",
        f"seconds        {usual} ({phases})",
    ]
    unknown = []
    if least < 0.99 * total:
        unknown.append("how many tiles hold something")
    if most > 1.01 * total and not fetched:
        unknown.append("whether the cells are in memory")
    if unknown:
        lines.append(f"between        {least:.3g} and {most:.3g}: {' and '.join(unknown)}")
    if purpose == "sssp":
        lines.append(
            f"visits         {case.visits:g} of each block: data decides, --like takes the number "
            "of a smaller run"
        )
    if slow:
        lines.append(
            f"limit          the number of tasks ({', '.join(slow)}): more workers do not help, "
            "larger blocks may"
        )
    if full:
        lines.append(
            f"limit          storage ({', '.join(full)}): seconds are as sure as --storage"
        )
    return "\n".join(lines)
