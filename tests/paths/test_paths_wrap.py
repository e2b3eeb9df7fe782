"""Rasters that go round the Earth: shortest paths cross the seam of the last and first column."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow.parquet
import pytest
import reference
import test_least_cost_network as of_networks
import test_paths as of_paths
import test_paths_matrix as of_matrix
import test_paths_operation as of_operation
import test_paths_ties as of_ties
from contract import same, whole
from effort import examples, only_long
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from samples import make_layers, round_the_earth
from strategies import WGS84, cost_problems, rasters, shapes

from terrain_gpu import (
    GridSpec,
    InputError,
    VerificationError,
    build_index,
    cost_matrix,
    least_cost_network,
    shortest_paths,
)
from terrain_gpu.cli.main import group
from terrain_gpu.errors import StoreError
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.io import features
from terrain_gpu.paths.cost.wrap import wraps
from terrain_gpu.paths.cost_distance.output import write_paths
from terrain_gpu.paths.distance_index.query import query_index
from terrain_gpu.paths.least_cost_network import operation as network_problem
from terrain_gpu.paths.proof import verify_stored
from terrain_gpu.paths.ties.operation import tied_steps
from terrain_gpu.store import TileStore

pytestmark = pytest.mark.usefixtures("no_fsync_session")
no_fsync_session = of_paths.no_fsync_session

WIDE = shapes(200, 6000).filter(lambda shape: shape[1] >= 3)
WIDER = WIDE.filter(lambda shape: shape[1] >= 5)
"""Of 16 neighbours, which are different cells."""
ALL = {"geographic": False, "connectivities": (8, 4, 16)}


class AcrossTheSeam(of_operation.TestCostDistance):
    rasters = rasters(shape=WIDE)
    wrap = True


@pytest.mark.long
class TestKnightsAcrossTheSeam(of_operation.TestCostDistanceOfKnights):
    rasters = rasters(shape=WIDER)
    wrap = True


class TestIntegersAcrossTheSeam(of_operation.TestCostDistanceOfIntegers):
    rasters = rasters(shape=WIDE).filter(lambda raster: raster.dtype.itemsize < 4)
    wrap = True


class TestTiesAcrossTheSeam(of_ties.TestTiedSteps):
    base = AcrossTheSeam
    rasters = base.rasters


@pytest.mark.long
class TestTiesOfIntegersAcrossTheSeam(of_ties.TestTiedSteps):
    base = TestIntegersAcrossTheSeam
    rasters = base.rasters


class OnACylinder:
    """A problem whose last column meets the first one."""

    def __init__(self, problem, grid):
        self._problem, self.grid = problem, grid
        lengths = step_lengths(grid, problem.connectivity)
        self.graph = {**problem.graph, "lengths": lengths, "wrap": True}

    def __getattr__(self, name):
        return getattr(self._problem, name)


@given(
    cost_problems(rasters(shape=WIDE), geographic=False),
    st.sampled_from([64, 128, 1024]),
    st.sampled_from(["relax", "dijkstra"]),
)
def test_arrays(problem, block, method):
    assume(problem.sources)
    of_paths.within_reach(problem)
    how = {"block_size": block, "wrap": "yes", "method": method, "verify": True, "threads": 2}
    found = of_paths.solve(problem, **how)
    of_paths.assert_same(found, OnACylinder(problem, problem.grid))
    assert found.report.result["wrap"] is True


@settings(max_examples=examples(20))
@given(
    cost_problems(
        rasters(shape=shapes(200, 3000).filter(lambda shape: shape[1] >= 5)),
        geographic=False,
        connectivities=(16,),
    ),
    st.sampled_from([64, 128]),
    st.booleans(),
)
def test_arrays_of_16_neighbours(problem, block, verify):
    assume(problem.sources)
    of_paths.within_reach(problem)
    found = of_paths.solve(problem, block_size=block, wrap="yes", verify=verify, threads=2)
    of_paths.assert_same(found, OnACylinder(problem, problem.grid))


@pytest.mark.parametrize("cols", [65, 129])
def test_moves_pass_a_block_of_one_column(cols):
    """In a maze whose ways cross the seam again and again, by moves over the last column too."""
    rng = np.random.default_rng(cols)
    f = np.where(rng.random((40, cols)) < 0.42, np.nan, rng.integers(1, 99, (40, cols)))
    f[:, 20:40] = np.nan
    f[20, 41] = 1
    how = {"cost": "friction", "friction": f, "connectivity": 16, "wrap": "yes"}
    found = shortest_paths(f, [(20, 41)], block_size=64, verify=True, threads=1, **how)
    lengths = step_lengths(GridSpec(*f.shape), 16)
    graph = {"f": f, "connectivity": 16, "wrap": True, "lengths": lengths}
    right = reference.dijkstra(f, "friction", [(20, 41, None, 1)], **graph).astype(float)
    assert np.isfinite(right[:, :20]).any()
    np.testing.assert_array_equal(found.distance(), np.where(right < np.inf, right, np.nan))


@given(
    cost_problems(rasters(shape=WIDE), geographic=False),
    st.sampled_from([64, 128]),
    st.sampled_from([1, 2, 100]),
)
def test_stores(folders, problem, block, fields):
    assume(problem.sources)
    of_paths.within_reach(problem)
    grid = round_the_earth(problem.cells.shape)
    problem = OnACylinder(replace(problem, max_cost=None, grid=grid), grid)
    with folders() as folder, of_paths.fields_in_memory(fields):
        store = of_paths.make_store(folder / "s.zarr", problem, block)
        found = of_paths.solve_store(store, problem, threads=2, verify=True)
        of_paths.assert_same(found, problem)
        assert found.report.result["wrap"] is True
        assert group.main(["verify", str(store), "-q"], standalone_mode=False) in (None, 0)


COSTS = {
    "friction": {"cost": "friction", "friction": "friction"},
    "slope": {"cost": "tobler"},
    "absdiff": {"cost": "absdiff"},
    "minimax": {"cost": "minimax"},
    "formula": {"cost": "friction * length * exp(2 * abs(slope))", "friction": "friction"},
    "walls": {"cost": "absdiff", "barriers": "walls", "corner_cutting": False},
    "edge": {"cost": "surface", "source_edge": True},
    "moves": {"cost": "friction", "friction": "friction", "connectivity": 16},
}


def shifted(folder, cols, count):
    """Yield shifts, stores of one raster that begins so many columns later, and places in each."""
    rng = np.random.default_rng(cols)
    z = rng.integers(0, 5, (130, cols)).astype(np.int16)
    z[40:60, : cols // 2] = -1
    friction = rng.integers(1, 9, z.shape).astype(np.uint8)
    walls = (rng.random(z.shape) < 0.2).astype(np.uint8) & (z >= 0)
    good = reference.listed((z >= 0) & (walls == 0))
    places = [good[k] for k in rng.permutation(len(good))[:count]]
    layers = {"elevation": z, "friction": friction, "walls": walls}
    for shift in (0, 1, 77):
        store = folder / f"{shift}.zarr"
        grid = round_the_earth(z.shape, west=-180 + 360 / cols * shift)
        make_layers(store, grid, {n: np.roll(cells, shift, axis=1) for n, cells in layers.items()})
        yield shift, store, [(r, (c + shift) % cols) for r, c in places]


@pytest.mark.parametrize("fields", [2, 100])
@pytest.mark.parametrize("mode", COSTS)
@pytest.mark.parametrize("cols", [100, *map(only_long, (128, 200)), 191])
def test_a_shifted_raster_has_the_shifted_result(tmp_path, mode, cols, fields):
    """Distances, backlinks, allocation and ties: the seam is a place like any other."""
    found = []
    for shift, store, sources in shifted(tmp_path, cols, 5):
        with of_paths.fields_in_memory(fields):
            how = {"backlink": True, "allocation": True, "verify": True, "threads": 2}
            made = shortest_paths(store, sources, **COSTS[mode], **how)
        assert made.report.result["wrap"] is True
        assert (made.report.result["spilled_bytes"] > 0) == (fields == 2)
        ties = {} if mode == "moves" else tied_steps(store).layers
        layers = {**made.layers, **ties}
        found.append({n: np.roll(whole(a), -shift, axis=1) for n, a in layers.items()})
    for other in found[1:]:
        assert found[0].keys() == other.keys()
        for name, cells in found[0].items():
            assert same(cells, np.ascontiguousarray(other[name])), name


# -- which rasters wrap ----------------------------------------------------------------------------

UTM = CRS.from_epsg(32633).to_wkt(version="WKT2_2019")
GRADS = CRS.from_epsg(4807).to_wkt(version="WKT2_2019")


def grid_of(cols, width, wkt=WGS84):
    return GridSpec(4, cols, (width, 0.0, -180.0, 0.0, -0.5, 2.0), wkt)


@pytest.mark.parametrize(
    ("grid", "auto"),
    [
        (grid_of(720, 0.5), True),
        (grid_of(720, -0.5), True),
        (grid_of(43200, 0.0083333333333), True),
        (grid_of(43200, 0.0083333), False),  # a fifth of a column less
        (grid_of(400, 1.0, GRADS), True),
    ],
)
def test_columns_of_360_degrees_wrap(grid, auto):
    assert wraps(grid, "auto", "r") is auto
    assert wraps(grid, "yes", "r")
    assert not wraps(grid, "no", "r")


@pytest.mark.parametrize(
    ("grid", "why"),
    [
        (
            grid_of(700, 0.5),
            "its 700 columns span 350 degrees, not 360; use a raster of the whole",
        ),
        (grid_of(721, 0.5), "span 360.5 degrees, not 360; the last column repeats the first one"),
        (grid_of(720, 0.5, ""), "its coordinate system is unknown"),
        (grid_of(720, 0.5, UTM), "its coordinates are projected"),
        (grid_of(2, 180.0), "it has 2 columns, fewer than 3"),
    ],
)
def test_others_do_not(grid, why):
    assert not wraps(grid, "auto", "r")
    with pytest.raises(
        InputError, match=f"r: the last column does not meet the first one: .*{why}"
    ):
        wraps(grid, "yes", "r")


def test_arrays_wrap_only_when_asked():
    z = np.array([[0, 9, 9, 9, 1]], np.float64)
    assert shortest_paths(z, [(0, 0)]).distance()[0, 4] == 9 + 8
    assert shortest_paths(z, [(0, 0)], wrap="yes").distance()[0, 4] == 1
    for cols, least, ways in ((2, 3, 8), (4, 5, 16)):
        how = {"wrap": "yes", "connectivity": ways}
        with pytest.raises(InputError, match=f"{cols} columns, fewer than {least}"):
            shortest_paths(z[:, :cols].copy(), [(0, 0)], **how)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"method": "index"}, "'index' cannot join the sides .* use method relax, or wrap no"),
        ({"method": "tournament"}, "'tournament' cannot join the sides"),
    ],
)
@pytest.mark.parametrize("wrap", ["auto", "yes"])
def test_ways_that_do_not_join_are_refused(world, how, why, wrap):
    store, _ = world
    with pytest.raises(InputError, match=why):
        shortest_paths(store, [(3, 2)], wrap=wrap, **how)


def test_what_leaves_the_seam_open_tells(world, caplog):
    store, _ = world
    build_index(store, cost="surface")
    query_index(store, [(3, 2)], [(3, 70)])
    assert sum("does not join the last one to the" in text for text in caplog.messages) == 2


# -- many sources and targets ----------------------------------------------------------------------


@given(
    of_matrix.questions(WIDER, **ALL),
    st.sampled_from([64, 128]),
    st.sampled_from([1, 3, None]),
    st.booleans(),
)
def test_matrices(question, side, fields, verify):
    problem, sources, targets, nearest = question
    problem = OnACylinder(problem, problem.grid)
    with of_matrix.in_blocks(side, fields, fields and 2):
        found = cost_matrix(
            problem.cells,
            of_matrix.as_places(sources),
            None if targets is None else of_matrix.as_places(targets),
            friction=problem.friction,
            barriers=problem.barriers,
            nodata=problem.raster.nodata,
            cell_size=(abs(problem.grid.transform[0]), abs(problem.grid.transform[4])),
            nearest=nearest,
            wrap="yes",
            verify=verify,
            **of_matrix.how_of(problem),
        )
    wanted = of_matrix.expected(problem, sources, targets, nearest)
    of_matrix.check(of_matrix.listed(found), wanted, problem)


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.filter_too_much])
@given(of_networks.questions(WIDER, **ALL), st.sampled_from([64, 128]))
def test_networks(folders, question, block):
    problem, places = question
    grid = round_the_earth(problem.cells.shape)
    problem = OnACylinder(replace(problem, grid=grid), grid)
    graph, given_places = problem.graph, of_matrix.as_places(places)
    costs = {}
    with folders() as folder:
        store = of_paths.make_store(folder / "s.zarr", problem, block)
        for pairs in ("mst", "delaunay", "all"):
            file, how = folder / f"{pairs}.geojson", of_networks.steps_of(problem)
            how |= {"pairs": pairs, "verify": True, "resume": True, "threads": 1}
            found = least_cost_network(store, given_places, file, **how)
            lines = of_networks.read(file)
            costs[pairs] = {own[:2]: own[2] for own, _ in lines}
            assert len(costs[pairs]) == len(lines) == found.links
    right = reference.cheapest_crossings(problem.cells, problem.model, places, **graph)
    assert costs["delaunay"] == right
    rows = reference.cost_matrix(problem.cells, problem.model, places, None, **graph)
    assert costs["all"] == {(a, b): c for a, b, c, *_ in rows if c is not None and a < b}
    metric, parts = reference.spanning_costs(problem.cells, problem.model, places, **graph)
    assert sorted(costs["mst"].values()) == pytest.approx(metric, rel=1e-12)
    assert found.parts == parts


@pytest.mark.parametrize("mode", sorted(COSTS.keys() - {"edge"}))
@pytest.mark.parametrize("cols", [only_long(128), 191])
def test_a_shifted_raster_has_the_same_matrix(tmp_path, cluster, mode, cols):
    """With fields that leave memory, in workers, and of the nearest places."""
    found = []
    for shift, store, moved in shifted(tmp_path, cols, 11):
        files = {"output": tmp_path / f"{shift}.csv", "paths": tmp_path / f"{shift}.geojson"}
        client = cluster if shift == 1 and mode in ("absdiff", "moves") else None
        with nullcontext() if client else of_matrix.in_blocks(64, 3, 2):
            made = cost_matrix(store, moved, verify=True, client=client, **files, **COSTS[mode])
        assert made.report.result["wrap"] is True
        assert made.report.result["spilled_bytes"] > 0 or client is not None
        lines = tmp_path / f"{shift}-near.geojson"
        least_cost_network(store, moved, lines, nearest=2, verify=True, **COSTS[mode])
        found.append([files["output"].read_text(), [own for own, _ in of_networks.read(lines)]])
    assert found[0] == found[1] == found[2]


def line_parts(shape):
    """The parts of a MultiLineString in well-known binary."""
    assert shape[:5] == b"\x01\x05\x00\x00\x00"
    count, at, found = int.from_bytes(shape[5:9], "little"), 9, []
    while at < len(shape):
        end = at + 9 + 16 * int.from_bytes(shape[at + 5 : at + 9], "little")
        found.append(np.frombuffer(shape[at + 9 : end], "<f8").reshape(-1, 2))
        at = end
    assert len(found) == count
    return found


@pytest.mark.parametrize("kind", ["geojson", "gpkg", "parquet"])
@pytest.mark.parametrize("pairs", ["mst", "all", None])
def test_lines_of_matrices_and_networks_are_cut(world, kind, pairs):
    store, folder = world
    file, places = folder / f"n.{kind}", [(3, 70), (4, 2), (3, 60)]
    how = {"cost": "surface", "verify": True}
    if pairs is None:
        cost_matrix(store, places, output=folder / "t.csv", paths=file, **how)
    else:
        least_cost_network(store, places, file, pairs=pairs, **how)
    layer = "paths" if pairs is None else "network"
    if kind == "geojson":
        shapes = [f["geometry"] for f in json.loads(file.read_text())["features"]]
        parts = [g["coordinates"] for g in shapes if g["type"] == "MultiLineString"]
    else:
        if kind == "gpkg":
            import pyogrio.raw

            shapes = pyogrio.raw.read(file, layer=layer)[2]
        else:
            shapes = pyarrow.parquet.read_table(file).column("geometry").to_pylist()
        parts = [found for found in map(line_parts, shapes) if len(found) > 1]
    assert len(parts) == {"mst": 1, "all": 2, None: 4}[pairs]
    for first, second in parts:
        assert {first[-1][0], second[0][0]} == {180, -180}
        assert first[-1][1] == second[0][1]


def test_the_proof_refuses_a_wrong_cut(world, monkeypatch):
    """Between the two cells beside it, a line must leave and enter the raster as a cut does."""
    store, folder = world
    usual = features.cut_line

    def cut_line(*how):
        parts = usual(*how)
        if len(parts) > 1:
            parts[0][-1, 1] += 1
        return parts

    places, how = [(3, 70), (4, 2)], {"cost": "surface", "verify": True, "resume": True}
    usual_write = network_problem.write_links

    def spoiled(*given, **more):
        with monkeypatch.context() as patch:
            patch.setattr(features, "cut_line", cut_line)
            return usual_write(*given, **more)

    monkeypatch.setattr(network_problem, "write_links", spoiled)
    with pytest.raises(VerificationError, match="not the centres of cells"):
        least_cost_network(store, places, folder / "n.gpkg", **how)
    monkeypatch.undo()
    assert least_cost_network(store, places, folder / "n.gpkg", **how).links == 1


def test_the_commands_of_many_places(world, capfd):
    store, folder = world
    places = ["--source-rowcol", "3,70", "--source-rowcol", "4,2", "--cost", "surface"]
    costs = []
    for wrap in ("auto", "no"):
        how = [*places, "--wrap", wrap, "--overwrite", "--json", folder / "j"]
        run_command("cost-matrix", store, *how, "-o", folder / "t.csv")
        assert json.loads((folder / "j").read_text())["result"]["wrap"] is (wrap == "auto")
        assert ("across the seam" in capfd.readouterr().out) == (wrap == "auto")
        costs.append((folder / "t.csv").read_text().splitlines()[1].split(",")[2])
        run_command("least-cost-network", store, *how, "-o", folder / "n.gpkg")
        assert ("across the seam" in capfd.readouterr().out) == (wrap == "auto")
    assert float(costs[0]) < 3e6
    assert costs[1] == ""  # the wall divides a raster whose sides do not meet


# -- poles -----------------------------------------------------------------------------------------


def test_steps_at_a_pole_have_no_length_and_none_crosses_it(tmp_path):
    grid = GridSpec(5, 8, (45.0, 0.0, -180.0, 0.0, -45.0, 112.5), WGS84)
    make_layers(tmp_path / "s.zarr", grid, {"elevation": np.ones((5, 8), np.float32)})
    found = shortest_paths(tmp_path / "s.zarr", [(2, 0)], cost="surface", backlink=True)
    distance = found.distance()
    east, _, south, _ = step_lengths(grid)
    assert distance[2, 7] == east[2]
    assert distance[0] == pytest.approx(distance[0, 0], abs=1e-6)
    # To the other side of the Earth: along rows, or over the pole, around which steps are free.
    assert distance[2, 4] == pytest.approx(2 * (south[0] + south[1]), rel=1e-9)
    assert found.path(0, 4) is not None
    for a, b in pairwise(found.path(2, 4).tolist()):
        assert (abs(a[1] - b[1]) + 1) % 8 <= 2  # never straight to the other side


# -- paths, files, proofs, the command -------------------------------------------------------------


@pytest.fixture
def world(tmp_path):
    """A plain with a wall in the middle, so that paths between its sides cross the seam."""
    cells = np.ones((9, 72), np.float32)
    cells[:, 36] = -1
    store = tmp_path / "s.zarr"
    make_layers(store, round_the_earth(cells.shape, height=5.0, top=30.0), {"elevation": cells})
    return store, tmp_path


def run_command(*words):
    return group.main([*map(str, words)], standalone_mode=False)


@pytest.mark.parametrize("west", [-180.0, 0.0])
def test_paths_are_cut_at_the_antimeridian(tmp_path, west):
    cells = np.ones((9, 72), np.float32)
    cells[:, 36 if west else 18] = -1
    grid = round_the_earth(cells.shape, west=west, height=5.0, top=30.0)
    make_layers(tmp_path / "s.zarr", grid, {"elevation": cells})
    start, end = ((3, 69), (4, 2)) if west else ((3, 33), (4, 40))
    found = shortest_paths(tmp_path / "s.zarr", [start], cost="surface", backlink=True)
    (path,) = found.paths([end], [start])
    assert path.length == pytest.approx(path.cost, rel=1e-12)
    write_paths(tmp_path / "p.geojson", [path], grid)
    (feature,) = json.loads((tmp_path / "p.geojson").read_text())["features"]
    first, second = feature["geometry"]["coordinates"]
    assert feature["geometry"]["type"] == "MultiLineString"
    assert (first[-1][0], second[0][0]) == (180, -180)
    assert first[-1][1] == second[0][1]
    for part in (first, second):
        assert max(abs(b[0] - a[0]) for a, b in pairwise(part)) <= 5
        assert all(-180 <= lon <= 180 for lon, _ in part)


def test_lines_in_a_geopackage_are_cut_at_the_seam(world):
    store, folder = world
    found = shortest_paths(store, [(3, 70)], cost="surface", backlink=True)
    paths = found.paths([(4, 2), (5, 60)], [(3, 70)])
    write_paths(folder / "p.gpkg", paths, found.grid)
    import pyogrio.raw

    info = pyogrio.read_info(folder / "p.gpkg", layer="paths")
    assert info["geometry_type"] == "MultiLineString"
    *_, shapes, _fields = pyogrio.raw.read(folder / "p.gpkg", layer="paths")
    assert [int.from_bytes(shape[5:9], "little") for shape in shapes] == [2, 1]


def test_the_command(world, capfd):
    store, folder = world
    command = ["compute-sssp", store, "--source-rowcol", "3,70", "--cost", "surface"]
    files = ["--path", folder / "p.geojson", "--target-rowcol", "4,2", "--json", folder / "j"]
    run_command(*command, *files)
    assert "across the seam of 360 degrees" in capfd.readouterr().out
    assert json.loads((folder / "j").read_text())["result"]["wrap"] is True
    near = whole(TileStore.open(store).layer("distance"))
    again = ["--overwrite", "--json", folder / "j", "--wrap", "no"]
    run_command(*command, *again)
    assert "seam" not in capfd.readouterr().out
    assert json.loads((folder / "j").read_text())["result"]["wrap"] is False
    far = whole(TileStore.open(store).layer("distance"))
    assert np.isnan(far[:, :36]).all()
    assert not np.isnan(near[:, :36]).any()


def test_a_result_without_the_seam_is_not_taken_for_one_with_it(world):
    store, _ = world
    for wrap in ("auto", "no"):
        shortest_paths(store, [(3, 70)], wrap=wrap, overwrite=True)
        other = {"auto": "no", "no": "auto"}[wrap]
        with pytest.raises(StoreError, match=r"other settings|exists"):
            shortest_paths(store, [(3, 70)], wrap=other, resume=True)


@pytest.mark.parametrize("backlink", [True, False])
def test_the_proof_includes_the_steps_across_the_seam(world, backlink):
    """A result without the seam is not one with it, nor the reverse."""
    store, _ = world
    for wrap, claimed in (("no", True), ("yes", False)):
        made = shortest_paths(
            store, [(3, 70)], cost="surface", wrap=wrap, backlink=backlink, overwrite=True
        )
        for layer in made.layers.values():
            claim(layer, wrap=claimed)
        with pytest.raises(VerificationError):
            verify_stored(TileStore.open(store))


def claim(layer, *, wrap):
    """Record another value of wrap with a layer; False for none."""
    file = layer.path / "zarr.json"
    meta = json.loads(file.read_text())
    del meta["attributes"]["terrain_gpu"]["checksum"]
    settings = meta["attributes"]["terrain_gpu"]["settings"]
    settings.pop("wrap", None)
    if wrap is not False:
        settings["wrap"] = wrap
    file.write_text(json.dumps(meta))


@pytest.mark.parametrize("wrap", ["yes", 1, None])
def test_a_damaged_record_is_refused(world, wrap):
    store, _ = world
    made = shortest_paths(store, [(3, 70)], cost="surface")
    claim(made.layers["distance"], wrap=wrap)
    with pytest.raises(StoreError, match="wrap is recorded as"):
        verify_stored(TileStore.open(store))


@pytest.mark.parametrize("one_way", [False, True])
def test_the_proof_joins_flats_across_the_seam(one_way):
    """A flat at distance 0 that touches its source only across the seam."""
    z = np.full((70, 130), 5, np.int16)
    z[:, 64:66] = -1
    how = {"cost": "max(dz, 0)"} if one_way else {"cost": "absdiff"}
    found = shortest_paths(z, [(0, 0)], nodata=-1, wrap="yes", verify=True, block_size=64, **how)
    assert found.distance()[69, 66] == 0
