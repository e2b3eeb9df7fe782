"""The proof of shortest paths: right results pass, every mutation is found."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from functools import partial

import hypothesis
import numpy as np
import pytest
import strategies
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_paths import as_sources, solve, within_reach

import terrain_gpu
from terrain_gpu import shortest_paths
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.cuda.backend import find_gpu
from terrain_gpu.engine.machine import Machine
from terrain_gpu.errors import PlanError, StoreError, VerificationError
from terrain_gpu.grid import BlockGrid, GridSpec
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.io.places import from_rowcol
from terrain_gpu.paths import proof as verify
from terrain_gpu.paths.cost.models import CostModel, is_directed
from terrain_gpu.paths.cost.steps import unreached
from terrain_gpu.paths.cost.terrain import Raster, Terrain
from terrain_gpu.paths.proof import gpu as verify_gpu
from terrain_gpu.store import Layer, TileStore, create_layer

large = strategies.rasters(shape=strategies.shapes(200, 6000))
blocks = st.sampled_from([64, 128, 1024])


@pytest.fixture(scope="module", autouse=True)
def proofs(backend):
    """Run this module on both backends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Case, "gpu", find_gpu(backend, 0, None, None, 64))
        yield


class Case:
    """A problem, its result as arrays that tests may change, and their proof."""

    gpu = None
    """Where its proofs are made as well, and must say the same as on the CPU."""

    def __init__(
        self,
        cells,
        sources,
        found,
        *,
        cost="absdiff",
        friction=None,
        barriers=None,
        parameters=None,
        connectivity=8,
        corner_cutting=True,
        reverse=False,
        source_edge=False,
        max_cost=None,
        nodata=None,
        cell_size=(1.0, 1.0),
        block_size=64,
    ):
        self.distance, self.codes, self.ids = (
            a.copy() for a in (found.distance(), found.backlink(), found.allocation())
        )
        self.void = unreached(self.distance.dtype)
        self.reached = (
            ~np.isnan(self.distance)
            if self.distance.dtype.kind == "f"
            else self.distance != self.void
        )
        model = CostModel(cost, friction is not None, parameters or {})
        grid = GridSpec(*cells.shape, (cell_size[0], 0.0, 0.0, 0.0, -cell_size[1], 0.0))
        rasters = (
            None if a is None else Raster(a.view(np.uint8) if a.dtype == bool else a, "", n)
            for a, n in ((cells, nodata), (friction, None), (barriers, None))
        )
        self.ground = Terrain(
            BlockGrid(*cells.shape, block_size),
            model,
            *rasters,
            step_lengths(grid),
            sources,
            self.distance.dtype,
            edge=source_edge,
        )
        self.kernel = model.kernel
        self.options = connectivity == 8, corner_cutting, reverse
        self.farthest = verify.upper_limit(max_cost, self.distance.dtype)

    def proof(self, **how):
        right = self.verdict(None, **how)
        for most in () if self.gpu is None else (2**31 - 2, (self.ground.blocks.block + 2) ** 2):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(verify_gpu, "MOST_CELLS", most)  # one region, or one for each block
                found = self.verdict(self.gpu, **how)
            if isinstance(right, Exception):
                assert (str(found), vars(found)) == (str(right), vars(right))
            else:
                assert found == right
        if isinstance(right, Exception):
            raise right
        return right

    def verdict(self, gpu, *, links=True, ids=True, threads=1):
        """The findings, or the error."""

        prove = partial(
            verify.verify_paths,
            self.ground,
            self.kernel,
            self.options,
            self.distance.dtype,
            verify.ring_of(self.distance, self.void),
            verify.ring_of(self.codes, 255) if links else None,
            verify.ring_of(self.ids, 0) if links and ids else None,
            farthest=self.farthest,
            threads=threads,
            gpu=gpu,
        )
        try:
            found = prove()
        except VerificationError as error:
            return error
        backend = found.pop("backend")
        # Flats are left to the CPU where steps are directed and no backlinks tell.
        left = is_directed(self.kernel) and not links
        assert backend == "cpu" if gpu is None else backend == "cuda" or left
        return found

    def wrong(self, **how):
        with pytest.raises(VerificationError) as caught:
            self.proof(**how)
        error = caught.value
        if error.row is not None:
            assert f"cell (row {error.row}, column {error.col}) " in str(error)
        return error

    def wrong_distance(self):
        """The error; it is found with backlinks and without."""
        self.wrong()
        return self.wrong(links=False)


def case_of(problem, block):
    hypothesis.assume(problem.sources)
    within_reach(problem)
    size = abs(problem.grid.transform[0]), abs(problem.grid.transform[4])
    how = {"nodata": problem.raster.nodata, "block_size": block, "cell_size": size}
    found = solve(problem, block_size=block, threads=1, backend="cpu")
    case = Case(
        problem.cells,
        as_sources(problem),
        found,
        cost=problem.model,
        friction=problem.friction,
        barriers=problem.barriers,
        connectivity=problem.connectivity,
        corner_cutting=problem.corner_cutting,
        reverse=problem.reverse,
        max_cost=problem.max_cost,
        **how,
    )
    return case, found


def case_for(cells, sources, **how):
    how = {"block_size": 64, **how}
    grid = GridSpec(*cells.shape)
    sources = from_rowcol(grid, sources)
    how_found = {"backlink": True, "allocation": True, "threads": 1, "backend": "cpu"}
    found = shortest_paths(cells, sources, **how_found, **how)
    return Case(cells, sources, found, **how)


problems = strategies.cost_problems(large, geographic=False)


# -- right results -------------------------------------------------------------------------


@given(problems, blocks, st.sampled_from([1, 3]))
def test_right_results_pass(problem, block, threads):
    case, found = case_of(problem, block)
    whole = case.proof(threads=threads)
    assert whole["reached"] == found.reached
    assert case.proof(links=False, threads=threads) == whole
    assert case.proof(ids=False) == whole


@pytest.mark.parametrize("connectivity", [8, 4])
@pytest.mark.parametrize("cost", ["absdiff", "minimax", "surface", "tobler"])
def test_every_step_is_examined(cost, connectivity):
    cells = np.random.default_rng(0).integers(0, 4, (70, 130)).astype(np.int16)
    case = case_for(cells, [(0, 0)], cost=cost, connectivity=connectivity)
    across, down, diagonal = 70 * 129, 69 * 130, 2 * 69 * 129
    steps = 2 * (across + down + diagonal * (connectivity == 8))
    assert case.proof() == {"checked_steps": steps, "reached": cells.size}


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"source_edge": True, "cost": "minimax"},
        {"source_edge": True},
        {"max_cost": 9},
        {"max_cost": 9.5, "cost": "surface"},
        {"cost": "langmuir", "parameters": {"a": 0.0, "c": 1.0}, "reverse": True},
    ],
    ids=str,
)
def test_the_pipeline_proves_itself(how):
    cells = np.random.default_rng(1).integers(0, 4, (150, 130)).astype(np.int16)
    for more in ({}, {"backlink": True}, {"allocation": True}):
        found = shortest_paths(cells, [(70, 70, 2)], verify=True, block_size=64, **how, **more)
        assert found.report.result["verified_steps"] > 8 * 0.9 * cells.size
        # The CPU follows flats where steps are directed.
        left = how.get("cost") == "langmuir" and not more
        on_gpu = Case.gpu is not None and not left
        assert found.report.result["verified_on"] == ("cuda" if on_gpu else "cpu")
        assert "verify" in found.report.seconds


def test_the_pipeline_proves_what_ends_at_targets():
    cells = np.random.default_rng(1).integers(0, 9, (150, 130)).astype(np.int16)
    targets = from_rowcol(GridSpec(150, 130), [(80, 90), (20, 10)])
    for cost in ("absdiff", "surface"):
        found = shortest_paths(
            cells, [(70, 70)], cost=cost, targets=targets, stop_at_targets=True, verify=True
        )
        assert 0 < found.reached < cells.size


# -- wrong distances -----------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(problems, blocks, st.data())
def test_mutated_distances(problem, block, data):
    case, _ = case_of(problem, block)
    cells = np.argwhere(case.reached)
    hypothesis.assume(len(cells))
    r, c = cells[data.draw(st.integers(0, len(cells) - 1))]
    right = case.distance[r, c]
    if case.distance.dtype.kind == "f":
        wrong = [np.nextafter(right, -np.inf), np.nextafter(right, np.inf), right + 1, np.inf]
    else:
        wrong = [right + 1, right // 2, 2**31 + 5, right - 1] if right else [1, 2**31 + 5]
    for value in [*wrong, case.void]:
        case.distance[r, c] = value
        if case.distance[r, c] != right:
            case.wrong_distance()
    case.distance[r, c] = right
    cells = np.argwhere(~case.reached)
    if len(cells):
        r, c = cells[data.draw(st.integers(0, len(cells) - 1))]
        for value in (0, 1, data.draw(st.sampled_from(case.distance[case.reached].tolist()))):
            case.distance[r, c] = value
            case.wrong_distance()


def flat_of(cells, row, col, diagonal):
    """The cells of one height around a cell."""
    found, todo = np.zeros(cells.shape, bool), [(row, col)]
    found[row, col] = True
    while todo:
        r, c = todo.pop()
        for y in range(max(r - 1, 0), min(r + 2, len(cells))):
            for x in range(max(c - 1, 0), min(c + 2, cells.shape[1])):
                beside = diagonal or y == r or x == c
                if beside and not found[y, x] and cells[y, x] == cells[r, c]:
                    found[y, x] = True
                    todo.append((y, x))
    return found


@settings(max_examples=examples(40))
@given(
    strategies.shapes(200, 12000),
    st.sampled_from(["patches", "lines", "noise"]),
    st.sampled_from([8, 4]),
    blocks,
    st.sampled_from([np.int16, np.float64]),
    st.integers(0, 2**32 - 1),
)
def test_whole_flats_lowered_and_lifted(shape, kind, connectivity, block, dtype, seed):
    rng = np.random.default_rng(seed)
    if kind == "noise":
        cells = rng.integers(0, 2, shape)
    else:
        side = (40, 40) if kind == "patches" else (1, 70)
        coarse = rng.integers(0, 6, (shape[0] // side[0] + 1, shape[1] // side[1] + 1))
        cells = np.kron(coarse, np.ones(side, int))[: shape[0], : shape[1]]
    cells = (cells * 4).astype(dtype)
    source = int(rng.integers(shape[0])), int(rng.integers(shape[1])), 10
    case = case_for(cells, [source], connectivity=connectivity, block_size=block)
    case.proof(links=False)
    right = case.distance.copy()
    for _ in range(3):
        row, col = int(rng.integers(shape[0])), int(rng.integers(shape[1]))
        flat = flat_of(cells, row, col, connectivity == 8)
        for change in (-1, 1):
            case.distance[flat] = (right[flat].astype(np.int64) + change).astype(right.dtype)
            case.wrong_distance()
            case.distance[...] = right
        # So that only the cycle betrays it.
        lower = right >= right[row, col]
        case.distance[lower] -= 1
        case.wrong_distance()
        case.distance[...] = right


@pytest.mark.parametrize("block", [64, 256])
@pytest.mark.parametrize("where", ["inside", "across", "whole"])
def test_only_the_cycle_betrays_a_flat(block, where):
    cells = np.full((150, 140), 9, np.int16)
    window = {"inside": np.s_[10:20, 10:20], "across": np.s_[40:90, 50:140], "whole": np.s_[:, :]}
    cells[window[where]] = 2
    case = case_for(cells, [(0, 0, 20)], block_size=block)
    case.proof(links=False)
    case.distance[window[where]] -= 1
    if where != "whole":
        # The rest is a flat at distance 20; this one is a step of 7 away.
        assert case.wrong(links=False).check in ("acyclic", "tight")
        return
    error = case.wrong(links=False)
    assert (error.check, "form a cycle" in str(error)) == ("acyclic", True)
    assert error.row is not None
    assert case.wrong().check in ("tight", "backlink")  # the source is not a root


@pytest.mark.parametrize("block", [64, 256])
def test_steps_that_cost_nothing_one_way(block):
    """A plateau, free to leave but not to climb, given the distance of the ground."""
    cells = np.zeros((150, 140))
    cells[40:90, 50:100] = 0.1
    how = {"cost": "langmuir", "parameters": {"a": 0.0, "c": 1.0}, "block_size": block}
    case = case_for(cells, [(149, 0)], **how)
    assert (case.distance > 0).sum() == 2500
    case.proof(links=False)
    case.distance[40:90, 50:100] = 0
    error = case.wrong(links=False)
    assert error.check == "acyclic"
    assert 40 <= error.row < 90
    assert 50 <= error.col < 100
    case.wrong()


def test_a_way_on_a_flat_through_many_blocks():
    """Spread from block to block, where costs are directed."""
    cells = np.zeros((200, 200))
    cells[1::2] = -9999
    cells[1::4, 199] = cells[3::4, 0] = 0
    how = {"parameters": {"a": 0.0}, "nodata": -9999}
    for cost in ("langmuir", "absdiff"):
        case = case_for(
            cells, [(0, 0)], cost=cost, **(how if cost == "langmuir" else {"nodata": -9999})
        )
        assert case.proof(links=False)["reached"] == (cells == 0).sum()
        case.distance[case.reached] = 1
        case.wrong(links=False)


# -- wrong backlinks and allocation --------------------------------------------------------


def leads_home(codes, row, col):
    steps = {1: (0, 1), 2: (1, 1), 4: (1, 0), 8: (1, -1)}
    steps |= {16 * k: (-y, -x) for k, (y, x) in steps.items()}
    seen = set()
    while codes[row, col] != 0:
        if (row, col) in seen:
            return False
        seen.add((row, col))
        y, x = steps[int(codes[row, col])]
        row, col = row + y, col + x
    return True


@settings(max_examples=examples(60))
@given(problems, blocks, st.data())
def test_mutated_backlinks_and_allocation(problem, block, data):
    case, _ = case_of(problem, block)
    r, c = (data.draw(st.integers(0, n - 1)) for n in case.codes.shape)
    right = case.codes[r, c]
    for code in (0, 1, 2, 3, 4, 8, 16, 32, 64, 128, 129, 255):
        case.codes[r, c] = code
        if code == right:
            continue
        try:
            case.proof(ids=False)
        except VerificationError:
            continue
        # Another forest on a flat.
        assert right not in (0, 255)
        assert leads_home(case.codes, r, c)
    case.codes[r, c] = right
    for name in {0, 1, 77, case.ids.max()} - {case.ids[r, c]}:
        before, case.ids[r, c] = case.ids[r, c], name
        error = case.wrong()
        assert (error.check, error.row, error.col) == ("allocation", r, c)
        case.ids[r, c] = before
    case.proof()


@pytest.mark.parametrize("cost", ["absdiff", "langmuir"])
def test_cycles_across_blocks(cost):
    how = {"parameters": {"a": 0.0, "c": 1.0}} if cost == "langmuir" else {}
    case = case_for(np.zeros((70, 140)), [(0, 0)], cost=cost, **how)
    right = case.codes.copy()
    for pair in (63, 64), (63, 62), (127, 128):
        case.codes[69, min(pair)], case.codes[69, max(pair)] = 1, 16
        error = case.wrong()
        assert error.check == "acyclic"
        assert "its backlinks lead to a cycle and not to a source" in str(error)
        np.copyto(case.codes, right)
    case.proof()


def test_wrong_ids_of_sources_and_of_unreached_cells():
    cells = np.zeros((70, 140))
    cells[5, 5] = -1
    case = case_for(cells, [(0, 0), (69, 139)], nodata=-1)
    case.ids[69, 139] = 1
    error = case.wrong()
    assert (error.check, error.row, error.col) == ("allocation", 69, 139)
    assert "is allocated to 1, but belongs to source 2" in str(error)
    case.ids[69, 139], case.ids[5, 5] = 2, 7
    error = case.wrong()
    assert (error.check, error.row, error.col) == ("allocation", 5, 5)
    assert "is allocated to 7, but is unreached" in str(error)
    case.ids[5, 5] = 0
    case.proof()


@pytest.mark.parametrize("source_edge", [False, True])
def test_ids_that_only_the_sources_betray(source_edge):
    """All cells of a source have another id: no step tells, inside of a block or across."""
    cells = np.random.default_rng(5).integers(0, 9, (70, 140)).astype(np.int16)
    case = case_for(cells, [(35, 70)], source_edge=source_edge)
    assert len(np.unique(case.ids)) == 1 + source_edge
    for name in np.unique(case.ids):
        where = case.ids == name
        case.ids[where] = 77
        error = case.wrong()
        assert error.check == "allocation"
        assert case.codes[error.row, error.col] == 0
        assert f"is allocated to 77, but belongs to source {name}" in str(error)
        case.ids[where] = name
    case.proof()


def test_messages():
    cells = np.array([[0, 5, 9]], np.int16)
    case = case_for(cells, [(0, 0)])
    case.distance[0, 2] = 10
    assert str(case.wrong()) == (
        "not least: cell (row 0, column 2) has distance 10, but the step of cost 4 from (row 0, "
        "column 1) at distance 5 gives 9"
    )
    case.distance[0, 2] = 8
    assert "(row 0, column 2) has distance 8, but is not a source" in str(case.wrong())
    case.distance[0, 2] = 9
    case.codes[0, 2] = 1
    assert "backlink 1 does not lead to a predecessor (these lie W)" in str(case.wrong())


def test_a_limit_that_is_too_small():
    with pytest.raises(PlanError, match="give at least"):
        verify.threads_within(BlockGrid(5000, 5000, 1024), 8, Machine.of(10**6))
    assert verify.threads_within(BlockGrid(5000, 5000, 1024), 8, Machine.of(2**40, 3)) == 3


# -- stores --------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path, monkeypatch, no_fsync):
    monkeypatch.chdir(tmp_path)
    cells = np.random.default_rng(2).integers(0, 4, (150, 130)).astype(np.int16)
    cells[:20, :30] = -9999
    write("elevation", cells, -9999)
    write("land", np.random.default_rng(3).uniform(0.5, 2, cells.shape), None)
    return cells


def write(name, cells, nodata):
    grid = GridSpec(*cells.shape)
    with create_layer("s.zarr", name, grid, cells.dtype, nodata=nodata, block_size=64) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, cells[r0:r1, c0:c1])
        writer.commit()


def rewrite(name, change):
    """Change cells without the records showing it."""
    layer = TileStore.open("s.zarr").layer(name)
    cells = layer.read_window(*layer.grid.window)
    change(cells)
    metadata = json.loads((layer.path / "zarr.json").read_bytes())
    grid = layer.grid
    with create_layer(
        "s.zarr", name, grid, cells.dtype, nodata=layer.nodata, block_size=64, overwrite=True
    ) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, cells[r0:r1, c0:c1])
        digest = writer.commit().identity
    own = metadata["attributes"]["terrain_gpu"]
    own["digest"] = digest
    own.pop("checksum", None)
    (layer.path / "zarr.json").write_text(json.dumps(metadata))
    for other in TileStore.open("s.zarr").layers:
        path = layer.path.parent / other / "zarr.json"
        found = json.loads(path.read_bytes())
        if found["attributes"]["terrain_gpu"].pop("beside", None) is not None:
            found["attributes"]["terrain_gpu"].pop("checksum", None)
            path.write_text(json.dumps(found))


def call(capfd, command):
    capfd.readouterr()
    code = options._guarded(lambda: group.main(shlex.split(command), standalone_mode=False))
    return (code, *capfd.readouterr())


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"allocation": True, "cost": "tobler", "friction": "land", "reverse": True},
        {"backlink": True, "max_cost": 7.0, "connectivity": 4},
        {"backlink": True, "cost": "minimax", "source_edge": True},
        {"cost": "minimax", "corner_cutting": False},
        {"backlink": True, "cost": "langmuir", "parameters": {"a": 0.5}, "friction": "land"},
    ],
    ids=str,
)
def test_the_command(store, capfd, how):
    start = [(70, 70, 3)] if "allocation" in how else [(70, 70)]
    found = shortest_paths("s.zarr", start, verify=True, **how)
    terrain_gpu.minimum_spanning_tree("s.zarr", weight="absdiff", connectivity=4)
    code, out, err = call(capfd, "verify s.zarr")
    assert (code, err) == (0, "")
    forest, paths = out.splitlines()
    assert forest.startswith("s.zarr: layer mst verified, ")
    assert f" verified, {found.reached:,} cells against " in paths
    source = "backlinks" if len(found.layers) > 1 else "cells at "
    assert f" taken from {source}" in paths
    code, out, _ = call(capfd, "verify s.zarr --json - --threads 1 --memory-limit 1GB")
    report = json.loads(out)
    assert code == 0
    assert report["command"] == "verify"
    assert report["result"]["mst"]["verified"]
    assert report["result"]["distance"]["reached"] == found.reached
    if Case.gpu is not None:
        _, out, _ = call(capfd, "verify s.zarr --json - --backend cuda")
        assert json.loads(out)["result"]["distance"] == {
            **report["result"]["distance"],
            "backend": "cuda",
        }


def test_the_command_where_targets_end_it(store, capfd):
    targets = from_rowcol(GridSpec(*store.shape), [(75, 75)])
    found = shortest_paths(
        "s.zarr", [(70, 70)], cost="surface", targets=targets, stop_at_targets=True, verify=True
    )
    assert found.reached < 1000
    assert call(capfd, "verify s.zarr")[0] == 0


def test_the_command_finds_wrong_results(store, capfd):
    shortest_paths("s.zarr", [(70, 70), (140, 3)], allocation=True)
    terrain_gpu.minimum_spanning_tree("s.zarr")

    def lower(cells):
        cells[100, 90] += 1

    def away(cells):
        cells[100, 90] = 2 if cells[100, 90] == 1 else 1

    def everywhere(cells):
        cells[...] = np.iinfo(cells.dtype).max

    for name, change, text in (
        ("distance", lower, "row"),
        ("distance", everywhere, "backlink"),
        ("allocation", away, r"row 100, column 90"),
    ):
        layer = TileStore.open("s.zarr").layer(name)
        before = layer.read_window(*layer.grid.window)
        rewrite(name, change)
        code, out, err = call(capfd, "verify s.zarr")
        assert code == 1
        assert "layer mst verified" in out
        assert "layer distance is wrong" in out
        assert text in err
        assert "compute it again with --overwrite" in err
        rewrite(name, lambda cells, before=before: np.copyto(cells, before))
    assert call(capfd, "verify s.zarr")[0] == 0

    def cut(cells):
        cells[100, 90] ^= 15

    rewrite("mst", cut)
    code, out, err = call(capfd, "verify s.zarr")
    assert code == 1
    assert "layer mst is wrong" in out
    assert "layers distance, backlink, allocation verified" in out
    assert "s.zarr/mst: " in err


def test_unreached_everywhere_is_no_result(store, capfd):
    shortest_paths("s.zarr", [(70, 70)])
    rewrite("distance", lambda cells: cells.fill(np.iinfo(cells.dtype).max))
    code, _, err = call(capfd, "verify s.zarr")
    assert code == 1
    assert "0 cells are reached" in err


def test_wrong_stores(store, capfd):
    code, _, err = call(capfd, "verify s.zarr")
    assert code == 2
    assert "no results" in err
    shortest_paths("s.zarr", [(70, 70, 4)])
    code, _, err = call(capfd, "verify s.zarr")
    assert code == 2
    assert "--backlink" in err
    shortest_paths("s.zarr", [(70, 70, 4)], backlink=True, overwrite=True)
    assert call(capfd, "verify s.zarr")[0] == 0
    path = TileStore.open("s.zarr").layer("distance").path / "zarr.json"
    right = path.read_text()
    links = path.parent.parent / "backlink" / "zarr.json"
    for key, values in {
        "cost": ["x", 3, None],
        "parameters": [[], {"a": 1}, {"a": "b"}],
        "connectivity": [6, True, "8"],
        "corner_cutting": [1, None],
        "reverse": [0],
        "max_cost": ["x", -1, True],
        "friction": [7, "distance", "nothing", "../land"],
        "barriers": [[]],
        "layer": [None, "mst", "distance"],
        "targets": [3],
        "of": [None, {"stored_bytes": 1}],
    }.items():
        for value in values:
            for file in (path, links):
                metadata = json.loads(right if file == path else links.read_text())
                metadata["attributes"]["terrain_gpu"].pop("checksum", None)
                metadata["attributes"]["terrain_gpu"]["settings"] = {
                    **json.loads(right)["attributes"]["terrain_gpu"]["settings"],
                    key: value,
                }
                file.write_text(json.dumps(metadata))
            with pytest.raises(StoreError) as caught:
                verify.verify_stored(TileStore.open("s.zarr"))
            assert not isinstance(caught.value, VerificationError)
            assert "s.zarr" in str(caught.value)
    path.write_text(right)
    with pytest.raises(StoreError, match="not from the same run"):
        verify.verify_stored(TileStore.open("s.zarr"))


@pytest.mark.parametrize("names", [[], ["backlink"], ["backlink", "allocation"]])
def test_layers_of_a_store_are_read_once(tmp_path, no_fsync, monkeypatch, names):
    monkeypatch.chdir(tmp_path)
    write("elevation", np.random.default_rng(0).integers(0, 99, (256, 256)).astype(np.uint16), None)
    shortest_paths("s.zarr", [(3, 5)], **dict.fromkeys(names, True))
    read, cells = Layer.read_ring, Counter()

    def counted(self, window, *how, halo=1):
        r0, r1, c0, c1 = window
        cells[self.name] += (r1 - r0) * (c1 - c0)
        return read(self, window, *how, halo=halo)

    monkeypatch.setattr(Layer, "read_ring", counted)
    verify.verify_stored(TileStore.open("s.zarr"), threads=1)
    expected = dict.fromkeys(("distance", *names), 256 * 256)
    assert {name: cells[name] for name in expected} == expected
