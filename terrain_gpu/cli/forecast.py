"""What a run on a cluster will do, from its plan and measured rates: `forecast`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ..engine.connection import OVERHEAD
from ..engine.machine import Machine
from ..engine.plan import format_size
from ..errors import InputError
from ..facts import Findings, Settings
from ..grid import BlockGrid, ceil_div
from ..io.convert_problem import PART
from ..io.small_files import read_small
from ..paths.cost_matrix.operation import MatrixPlan
from ..plurals import counted
from ..spanning_tree.operation import regions_of_a_task
from .forecast_paths import add_batches, add_paths, batch_seconds, work_of_paths
from .forecast_tasks import (
    ANSWER,
    BLOCK,
    EDGE,
    FIRST,
    JOB,
    LATER,
    OUTPUT,
    WRITING_JOB,
    Case,
    Forecast,
    Plan,
    crowded,
)
from .purposes import COMMANDS


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
    job
        Bytes of a task, where these are not as usual.
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
    job: int = 0


# Rates: processor seconds of tasks, without the loading of kernels, on hosts of 32 cores (virtual
# Intel Xeon), uint16 terrain in blocks of 1024, 2026-11-25: of 16 workers on 30 000^2, for slope,
# spanning tree and components the mean of these and of 32 workers on 100 000^2 on another host.
# Rates of what did not run there are those of an EPYC core, divided by what the others lost. Bytes:
# float32 terrain of 1024^2 to 8192^2, blocks of 128 to 1024. Flow directions and breach: of rasters
# without voids. calc (a product), rasterize and corridor (of two layers): of two workers on the
# machine of benchmarks with two cores, 8192^2 float32, times 0.53, which is what convert, slope,
# burn and absdiff, measured beside them, have here of what they have there. network: as on those
# hosts, times what blocks took on two cores before they were searched less, by what they take now.
# flow-direction, flow-accumulation, fill, basins, hand and watershed: of 16 workers on 30 000^2 on
# a host of 64 cores, 2026-11-27, shared among the phases as the seconds of one worker are. Spanning
# tree and accumulate, which have become faster: of such a host, 2026-11-28, times what slope and
# components took there of what they have here.
PASSES = {
    "convert": (Pass("convert", 94e6, line=110),),
    "slope": (Pass("slope", 22.9e6, line=110),),
    "mst": (Pass("blocks", 36e6, line=85), Pass("patches", 270e6, given=17.1, line=33)),
    "components": (
        Pass("survey", 213e6, known=3.1, rim=4),
        Pass("label", 77.5e6, given=2.7, line=84, stored=0.5),
    ),
    "accumulate": (
        Pass("outlines", 17e6, known=41),
        Pass("drain", 15.6e6, given=11, line=90),
    ),
    "flow-direction": (
        Pass("outlines", 30e6, known=31),
        Pass("drain", 31e6, given=8, line=85),
    ),
    "flow-accumulation": (
        Pass("ways", 71e6, known=8.5),
        Pass("cells", 62e6, given=3.5, line=85),
    ),
    "fill": (
        Pass("ways", 99e6, known=5.4),
        Pass("cells", 60e6, given=2.5, line=85),
    ),
    "basins": (
        Pass("ways", 134e6, known=9.1),
        Pass("cells", 59e6, given=6.2, line=85),
    ),
    "hand": (
        Pass("ways", 23e6, known=7.6),
        Pass("cells", 11.8e6, given=5.4, line=170, outputs=2),
    ),
    "network": (
        Pass("outlines", 33e6, known=45.5),
        Pass("lines", 23e6, given=15.7, cell=2.6),
    ),
    "watershed": (
        Pass("ways", 127e6, known=6.5),
        Pass("cells", 50e6, given=4.6, line=140, outputs=2),
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
    "breach": (
        Pass("pits", 41e6, known=9.1, cell=0.015),
        Pass("breach", 2.2e6, given_cell=0.005, line=110),
    ),
    "burn": (Pass("burn", 130e6, line=110),),
    "calc": (Pass("calc", 72e6, line=110),),
    "rasterize": (Pass("rasterize", 158e6, line=110, told=55),),
    "corridor": (Pass("optimum", 92e6, told=168), Pass("corridor", 50e6, line=110)),
    "index": (Pass("build", 0.55e6, line=42, job=1350),),
    "sssp": (),  # see `forecast_paths`
    "cost-matrix": (),
    "least-cost-network": (),
}
"""By the purpose of a plan."""
WEIGHTS = {"flow": 1.85, "absdiff": 1.4}
"""How many times as long as with "max" blocks of a spanning tree take."""
LAYERS = {"calc": (1, 0.7), "corridor": (2, 0.5)}
"""The fewest layers, and how much longer each further one takes, beside the time of those."""


class DriverPhase(NamedTuple):
    """A phase of the process that starts the run.

    Attributes
    ----------
    name
        In reports, too.
    each
        Seconds for each cell of the raster.
    border
        Whether they are instead for each cell beside a border between blocks.
    first
        Seconds before: until it writes the first line, it loads GDAL and PROJ.
    """

    name: str
    each: float
    border: bool = False
    first: float = 0


# Of lines: to a GeoPackage with --min-length 1000, as measured for 8192^2 and 20 000^2 on
# two cores.
DRIVER = {
    "components": (DriverPhase("join", 0.015e-6, border=True),),
    "accumulate": (DriverPhase("skeleton", 0.37e-6, border=True),),
    "flow-direction": (DriverPhase("skeleton", 0.33e-6, border=True),),
    "network": (
        DriverPhase("skeleton", 0.37e-6, border=True),
        DriverPhase("write", 1 / 55e6, first=0.35),
    ),
    "polygons": (DriverPhase("write", 1 / 15e6),),
    "contours": (DriverPhase("write", 1 / 15e6),),
    "streams": (DriverPhase("links", 1.6e-9),),
    "depressions": (DriverPhase("hierarchy", 0.003e-6),),
    **dict.fromkeys(
        ("flow-accumulation", "fill", "basins", "hand", "watershed"),
        (DriverPhase("join", 0.12e-6, border=True),),
    ),
}
"""By the purpose of a plan; only the levels of a spanning tree are also joined in tasks."""
WRITTEN = {
    "network": "--min-length 1000",
    "polygons": "a polygon for every few cells",
    "contours": "rugged terrain with many levels",
}
"""What "write" is predicted for."""
LEVELS_SECONDS = 0.83e-6
"""Of that process or a task, for each cell beside a border: a spanning tree is joined."""
SURE = 0.05
"""Below so many seconds, a phase of that process in a report gives only an upper bound: one without
work takes up to 0.02."""
TOLD = 0.9
"""The largest share of loading in a report whose rest tells how fast cores are."""
READ = {"breach": 2 / 3}
"""Share of the planned passes that are read: without the one for voids."""
CHECKSUM_RATE = 0.8e9
"""Bytes per second."""
COMMIT = 1e-4
"""Seconds for each block in the end."""

PATHS = "sssp", "least-cost-network"
"""What searches for shortest paths."""


def forecast(
    purpose: str,
    planned: Callable[[int, int, int | None, Machine], Plan],
    raster: tuple[int, int, int | None],
    machine: Machine,
    workers: int,
    case: Case,
) -> tuple[Plan, Settings]:
    """Plan a run by workers of one thread each, and predict it.

    Parameters
    ----------
    planned
        The plan of a raster on a machine: rows, cols, and side of a block or None.
    machine
        One of a worker, without Dask.

    Returns
    -------
    Plan
        Of each process.
    dict
        What `predicted` finds.
    """
    plan = planned(*raster, replace(machine, overhead=OVERHEAD))
    return plan, predicted(purpose, plan, workers, case)


def learned(purpose: str, case: Case, file: str) -> Case:
    """Return the case with what the report of a smaller run tells about this host and terrain.

    Raises
    ------
    InputError
        when it is not the report of such a run on a cluster.
    """
    try:
        told = json.loads(read_small(file))
        cells, cluster = int(_number(told["cells"], 1)), told["settings"]["cluster"]
        each, plan = cluster["each"], told["settings"].get("plan", {})
        # Batches are solved in threads of their tasks, whose processor seconds are not told.
        clock = "processor_seconds" if case.pairs != "all" else "seconds"
        used = _number(sum(_number(one[clock]) for one in each.values()), 1e-9)
        threads = _number(cluster.get("threads", len(each)), 1)
        loading = cluster.get("loading_seconds")
        loading = used if loading is None else _number(loading)
        resumed = _number(told["result"].get("blocks_resumed", 0))
        batches = _number(told["result"].get("batches", 0))
        visits = _number(told["result"].get("block_visits_per_block", case.visits), 1e-9)
        command, most = told["command"], _number(plan.get("bytes_written", 0))
        wrote = sum(_number(one.get("bytes_written", most)) for one in each.values())
        blocks = _blocks(plan)
        inner = 2 * blocks.line_cells if blocks else None
        case = case._replace(
            visits=visits,
            driver=_driver(purpose, told.get("seconds", {}), cells, inner),
            dense=_dense(purpose, cluster, cells, blocks),
        )
    except OSError as error:
        raise InputError(f"--like {file}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
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
    if resumed:
        raise InputError(f"--like {file}: a resumed run; give one that began anew")
    if purpose == "least-cost-network" and (batches > 0) != (case.pairs == "all"):
        raise InputError(
            f"--like {file}: a network of other pairs; give one of --pairs {case.pairs}"
        )
    for name in ("connectivity", "metric"):
        was, own = told["settings"].get(name), getattr(case, name)
        if purpose in (*PATHS, "cost-matrix") and was not in (None, own):
            raise InputError(
                f"--like {file}: a run with {name} {was}; give one with {own}, or --{name} {was}"
            )
    own = sum(_work(purpose, cells, case).values())
    if case.pairs == "all":
        own = batches * batch_seconds(cells, case)
    phases = len(PASSES[purpose])
    if phases and loading <= TOLD * used:
        used -= loading
        case = case._replace(loads=loading / threads / (FIRST + (phases - 1) * LATER))
    else:
        own += FIRST * len(each)
    if purpose not in PATHS and most:
        case = case._replace(stored=min(wrote / most, 1.0))
    return case._replace(slower=used / (crowded(len(each)) * own))


def _number(value: Any, least: float = 0) -> float:
    """Return a number of a report, or refuse what no run reports."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    if not least <= value < 2**63:
        raise ValueError(value)
    return float(value)


def _blocks(plan: Settings) -> BlockGrid | None:
    """Return the blocks of a run, None if its plan is not told."""
    if "block_size" not in plan:
        return None
    rows, cols, block = (int(_number(plan[key], 1)) for key in ("rows", "cols", "block_size"))
    return BlockGrid(rows, cols, block)


def _driver(purpose: str, told: Settings, cells: float, inner: float | None) -> dict[str, float]:
    """Return what the seconds of a report tell of `DRIVER`: by phase, for each cell."""
    found = {}
    for one in DRIVER.get(purpose, ()):
        number = inner if one.border else cells
        if number and one.name in told:
            seconds = _number(told[one.name])
            each = max(seconds, SURE) / number
            found[one.name] = each if seconds >= SURE else min(each, one.each)
    return found


def _dense(purpose: str, cluster: Settings, cells: float, blocks: BlockGrid | None) -> float:
    """Return how many times the usual bytes workers found in each cell."""
    usual = cells * sum(one.cell for one in PASSES[purpose])
    if not usual or blocks is None or "bytes_received" not in cluster:
        return 1.0
    other = ANSWER * _number(cluster.get("tasks", 0))
    other += sum(_beside_cells(one, blocks) for one in PASSES[purpose])
    return max(_number(cluster["bytes_received"]) - other, 0.0) / usual


def _beside_cells(one: Pass, blocks: BlockGrid) -> float:
    """Return the bytes that workers send of blocks and their borders."""
    down, across = blocks.shape
    rims = 2 * (down * blocks.cols + across * blocks.rows)
    known = 2 * blocks.line_cells * one.known
    return (one.line + one.told) * blocks.count + known + one.rim * rims


def _work(purpose: str, cells: int, case: Case) -> dict[str, float]:
    """Return the seconds that one core takes for the tasks of each phase."""
    if purpose in PATHS:
        return work_of_paths(cells, case)
    found = {one.name: cells / one.rate for one in PASSES[purpose]}
    if purpose == "mst":
        found["blocks"] *= WEIGHTS.get(case.weight, 1.0)
    if case.layers and purpose in LAYERS:
        least, each = LAYERS[purpose]
        share = 1 + each * (case.layers - least)
        return {name: seconds * share for name, seconds in found.items()}
    return found


def predicted(purpose: str, plan: Plan, workers: int, case: Case) -> Findings:
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


def _forecast(purpose: str, plan: Plan, workers: int, case: Case) -> tuple[Forecast, float, float]:
    """Predict a run; also the bytes that workers read, and most bytes that they write."""
    if isinstance(plan, MatrixPlan):
        matrix = Forecast(plan, workers, case)
        return matrix, *add_batches(matrix, plan, case)
    cells, blocks = plan.rows * plan.cols, BlockGrid(plan.rows, plan.cols, plan.block_size)
    inner = 2 * blocks.line_cells
    units = ceil_div(plan.rows, plan.unit_rows) * ceil_div(plan.cols, plan.unit_cols)
    found, work = Forecast(plan, workers, case), _work(purpose, cells, case)
    share = 1.0 if case.stored is None else case.stored
    read, written = READ.get(purpose, 1) * plan.bytes_read, share * plan.bytes_written
    patched = cells * (purpose == "mst" and blocks.count > 1)  # written twice, a byte each
    if purpose in PATHS:
        also_read, also_written = add_paths(found, plan, blocks, work, case)
        read, written = read + also_read, written + also_written
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
        usual_job = WRITING_JOB + OUTPUT * (one.outputs - 1) if one.line else JOB
        job = one.job or usual_job
        found.sent += count * job + BLOCK * blocks.count
        found.sent += one.given * inner + case.dense * one.given_cell * cells
        found.received += ANSWER * count + _beside_cells(one, blocks)
        found.received += case.dense * one.cell * cells
    if purpose == "convert" and workers > 1:
        size = plan.bytes_read // plan.passes
        read += size
        found.sent += JOB * found.phase(
            "checksums", ceil_div(size, PART), size / CHECKSUM_RATE, read=size
        )
    for alone in DRIVER.get(purpose, ()):
        told = case.driver.get(alone.name)
        first, each = (alone.first, alone.each) if told is None else (0.0, told)
        found.alone(alone.name, first + each * (inner if alone.border else cells))
    found.alone("commit", COMMIT * blocks.count)
    return found, read, written


def _levels(found: Forecast, blocks: BlockGrid, inner: int) -> None:
    """Add the levels of a spanning tree, the lower ones in tasks."""
    side, each = regions_of_a_task(blocks.count, found.workers), LEVELS_SECONDS
    if side > 1:
        tops = BlockGrid(blocks.rows, blocks.cols, side * blocks.block)
        below, inner = inner - 2 * tops.line_cells, 2 * tops.line_cells
        found.sent += JOB * found.phase("levels", tops.count, each * below)
        found.received += EDGE * below
    found.alone("levels", each * inner)


def described(plan: Plan, found: Findings, case: Case, purpose: str) -> str:
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
        f"workers        {found['workers']:,} of one thread, {counted(found['tasks'], 'task')}",
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
    if purpose in WRITTEN and "write" not in case.driver:
        lines.append(
            f"write          as for {WRITTEN[purpose]}: data decides, --like takes the seconds of "
            "a smaller run"
        )
    if slow:
        lines.append(
            f"limit          the number of tasks ({', '.join(slow)}): more workers do not help, "
            "larger blocks may"
        )
    if full:
        lines.append(
            f"limit          storage ({', '.join(full)}): the seconds are as accurate as --storage"
        )
    return "\n".join(lines)
