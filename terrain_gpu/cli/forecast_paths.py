"""Predictions of shortest paths, networks and cost matrices on a cluster."""

from __future__ import annotations

import math

from ..engine.cluster import LARGE
from ..engine.plan import StreamPlan
from ..grid import TILE, BlockGrid, ceil_div
from ..paths.cost_distance.remote import MOST
from ..paths.cost_distance.visits import SECONDS
from ..paths.cost_matrix.operation import CELL_SECONDS, LANES, MatrixPlan, knights_slower
from .forecast_tasks import ANSWER, BLOCK, VISIT_COST, Case, Forecast

FINALISE_RATE, BACKLINK_RATE, FLATS_RATE = 24e6, 12e6, 8e6
"""Cells per second when shortest paths are written: without and with backlinks, and in a further
pass where these cross flats."""
ALLOCATE_RATE, CROSS_RATE = 18e6, 50e6
"""Cells per second that get the ids of their sources, in two passes, and between which steps to
other areas are looked for."""
VISITS, CONTINUOUS_VISITS = {("friction", 8): 1.4, ("friction", 16): 3.0}, 2.7
BATCH_VISITS, OTHER_VISITS = {("friction", 8): 4.2, ("friction", 16): 5.0}, {8: 12.0, 16: 14.4}
"""How often shortest paths visit a block: friction, by the continuous metric, friction in batches
of sources, and costs of heights; by connectivity."""
VISIT_SECONDS = 0.029e-6, 0.0134e-6
"""Of shortest paths, for each cell once and at every visit of its block."""
KNIGHTS, CONTINUOUS = 1.8, 5.0
"""How many times as long a visit takes with 16 neighbours, and by the continuous metric."""
SETTLED = 0.4
"""Visits of a task for each of its blocks but the first, beside the root of how often paths visit a
block, until nothing is pending in them."""
PENDING, AGAIN = 0.62, 0.73
"""The share of a task's blocks that get a halo, and the power of its visits that is the number of
blocks that return a rim; others of them visit the same block again."""
WAVE = 0.25
"""Blocks that can be visited at a time, beside the square root of all."""

VISIT, HOP, LABEL, ID = 3500, 4, 8, 4
"""Bytes of a task of visits, and for a cell of a rim: number of steps on a flat, where a backlink
leads, and the source."""

BATCH, PLACE, BATCH_ANSWER = 1250, 34, 80
"""Bytes of a task with a batch of sources, for each place, and of what a batch returns."""
FLATS_SECONDS = 5e-7
"""As `CELL_SECONDS`, where costs may be 0: half of it follows paths across flats."""
ROW_SECONDS, LINE_SECONDS = 2e-5, 2.5e-4
"""Of the process that starts the run, for each row of a table and each path that it writes."""
CROSSING = 200
"""Bytes of the links that a block returns."""
LINKS = {"mst": 1, "delaunay": 3}
"""Links of each place: of a spanning tree, and at most of areas that touch in a plane."""


def usual_visits(
    cost: str, connectivity: int, metric: str = "steps", *, batches: bool = False
) -> float:
    """Return how often paths visit a block, where no run has told it."""
    if metric == "continuous":
        return CONTINUOUS_VISITS
    known = BATCH_VISITS if batches else VISITS
    found: float = known.get((cost, max(connectivity, 8)), OTHER_VISITS[max(connectivity, 8)])
    return found


def slower_visits(case: Case) -> float:
    """Return how many times as long a visit takes as with 8 neighbours."""
    if case.metric == "continuous":
        return CONTINUOUS
    return KNIGHTS if case.halo > 1 else 1


def work_of_paths(cells: int, case: Case) -> dict[str, float]:
    """Return the seconds that one core takes for the visits, and to write what they found."""
    once, visit = VISIT_SECONDS
    slower = slower_visits(case)
    rate = BACKLINK_RATE if case.backlink else FINALISE_RATE
    found = {"relax": cells * (once + slower * visit * case.visits), "finalise": cells / rate}
    if case.backlink and case.flats:
        found["flats"] = cells / FLATS_RATE
    if case.allocation:
        found["allocation"] = cells / ALLOCATE_RATE
    if case.pairs:
        found["cross"] = cells / CROSS_RATE
    return found


def visits_of_a_task(found: Forecast, blocks: BlockGrid, case: Case) -> tuple[float, float]:
    """Return the blocks that a worker is given together, and its visits of them.

    It is given up to `MOST` that are pending, one that is new, and `MOST` around them, of those
    that it keeps. It goes on until none of them is pending, or `SECONDS` are over.
    """
    own = blocks.count / found.workers
    given = max(1 / (1 / own + 1 / (2 * MOST + 1)), 1)
    settled = 1 + SETTLED * (given - 1) * math.sqrt(case.visits)
    slower = slower_visits(case)
    one = found.slower * slower * VISIT_SECONDS[1] * blocks.rows * blocks.cols / blocks.count
    in_time = SECONDS / one + 0.5
    return given, max(1 / (1 / settled + 1 / in_time), 1)


def add_paths(
    found: Forecast, plan: StreamPlan, blocks: BlockGrid, work: dict[str, float], case: Case
) -> tuple[float, float]:
    """Add shortest paths; return the bytes that are read and written beside the plan's."""
    cells, count = blocks.rows * blocks.cols, blocks.count
    down, across = blocks.shape
    rims = case.halo * 2 * (down * blocks.cols + across * blocks.rows)  # of all blocks
    away = max(1 - found.workers * plan.buffers / count, 0)  # these leave memory at every visit
    spilled = away * case.visits * cells * case.item
    given, together = visits_of_a_task(found, blocks, case)
    visits = math.ceil(count * case.visits / together)
    last = ceil_div(count, MOST) + found.workers - 1
    ids = 4 * cells * case.allocation
    read, written = plan.bytes_read + spilled, plan.bytes_written - ids
    again = 0.0
    found.phase(
        *("relax", count, work["relax"], spilled, read),
        at_once=WAVE * math.sqrt(count),
        tasks=visits,
        cost=VISIT_COST,
    )
    found.phase("finalise", count, work["finalise"], written, tasks=last)
    halos = PENDING * given * visits + count
    known = together**AGAIN * visits
    if "flats" in work:
        # Flats are visited, and written in the end, from the distances that are there.
        again = 2 * (plan.bytes_read - 2 * cells * case.allocation + case.item * cells)
        found.phase("flats", count, work["flats"], read=again, tasks=count + last)
        halos += (given + 1) * count
        found.sent += VISIT * (count + last) + (PENDING * given + 1) * HOP * rims
        found.received += HOP * rims + ANSWER * (count + last)
    keys = cells * (case.item + 1) / TILE**2
    found.sent += VISIT * (visits + last) + halos * case.item * rims / count
    found.received += ANSWER * (visits + last) + known * (case.item * rims + keys) / count
    found.received += HOP * rims * case.backlink
    if case.allocation:
        half = work["allocation"] / 2
        tasks = found.phase("allocation", count, half, read=cells)
        tasks += found.phase("allocation", count, half, ids, cells)
        found.sent += VISIT * tasks + ID * rims
        found.received += ANSWER * tasks + LABEL * rims
    if case.pairs:
        crossed = (case.item + ID) * cells + plan.bytes_read - 2 * cells
        tasks = found.phase("cross", count, work["cross"], read=crossed)
        found.sent += (BATCH + PLACE * case.points) * tasks + BLOCK * count
        found.received += ANSWER * tasks + CROSSING * count
        found.alone("write", LINKS[case.pairs] * case.points * LINE_SECONDS)
        again += crossed
    return spilled + again, spilled


def batch_seconds(cells: int, case: Case) -> float:
    """Return the seconds of one core for eight sources of a matrix."""
    slower = knights_slower(case.connectivity)
    if case.flats:
        return cells * FLATS_SECONDS * slower
    more = case.visits / usual_visits("friction", case.connectivity, batches=True)
    return cells * CELL_SECONDS * more * slower


def add_batches(found: Forecast, plan: MatrixPlan, case: Case) -> tuple[float, float]:
    """Add the batches of a matrix; return the bytes that workers read and write.

    Every batch goes over the whole raster: an upper bound where targets are near.
    """
    cells, count = plan.rows * plan.cols, plan.batches
    away = max(1 - plan.plan.fields / BlockGrid(plan.rows, plan.cols, plan.block_size).count, 0)
    spilled = away * case.visits * count * cells * 8 * LANES
    read = plan.bytes_read * (1 + away * (case.visits - 1)) + spilled
    written = plan.bytes_written + spilled
    work = count * batch_seconds(cells, case)
    tasks = found.phase("batches", count, work, written, read)
    places = PLACE * (plan.points + (plan.targets or 0))
    found.sent += BATCH * tasks + (places if places > LARGE else places * tasks)
    found.received += ANSWER * tasks + BATCH_ANSWER * count
    found.alone("write", plan.pairs * (LINE_SECONDS if plan.lines else ROW_SECONDS))
    return read, written
