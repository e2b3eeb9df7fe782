"""Cost matrices against Dijkstra from each source: costs, paths, lengths, climbs, bit for bit."""

from __future__ import annotations

import csv
import json
import math
import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import reference
import strategies
from cluster import at_share, die_driving, drawn_share, kill_a_worker
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from test_paths import make_layers, make_store, within_reach

import terrain_gpu
from terrain_gpu import GridSpec, InputError, OutputError, PlanError, StoreError, cost_matrix
from terrain_gpu.engine.cluster import open_client
from terrain_gpu.engine.connection import address_of
from terrain_gpu.errors import ClusterError, VerificationError
from terrain_gpu.grid import cell_centres
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.io.places import Places
from terrain_gpu.paths.cost_matrix import operation as planning
from terrain_gpu.paths.cost_matrix import relax, solve
from terrain_gpu.paths.cost_matrix.folder import StepFile, run_folder
from terrain_gpu.paths.cost_matrix.operation import MatrixProblem
from terrain_gpu.paths.cost_matrix.places import Grouped
from terrain_gpu.paths.relax.trace import path_length


@pytest.fixture(scope="module")
def no_fsync_session():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda fd: None)
        yield


@contextmanager
def in_blocks(side, fields=None, threads=None):
    """Blocks of this side, and so many fields in memory."""
    usual = MatrixProblem.plan_batches

    def plan(self, *how):
        found = usual(self, *how)
        count = threads or found.threads
        kept = found.fields if fields is None else max(fields, count)
        if fields is not None or threads is not None:
            found = found._replace(fields=kept, threads=count, batches=1)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "SIDES", (side,))
        patch.setattr(MatrixProblem, "plan_batches", plan)
        yield


def as_places(found):
    """`Places` of (row, col, cost or None, id); of a cell and id, the cheapest."""
    best = {}
    for row, col, cost, name in found:
        best[row, col, name] = min(best.get((row, col, name), math.inf), cost or 0)
    keys = sorted(best)
    rows, cols, ids = (np.array([key[k] for key in keys], np.int64) for k in range(3))
    return Places(rows, cols, ids.astype(np.uint32), np.array([best[key] for key in keys], float))


@st.composite
def questions(draw, shapes=strategies.shapes(200, 4000), **how):  # noqa: B008 - a strategy
    """A `CostProblem`; its sources and targets (row, col, cost, id); and what is asked for."""
    problem = draw(strategies.cost_problems(strategies.rasters(shape=shapes), **how))
    hypothesis.assume(problem.sources)
    within_reach(problem)
    good = problem.valid if problem.barriers is None else problem.valid & ~problem.barriers
    cells = st.sampled_from(reference.listed(good))
    few = st.integers(1, draw(st.sampled_from([3, 12])))
    costs = st.just(None) if problem.model == "minimax" else st.sampled_from([None, None, 1])
    places = st.lists(st.tuples(cells, costs, few), min_size=1, max_size=12)
    sources = [(*cell, cost, name) for cell, cost, name in draw(places)]
    targets = None
    if draw(st.booleans()):
        # Targets may be walled in.
        targets = draw(st.lists(st.tuples(cells, few), min_size=1, max_size=12))
        targets = [(*cell, None, name) for cell, name in targets]
    hypothesis.assume(targets is not None or len({name for *_, name in sources}) > 1)
    if problem.max_cost is not None and draw(st.booleans()):  # one for each source, or none
        most = {name: draw(st.sampled_from([1, 1.0, 0.5])) for *_, name in sources if name % 3}
        most = {name: share * problem.max_cost for name, share in most.items()}
        problem = replace(problem, max_cost=most)
    return problem, sources, targets, draw(st.sampled_from([None, None, 1, 2, 20]))


def expected(problem, sources, targets, nearest):
    return reference.cost_matrix(
        problem.cells,
        problem.model,
        sources,
        targets and [(r, c, name) for r, c, _, name in targets],
        nearest=nearest,
        max_cost=problem.max_cost,
        **problem.graph,
    )


def listed(found):
    """The rows of a table as tuples, with None where they are empty."""
    return list(zip(*(column.tolist() for column in found.columns().values()), strict=True))


def how_of(problem):
    return {
        "cost": problem.model,
        "connectivity": problem.connectivity,
        "corner_cutting": problem.corner_cutting,
        "reverse": problem.reverse,
        "max_cost": problem.max_cost,
    }


def check(rows, wanted, problem):
    heights = problem.model != "friction"
    assert len(rows) == len(wanted)
    for mine, (*own, climb, _) in zip(rows, wanted, strict=True):
        assert list(mine[:4]) == own
        assert mine[4] == (climb if heights or problem.friction is not None else None)


@given(
    questions(),
    st.sampled_from([64, 128, 512]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 3, None]),
)
def test_tables_and_paths(folders, no_fsync_session, question, side, threads, fields):
    check_tables_and_paths(folders, question, side, threads, fields)


@given(
    questions(models=("friction", "absdiff"), connectivities=(16,)),
    st.sampled_from([64, 128]),
    st.sampled_from([1, 3]),
)
@hypothesis.settings(max_examples=examples(25))
def test_tables_and_paths_of_16_neighbours(folders, no_fsync_session, question, side, fields):
    check_tables_and_paths(folders, question, side, 2, fields, verify=True)


def check_tables_and_paths(folders, question, side, threads, fields, *, verify=False):
    problem, sources, targets, nearest = question
    wanted = expected(*question)
    with folders() as folder, in_blocks(side, fields, threads):
        store = make_store(folder / "s.zarr", problem, 64)
        names = {k: k for k in ("friction", "barriers") if getattr(problem, k) is not None}
        ends = None if targets is None else as_places(targets)
        how = {**how_of(problem), **names, "nearest": nearest, "verify": verify}
        check(listed(cost_matrix(store, as_places(sources), ends, **how)), wanted, problem)
        table, lines = folder / "t.csv", folder / "p.geojson"
        places = as_places(sources), ends
        found = cost_matrix(store, *places, output=table, paths=lines, **how)
        with open(table, newline="", encoding="utf-8") as file:
            header, *rows = csv.reader(file)
        assert header == ["source", "target", "cost", "length", "climb"]
        kind = int if problem.exact and problem.model == "absdiff" else float
        check(
            [
                (int(a), int(b), *(convert(x) if x else None for convert, x in
                 zip((kind, float, float), more, strict=True)))
                for a, b, *more in rows
            ],
            wanted,
            problem,
        )  # fmt: skip
        assert found.rows == len(rows)
        assert found.unreached == sum(not row[2] for row in rows)
        assert not list(folder.glob("*unfinished*"))
        if not problem.grid.crs_wkt:
            features = json.loads(lines.read_text())["features"]
            ways = [w for w in wanted if w[2] is not None]
            assert len(features) == len(ways)
            for feature, (source, target, cost, length, _, way) in zip(features, ways, strict=True):
                own = feature["properties"]
                assert [own[k] for k in ("from", "to", "cost", "length")] == [
                    source, target, cost, length,
                ]  # fmt: skip
                xy = cell_centres(problem.grid, np.array(way)).tolist()
                assert feature["geometry"]["coordinates"] == (xy if len(xy) > 1 else xy * 2)


@given(questions(), st.sampled_from([64, 512]), st.booleans())
def test_arrays(question, side, verify):
    problem, sources, targets, nearest = question
    hypothesis.assume(not problem.grid.crs_wkt)
    with in_blocks(side):
        found = cost_matrix(
            problem.cells,
            as_places(sources),
            None if targets is None else as_places(targets),
            friction=problem.friction,
            barriers=problem.barriers,
            nodata=problem.raster.nodata,
            cell_size=(abs(problem.grid.transform[0]), abs(problem.grid.transform[4])),
            nearest=nearest,
            verify=verify,
            **how_of(problem),
        )
    check(listed(found), expected(*question), problem)
    assert ("verified_steps" in found.report.result) == verify


# -- a raster of several blocks --------------------------------------------------------------------

ROUGH = np.random.default_rng(8).integers(1, 99, (300, 420)).astype(np.int16)
FLAT = np.uint8(np.random.default_rng(9).random((300, 420)) < 0.3)
MANY = [(int(r), int(c)) for r, c in np.random.default_rng(4).integers(0, 300, (19, 2))]


@pytest.fixture(scope="module")
def store(tmp_path_factory, no_fsync_session):
    path = tmp_path_factory.mktemp("matrix") / "s.zarr"
    make_layers(path, 128, elevation=ROUGH, flat=FLAT, friction=ROUGH.astype(np.float32) / 7)
    return path


def single(store, source, **how):
    return terrain_gpu.shortest_paths(store, [source], backlink=True, backend="cpu", **how)


@pytest.mark.parametrize(
    "how",
    [
        {"cost": "friction", "friction": "friction"},
        {"cost": "tobler", "reverse": True},
        {"cost": "absdiff", "layer": "flat"},
        {"cost": "minimax", "connectivity": 4},
        {"cost": "friction", "friction": "friction", "connectivity": 16},
        {"cost": "2 * length + abs(dz)", "connectivity": 16, "reverse": True},
    ],
)
def test_the_entries_are_those_of_single_runs(store, how):
    with in_blocks(128, 4, 2):
        rows = listed(cost_matrix(store, MANY, MANY, **how))
    k = 0
    for number, source in enumerate(MANY):
        found = single(store, source, overwrite=True, **how)
        distance = found.distance()
        for other, target in enumerate(MANY):
            cells = found.path(*target)
            assert rows[k][:4] == (
                number + 1, other + 1, distance[target].item(), path_length(cells, found._lengths),
            )  # fmt: skip
            k += 1


def test_a_batch_stops_when_its_targets_are_final(store):
    """The rows are the same, and most tiles are never visited."""
    near = [(10, 10), (12, 40), (30, 20)]
    how = {"cost": "friction", "friction": "friction"}
    with in_blocks(64):
        all_cells = cost_matrix(store, near, [*near, (299, 419)], **how)
        found = cost_matrix(store, near, near, **how)
        nearest = cost_matrix(store, near, [*near, (299, 419)], nearest=3, **how)
        bounded = cost_matrix(store, near, [*near, (299, 419)], max_cost=200.0, **how)
    rows = [row for row in listed(all_cells) if row[1] < 4]
    assert listed(found) == listed(nearest) == rows
    assert listed(bounded) == [row for row in rows if row[2] <= 200]
    visits = [one.report.result["tile_visits"] for one in (found, nearest, all_cells)]
    assert visits[0] < visits[2] / 2
    assert visits[1] < visits[2] / 2


def test_batches_follow_a_curve_without_jumps():
    rows, cols = np.divmod(np.arange(256), 16)
    places = Grouped(Places(rows, cols, np.arange(1, 257).astype(np.uint32), np.zeros(256)))
    order = places.by_vicinity()
    steps = np.abs(np.diff(places.rows[order])) + np.abs(np.diff(places.cols[order]))
    assert (steps == 1).all()


def test_formulas_and_steep_steps(store):
    how = {"cost": "length * exp(abs(slope) / 9)", "max_slope": 60.0}
    rows = listed(cost_matrix(store, MANY[:5], **how))
    k = 0
    for number, source in enumerate(MANY[:5]):
        found = single(store, source, overwrite=True, **how)
        distance = found.distance()
        for target in MANY[:number] + MANY[number + 1 : 5]:
            assert rows[k][2] == distance[target].item()
            assert rows[k][3] == path_length(found.path(*target), found._lengths)
            k += 1


def test_places_of_several_cells(store):
    """Lines and zones: their best cells count, and places may share cells."""
    a = Places(
        np.array([5, 5, 6, 6, 200]), np.array([5, 6, 5, 6, 200]),
        np.array([7, 7, 3, 7, 3], np.uint32), np.zeros(5),
    )  # fmt: skip
    b = Places(
        np.array([5, 5, 90]), np.array([6, 6, 90]), np.array([1, 2, 9], np.uint32), np.zeros(3)
    )
    rows = listed(cost_matrix(store, a, b, cost="surface"))
    assert [row[:2] for row in rows] == [(3, 1), (3, 2), (3, 9), (7, 1), (7, 2), (7, 9)]
    assert rows[0][2:] == rows[1][2:]
    assert rows[3][2:] == (0.0, 0.0, 0.0)
    wanted = reference.cost_matrix(
        ROUGH, "surface", [(6, 5, None, 3), (200, 200, None, 3)], [(90, 90, 9)],
        lengths=step_lengths(GridSpec(*ROUGH.shape)),
    )  # fmt: skip
    assert rows[2] == wanted[0][:5]


def test_integers_of_64_bits_are_guarded(tmp_path):
    far = np.array([[-(2**60), 2**60, -(2**60), 2**60, -(2**60)]], np.int64)
    near = listed(cost_matrix(far[:, :2], [(0, 0)], [(0, 1)]))
    assert near == [(1, 1, 2**61, 1.0, 2.0**61)]
    with pytest.raises(InputError, match="exceed 64 bits"):
        cost_matrix(far, [(0, 0)], [(0, 4)])


def test_parquet_has_nulls_and_integers(store, tmp_path):
    import pyarrow.parquet

    walls = np.zeros(ROUGH.shape, np.uint8)
    walls[:, 100] = 1
    make_layers(store, 128, walls=walls)
    target = tmp_path / "t.parquet"
    places = [(3, 3), (9, 9), (5, 300)]
    found = cost_matrix(store, places, barriers="walls", output=target)
    table = pyarrow.parquet.read_table(target)
    assert table.schema.field("cost").type == "int64"
    assert table.column("cost").null_count == table.column("climb").null_count == 4
    assert table.column("source").to_pylist() == [1, 1, 2, 2, 3, 3]
    assert found.unreached == 4
    with pytest.raises(InputError, match="written to a file"):
        found.columns()
    rows = listed(cost_matrix(store, places, barriers="walls"))
    assert rows == list(zip(*table.to_pydict().values(), strict=True))


# -- proofs, and clusters -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        {"cost": "friction", "friction": "friction"},
        {"cost": "absdiff", "layer": "flat", "nearest": 2},
        {"cost": "tobler", "max_cost": 4e3},
        {"cost": "friction", "friction": "friction", "connectivity": 16},
    ],
)
def test_costs_are_proven(store, how):
    """From fields that leave memory, and over blocks that were never visited."""
    with in_blocks(64, 3, 2):
        found = cost_matrix(store, MANY[:8], MANY[:5], verify=True, **how)
    assert found.report.result["verified_steps"] > 1000
    assert found.report.seconds["verify"] > 0
    assert listed(found) == listed(cost_matrix(store, MANY[:8], MANY[:5], **how))


@pytest.mark.parametrize("wrong", ["less", "more", "target"])
def test_wrong_costs_are_found(store, tmp_path, monkeypatch, wrong):
    """One cell of one lane, in a block that lies between."""
    usual, table = relax.BatchRelaxation.around, tmp_path / "t.csv"

    def around(self, lane, at):
        found = usual(self, lane, at)
        if wrong == "target":
            self.reached.distances[0, lane] += 1 if lane == 3 else 0
        elif (lane, at) == (3, (1, 1)):
            found[20, 20] *= 0.999 if wrong == "less" else 1.001
        return found

    monkeypatch.setattr(relax.BatchRelaxation, "around", around)
    how = {"cost": "friction", "friction": "friction"}
    with in_blocks(128), pytest.raises(VerificationError) as error:
        cost_matrix(store, MANY, [(299, 419), (0, 0)], output=table, verify=True, threads=1, **how)
    assert (error.value.check == "totals") == (wrong == "target")
    assert not table.exists()


@pytest.mark.parametrize("connectivity", [8, 16])
def test_workers_find_the_same(store, tmp_path, cluster, connectivity):
    files = [tmp_path / name for name in ("a.csv", "b.csv", "a.geojson", "b.geojson")]
    how = {"cost": "friction", "friction": "friction", "connectivity": connectivity}
    found = cost_matrix(
        store, MANY, output=files[0], paths=files[2], client=cluster, verify=True, **how
    )
    assert found.report.settings["cluster"]["tasks"] == 3
    assert found.report.result["verified_steps"] > 0
    assert found.report.result["tile_visits"] > 0
    cost_matrix(store, MANY, output=files[1], paths=files[3], **how)
    text = [file.read_bytes() for file in files]
    assert text[0] == text[1]
    assert text[2] == text[3]
    assert len(list(tmp_path.iterdir())) == 4


def dying(problem, folder, item):
    """One process dies when its batch is done."""
    found = solve.solve_batch(problem, folder, item)
    mark = folder.parent / "dead"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return found


def test_a_worker_that_dies(store, tmp_path, cluster, monkeypatch):
    """Another one solves its batch again, and what is left over from it does no harm."""
    how = {"cost": "friction", "friction": "friction"}
    monkeypatch.setattr(solve, "solve_batch", dying)
    files = [tmp_path / name for name in ("a.csv", "a.geojson")]
    found = cost_matrix(store, MANY, output=files[0], paths=files[1], client=cluster, **how)
    assert (tmp_path / "dead").exists()
    assert found.report.settings["cluster"]["retries"] > 0
    assert listed(cost_matrix(store, MANY, **how)) == [
        (int(a), int(b), *map(float, rest))
        for a, b, *rest in list(csv.reader(files[0].open(encoding="utf-8")))[1:]
    ]
    assert not list(tmp_path.glob("*.unfinished"))


def drive(files, address, share):
    """Compute a matrix on a cluster, and die at a share of it."""
    store, table, paths = files
    os.fsync = lambda fd: None
    dead = at_share(share, lambda: os.kill(os.getpid(), signal.SIGKILL))
    with open_client(None, address) as client:
        cost_matrix(store, MANY, output=table, paths=paths, client=client, progress=dead)


@pytest.fixture(scope="module")
def undisturbed(store, tmp_path_factory):
    """The bytes of the table and of the paths, made in this process alone."""
    files = [tmp_path_factory.mktemp("alone") / name for name in ("t.csv", "p.geojson")]
    cost_matrix(store, MANY, output=files[0], paths=files[1])
    return [file.read_bytes() for file in files]


@pytest.mark.parametrize("who", ["worker", "driver", "scheduler"])
def test_who_is_killed(store, undisturbed, tmp_path, cluster, request, who):
    """The run goes on, or another one with `resume`, to the same bytes."""
    table, paths = tmp_path / "t.csv", tmp_path / "p.geojson"
    how = {"output": table, "paths": paths, "client": cluster, "resume": True}
    if who == "driver":
        die_driving((store, table, paths), address_of(cluster), drawn_share(), drive)
    elif who == "worker":
        how["progress"] = at_share(drawn_share(), lambda: kill_a_worker(cluster))
    else:
        scheduler = request.getfixturevalue("scheduler_to_kill")
        lost = at_share(drawn_share(0.4), scheduler.kill)
        with (
            open_client(None, scheduler.address) as client,
            pytest.raises(ClusterError, match=r"the scheduler is gone.*; --resume continues"),
        ):
            cost_matrix(store, MANY, **how | {"client": client, "progress": lost})
    cost_matrix(store, MANY, **how)
    assert [table.read_bytes(), paths.read_bytes()] == undisturbed
    assert not list(tmp_path.glob("*.unfinished"))


def test_what_a_cluster_does_not_compute(store, tmp_path, cluster):
    table = tmp_path / "t.csv"
    for data, how, message in (
        (store, {"output": table, "backend": "cuda"}, "on the CPU; leave out backend cuda"),
        (store, {}, "give output"),
        (ROUGH, {"output": table}, "a cluster computes only from stores"),
    ):
        with pytest.raises(InputError, match=message):
            cost_matrix(data, MANY, client=cluster, **how)
    with pytest.raises(ClusterError, match="does not see"):
        solve.solve_batch(None, tmp_path / "none", None)


# -- runs that stop, and limits --------------------------------------------------------------------


class Stop(Exception):
    pass


@pytest.mark.parametrize(("threads", "after", "ways"), [(1, 1, 8), (1, 2, 16), (2, 2, 8)])
def test_stopped_and_resumed(store, tmp_path, after, threads, ways):
    how = {"cost": "friction", "friction": "friction", "threads": threads, "connectivity": ways}
    whole, table = tmp_path / "whole.csv", tmp_path / "t.csv"
    paths = tmp_path / "whole.geojson", tmp_path / "p.geojson"
    cost_matrix(store, MANY, output=whole, paths=paths[0], **how)
    done = 0

    def stop(cells, total):
        nonlocal done
        done += cells
        if done >= after * ROUGH.size:
            raise Stop

    with pytest.raises(Stop):
        cost_matrix(store, MANY, output=table, paths=paths[1], progress=stop, **how)
    assert not table.exists()
    with pytest.raises(StoreError, match="--resume continues it"):
        cost_matrix(store, MANY, output=table, paths=paths[1], **how)
    with pytest.raises(StoreError, match="other settings or inputs"):
        cost_matrix(store, MANY[1:], output=table, paths=paths[1], resume=True, **how)
    found = cost_matrix(store, MANY, output=table, paths=paths[1], resume=True, **how)
    assert found.report.result["batches_resumed"] >= after // threads
    assert table.read_bytes() == whole.read_bytes()
    assert paths[1].read_bytes() == paths[0].read_bytes()
    assert not list(tmp_path.glob("*unfinished*"))
    with pytest.raises(InputError, match="exists"):
        cost_matrix(store, MANY, output=table, **how)


def test_a_full_disk_keeps_what_is_done(store, tmp_path, monkeypatch):
    table = tmp_path / "t.csv"
    with monkeypatch.context() as patch:

        def full(*_, **__):
            raise OSError(28, "No space left on device")

        patch.setattr(solve.np, "savez", full)
        with pytest.raises(OutputError, match="no space left"):
            cost_matrix(store, MANY, output=table)
    assert not list(tmp_path.iterdir())  # no batch was finished
    cost_matrix(store, MANY, output=table, resume=True)
    with in_blocks(64, 1, 1), monkeypatch.context() as patch:
        patch.setattr(relax.BatchRelaxation, "_save", full)
        with pytest.raises(OSError, match="No space"):
            cost_matrix(store, MANY, output=tmp_path / "u.csv")


def test_steps_of_paths_on_a_full_disk():
    """Closing the file must not fail again, without its name."""
    with (
        pytest.raises(OutputError, match=r"^/dev/full: no space left on the disk; free some"),
        StepFile(Path("/dev/full")) as steps,
    ):
        steps.add(np.array([0]), np.array([3]), np.array([1, 2, 3], np.uint8))


def test_a_folder_of_that_name_is_not_touched(store, tmp_path):
    mine = tmp_path / "t.csv.unfinished" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(OutputError, match="not the folder of a run"):
        cost_matrix(store, MANY[:2], output=tmp_path / "t.csv", overwrite=True)
    assert mine.read_text() == "mine"


def test_another_run_works_there(store, tmp_path):
    table = tmp_path / "t.csv"
    with (
        run_folder(table, {}, resume=False, overwrite=False),
        pytest.raises(OutputError, match="another run is using it"),
    ):
        cost_matrix(store, MANY[:2], output=table)


def test_fields_are_spilled_and_the_result_is_the_same(store):
    with in_blocks(64, 2, 2):
        found = cost_matrix(store, MANY[:8])
    assert found.report.result["spilled_bytes"] > 0
    with in_blocks(512):
        assert listed(found) == listed(cost_matrix(store, MANY[:8]))


@pytest.mark.parametrize("threads", [1, 2])
def test_hops_are_spilled_and_the_paths_are_the_same(store, threads):
    """Loading the hops of a block takes its distances, which following paths needs as well."""
    how = {"cost": "absdiff", "layer": "flat"}
    with in_blocks(64, threads, threads):
        found = cost_matrix(store, MANY[:8], **how)
    assert listed(found) == listed(cost_matrix(store, MANY[:8], **how))


def test_limits_that_are_too_small(store):
    with pytest.raises(PlanError, match="give at least") as refused:
        cost_matrix(store, MANY, memory_limit="200MB")
    least = int(str(refused.value).split("at least ")[1].split(" MB")[0])
    assert listed(cost_matrix(store, MANY, memory_limit=f"{least}MB")) == listed(
        cost_matrix(store, MANY)
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sources": []}, "no sources"),
        ({"sources": [(0, 0)], "targets": []}, "no targets"),
        ({"sources": [(0, 0)]}, "one source and no target"),
        ({"sources": [(0, 999)]}, "outside the raster"),
        ({"sources": [(0, 0)], "nearest": 0}, "nearest 0"),
        ({"sources": [(0, 0)], "max_cost": -1}, "max_cost -1"),
        ({"sources": [(0, 0), (1, 1)], "max_cost": {7: 1.0}}, "no source has the id 7"),
        (
            {"sources": [(0, 0)], "output": "t.xlsx"},
            "the name of the table must end in .csv or .parquet",
        ),
        ({"sources": [(0, 0)], "output": "t.csv", "paths": "p.shp"}, r"\.gpkg"),
        ({"sources": [(0, 0)], "resume": True}, "resume needs output"),
        ({"sources": [(0, 0)], "cost": "friction"}, "needs frictions"),
        ({"sources": [(0, 0, -1), (1, 1)]}, "negative"),
        ({"sources": [(0, 0, 0.5), (1, 1)]}, "must be an integer"),
        ({"sources": [(0, 0)], "nodata": 3}, "nodata apply only to arrays"),
    ],
)
def test_wrong_inputs(store, tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        cost_matrix(store, **given)
    assert not list(tmp_path.iterdir())


def test_places_on_nodata_and_barriers():
    z = np.array([[1, 2, -1], [1, 2, 3]], np.int16)
    with pytest.raises(InputError, match="row 0, column 2"):
        cost_matrix(z, [(0, 0)], [(0, 2)], nodata=-1)
    walls = np.array([[0, 0, 1], [0, 0, 0]], np.uint8)
    for ends in ([(0, 2), (0, 0)], None), ([(0, 0)], [(0, 2)]):
        with pytest.raises(
            InputError, match=r"barriers: 1 of . given cells are barriers: row 0, col"
        ):
            cost_matrix(z, *ends, barriers=walls)
    friction = np.array([[1, 1, np.nan], [1, 1, 1]])
    for ends in ([(0, 2), (0, 0)], None), ([(0, 0)], [(0, 2)]):
        with pytest.raises(
            InputError, match=r"friction: 1 of . given cells are nodata: row 0, colu"
        ):
            cost_matrix(z, *ends, cost="surface", friction=friction)
    with pytest.raises(InputError, match="is negative"):
        cost_matrix(-z, [(0, 0)], [(1, 2)], cost="friction", friction=-z)
