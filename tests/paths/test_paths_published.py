"""Small rasters from the tests of other programs, or given to them, with the results they state.

Rasters and numbers are facts; where they come from is said with each. What other programs define
in another way is a test too, and a row of the table in docs/how-to/other-tools.md.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from contract import make_store, whole
from samples import numbers_of

from terrain_gpu import TileStore, corridor, cost_matrix, shortest_paths, tied_steps
from terrain_gpu.errors import InputError

pytestmark = pytest.mark.usefixtures("no_fsync")

HERE = Path(__file__).parent


def walked(values, sources, **how):
    """Distances over frictions, with their values as heights where none are given."""
    heights = how.pop("heights", values)
    how = {"cost": "friction", "friction": values} | how
    return shortest_paths(np.asarray(heights, float), sources, **how, verify=True)


# -- scikit-image, skimage/graph/tests -------------------------------------------------------------

VALLEY = np.ones((8, 8))
VALLEY[1:-1, 1] = VALLEY[1, 1:-1] = 0
DOWN = [(1, 6), (1, 5), (1, 4), (1, 3), (1, 2)], [(r, 1) for r in range(2, 7)]
"""test_mcp.py: the way along the valley, without its corner."""


@pytest.mark.parametrize("connectivity", [8, 4])
def test_entering_a_cell_costs_its_value(tmp_path, connectivity):
    """MCP: test_basic and test_no_diagonal of test_mcp.py.

    Of several ways that cost the same it takes one and we another; theirs is among all ours.
    """
    store = make_store(tmp_path / "s.zarr", VALLEY, None, 64)
    found = shortest_paths(
        store, [(1, 6)], cost="z_to", backlink=True, connectivity=connectivity, verify=True
    )
    rows = {
        8: """1 1 1 1 1 1 1 1
              1 0 0 0 0 0 0 1
              1 0 1 1 1 1 1 1
              1 0 1 2 2 2 2 2
              1 0 1 2 3 3 3 3
              1 0 1 2 3 4 4 4
              1 0 1 2 3 4 5 5
              1 1 1 2 3 4 5 6""",
        4: """2 1 1 1 1 1 1 2
              1 0 0 0 0 0 0 1
              1 0 1 1 1 1 1 2
              1 0 1 2 2 2 2 3
              1 0 1 2 3 3 3 4
              1 0 1 2 3 4 4 5
              1 0 1 2 3 4 5 6
              2 1 2 3 4 5 6 7""",
    }
    expected = [line.split() for line in rows[connectivity].splitlines()]
    np.testing.assert_array_equal(found.distance(), np.array(expected, float))
    across = [] if connectivity == 8 else [(1, 1)]
    way = [*DOWN[0], *across, *DOWN[1], *([(7, 1)] if across else []), (7, 2)]
    assert_is_a_path(store, way)


def assert_is_a_path(store, way):
    """Each step leads from a cell to a nearer one, or one as near along the recorded backlink."""
    layers = TileStore.open(store)
    distance = whole(layers.layer("distance"))
    ties = whole(tied_steps(store).layers["ties"])
    for (r0, c0), (r, c) in pairwise(way):
        bit = 1 << [*STEPS].index((r0 - r, c0 - c))
        free = distance[r, c] == distance[r0, c0]  # a step that costs nothing: many lead back
        assert free or ties[r, c] & bit, ((r, c), ties[r, c])


STEPS = (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)
"""Of bits of ties: E, SE, ... NE."""


def test_what_is_impassable():
    """test_neg_inf: infinite costs are no way, as here; negative ones neither, but here refused."""
    values = np.where(VALLEY == 1, np.inf, 0)
    found = walked(values, [(1, 6)], backlink=True, cost="friction_to", heights=0 * VALLEY)
    expected = np.where(VALLEY == 1, np.nan, 0)
    np.testing.assert_array_equal(found.distance(), expected)
    assert found.path(6, 1).tolist() == [list(cell) for part in DOWN for cell in part]
    with pytest.raises(InputError, match="negative"):
        walked(np.where(VALLEY == 1, -1, 0), [(1, 6)])


def test_mean_costs_times_length():
    """test_route: route_through_array with geometric=True."""
    found = walked(VALLEY, [(1, 6)], backlink=True)
    assert found.distance()[7, 2] == pytest.approx(np.sqrt(2) / 2, rel=1e-15)
    assert found.path(7, 2).tolist() == [list(c) for part in DOWN for c in part] + [[7, 2]]


def test_fixed_cost_of_a_step_and_a_limit():
    """test_flexible.py: every step costs 1, the source its own value, and the front stops."""
    values = np.ones((8, 8))
    values[1::2] *= 2
    found = shortest_paths(values, [(0, 0, 1.0)], cost="1", max_cost=5, verify=True).distance()
    inner = [[1, 2, 3, 4], [2, 2, 3, 4], [3, 3, 3, 4], [4, 4, 4, 4]]
    np.testing.assert_array_equal(found[:4, :4], inner)
    assert np.isnan(found[-2:]).all()
    assert np.isnan(found[:, -2:]).all()


def test_straight_ways_between_seeds(tmp_path):
    """test_connect.py: three seeds on a plain, each pair joined by the straight way."""
    seeds = [(1, 1), (7, 7), (1, 7)]
    store = make_store(tmp_path / "s.zarr", np.ones((8, 8)), None, 64, cell=(1.0, 1.0))
    for cost, straight in (("z_to", 6), ("friction", np.hypot(6, 6))):
        how = {"friction": "elevation"} if cost == "friction" else {}
        rows = cost_matrix(store, seeds, cost=cost, **how).columns()
        ends = zip(rows["source"], rows["target"], rows["cost"], strict=True)
        costs = {(one, other): total for one, other, total in ends}
        assert costs[1, 2] == pytest.approx(straight, rel=1e-15)
        assert costs[2, 3] == costs[1, 3] == 6
    ways = shortest_paths(store, seeds[:1], cost="friction", friction="elevation", backlink=True)
    assert ways.path(7, 7).tolist() == [[k, k] for k in range(1, 8)]
    assert ways.path(1, 7).tolist() == [[1, k] for k in range(1, 8)]


@pytest.mark.parametrize("size", [(sy, sx) for sy in range(1, 5) for sx in range(1, 5)])
def test_sampling(size):
    """test_anisotropy.py: cells sy high and sx wide; fronts from the left and from the top."""
    sy, sx = size
    left, top = ([(k, 0) for k in range(8)], [(0, k) for k in range(8)])
    ones, k = np.ones((8, 8)), np.arange(8.0)
    across = walked(ones, left, cell_size=(sx, sy)).distance()
    down = walked(ones, top, cell_size=(sx, sy)).distance()
    np.testing.assert_array_equal(across, np.tile(k * sx, (8, 1)))
    np.testing.assert_array_equal(down, np.tile(k * sy, (8, 1)).T)


def test_path_across_an_array():
    """test_spath.py, test_basic: from the first column to the last one, always one column on.

    Its `reach` of 2 takes steps that are none here.
    """
    values = np.array([[1, 1, 3], [0, 2, 0], [4, 3, 1]], float)
    columns = np.tile(np.arange(3.0), (3, 1))
    cost = "where(friction_to - friction_from == 1, abs(dz), inf)"
    found = shortest_paths(
        values, [(k, 0) for k in range(3)], cost=cost, friction=columns, backlink=True, verify=True
    )
    ends = found.distance()[:, -1]
    assert ends.min() == 1
    assert found.path(int(ends.argmin()), 2).tolist() == [[0, 0], [0, 1], [1, 2]]


# -- xarray-spatial, xrspatial/tests ---------------------------------------------------------------

XARRAY = numbers_of(HERE / "xarray_spatial.txt")
SOURCES = [(1, 1), (5, 6)]
"""On its random raster, with cells 2 wide and 3 high."""
FLOAT32 = 1e-6
"""It sums in float64, and gives float32."""


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("cost_distance", {}),
        ("cost_distance 4", {"connectivity": 4}),
        ("cost_distance max 20", {"max_cost": 20}),
    ],
)
def test_cost_distance(name, how):
    found = walked(XARRAY["friction"], SOURCES, cell_size=(2, 3), **how).distance()
    np.testing.assert_allclose(found, XARRAY[name], rtol=FLOAT32)


@pytest.mark.parametrize(("name", "connectivity"), [("", 8), (" 4", 4)])
def test_surface_distance(name, connectivity):
    found = shortest_paths(
        XARRAY["heights"], SOURCES, cost="surface", cell_size=(2, 3), connectivity=connectivity,
        allocation=True, verify=True,
    )  # fmt: skip
    distances = XARRAY[f"surface_distance{name}"]
    np.testing.assert_allclose(found.distance(), distances, rtol=FLOAT32)
    if connectivity == 8:
        ids = np.nan_to_num(XARRAY["surface_allocation"])
        np.testing.assert_array_equal(found.allocation(), ids)


@pytest.mark.parametrize(("name", "within"), [("corridor", None), ("corridor 10%", "10%")])
def test_corridor(tmp_path, name, within):
    """It sums distances in float32, so the best way may cost a little more than 0."""
    store = make_store(tmp_path / "s.zarr", XARRAY["friction"], np.nan, 64, cell=(2.0, 3.0))
    for into, source in zip("ab", SOURCES, strict=True):
        shortest_paths(store, [source], cost="friction", friction="elevation", into=into)
    found = whole(corridor(store, ["a", "b"], within=within).layers["corridor"])
    np.testing.assert_allclose(found, XARRAY[name], rtol=FLOAT32, atol=1e-5)


@pytest.mark.parametrize(("name", "connectivity"), [("a_star", 8), ("a_star 4", 4)])
def test_a_star_search(name, connectivity):
    """Its result has the costs along one path, and NaN elsewhere."""
    found = walked(
        XARRAY["friction"], SOURCES[:1], cell_size=(2, 3), connectivity=connectivity, backlink=True
    )
    costs = np.full(found.grid.shape, np.nan)
    way = tuple(found.path(*SOURCES[1]).T)
    costs[way] = found.distance()[way]
    np.testing.assert_allclose(costs, XARRAY[name], rtol=1e-8)


def test_cases_of_cost_distance():
    """test_cost_distance.py: those with numbers, and where definitions differ."""
    centre = walked(np.ones((7, 7)), [(3, 3)]).distance()
    root = np.sqrt(2)
    cells = {(3, 4): 1, (2, 3): 1, (2, 2): root, (3, 5): 2, (0, 0): 3 * root}
    for cell, cost in cells.items():
        assert centre[cell] == pytest.approx(cost, rel=1e-15)
    corner = walked(np.array([[1.0, 2, 1], [1, 10, 1], [1, 1, 1]]), [(0, 0)]).distance()
    assert [corner[0, 1], corner[1, 0], corner[1, 1], corner[2, 0]] == [1.5, 1, 6.5, 2]
    line = np.ones((1, 5))
    np.testing.assert_array_equal(walked(line, [(0, 0), (0, 4)]).distance(), [[0, 1, 2, 1, 0]])
    far = walked(np.ones((1, 10)), [(0, 0)], max_cost=3.5).distance()
    np.testing.assert_array_equal(far, [[0, 1, 2, 3, *[np.nan] * 6]])
    ones = np.ones((3, 3))
    assert walked(ones, [(0, 0)]).distance()[2, 2] == pytest.approx(2 * root)
    assert walked(ones, [(0, 0)], connectivity=4).distance()[2, 2] == 4
    wall = np.ones((3, 5))
    wall[:, 2] = 0, np.nan, 0  # there, cells of friction 0 are impassable; here NaN is
    assert walked(wall, [(1, 0)]).distance()[1, 4] < np.inf
    blocked = walked(np.where(wall > 0, wall, np.nan), [(1, 0)]).distance()
    assert np.isnan(blocked[:, 2:]).all()
    assert np.isfinite(blocked[:, :2]).all()
    ones[1, 1] = np.nan  # there, nothing is reached from an impassable source; here it is refused
    with pytest.raises(InputError, match="nodata"):
        walked(ones, [(1, 1)])
    snake = np.full((5, 5), np.nan)
    snake[::2], snake[1, 4], snake[3, 0] = 1, 1, 1
    expected = [[0, 1, 2, 3, 4], [5], [10, 9, 8, 7, 6], [11], [12, 13, 14, 15, 16]]
    found = walked(snake, [(0, 0)], connectivity=4).distance()
    assert found[np.isfinite(found)].tolist() == [cost for row in expected for cost in row]


def test_cases_of_surface_distance():
    """test_surface_distance.py: a slope of 45 degrees, a wall, a limit, winding ways."""
    ramp = shortest_paths(np.arange(5.0)[None], [(0, 0)], cost="surface").distance()
    np.testing.assert_allclose(ramp[0], np.sqrt(2) * np.arange(5), rtol=1e-15)
    wall = np.zeros((3, 5))
    wall[:, 2] = np.nan
    found = shortest_paths(wall, [(1, 0)], cost="surface", verify=True).distance()
    np.testing.assert_array_equal(np.isnan(found), np.tile([0, 0, 1, 1, 1], (3, 1)))
    near = shortest_paths(np.zeros((5, 5)), [(2, 2)], cost="surface", max_cost=1.5).distance()
    k = abs(np.arange(5) - 2)
    np.testing.assert_array_equal(np.isnan(near), np.maximum(k[:, None], k) > 1)
    winding = np.full((16, 16), np.nan)
    winding[::2] = 0
    winding[1::4, -1] = winding[3::4, 0] = 0
    found = shortest_paths(winding, [(0, 0)], cost="surface", connectivity=4, verify=True)
    assert found.reached == np.isfinite(winding).sum()
    assert np.nanmax(found.distance()) == found.reached - 1


def test_cases_of_a_star_search():
    """test_pathfinding.py: detours around high frictions and voids, and cells 0.5 wide."""
    s = np.sqrt(0.5)
    values = np.array([[0, 1, 0, 0], [1, 1, np.nan, 0], [0, 1, 2, 2], [1, 0, 2, 0]])
    for connectivity, way, costs in (
        (8, [[0, 2], [1, 1], [2, 1], [3, 1]], [0, s, s + 0.5, s + 1]),
        (4, [[0, 2], [0, 1], [1, 1], [2, 1], [3, 1]], [0, 0.5, 1, 1.5, 2]),
    ):
        how = {"cost": "length", "cell_size": 0.5, "connectivity": connectivity}
        found = shortest_paths(values, [(0, 2)], **how, backlink=True)
        assert found.path(3, 1).tolist() == way
        np.testing.assert_allclose(found.distance()[tuple(np.transpose(way))], costs, rtol=1e-15)
    for high in (100, np.nan):
        frictions = np.ones((3, 5))
        frictions[:2, 2] = high
        way = walked(frictions, [(0, 0)], backlink=True).path(0, 4)
        assert [2, 2] in way.tolist()
    around = walked(np.array([[1.0, 2, 1], [1, 1, 1], [1, 1, 1]]), [(0, 0)], backlink=True)
    assert around.path(0, 2).tolist() == [[0, 0], [1, 1], [0, 2]]
    assert around.distance()[0, 2] == 2 * np.sqrt(2)


def test_cases_of_corridors(tmp_path):
    """test_corridor.py: between the middles of two sides of a plain, and with a wall."""
    for name, plain in {"plain": np.ones((7, 7)), "wall": np.ones((7, 7))}.items():
        if name == "wall":
            plain[:, 3] = np.nan
        store = make_store(tmp_path / f"{name}.zarr", plain, np.nan, 64, cell=(1.0, 1.0))
        for into, source in (("a", (3, 0)), ("b", (3, 6))):
            shortest_paths(store, [source], cost="friction", friction="elevation", into=into)
        found = whole(corridor(store, ["a", "b"]).layers["corridor"])
        if name == "wall":
            assert np.isnan(found).all()
            continue
        np.testing.assert_array_equal(found[3], 0)
        assert np.nanmin(found) == 0
        np.testing.assert_allclose(found, found[:, ::-1], atol=1e-14)
        half = whole(corridor(store, ["a", "b"], within="50%", into="half").layers["half"])
        np.testing.assert_array_equal(half, np.where(found <= 3, found, np.nan))


# -- GRASS -----------------------------------------------------------------------------------------

GRASS = numbers_of(HERE / "grass_costs.txt")
STARTS = [(1, 1), (6, 7)]
VALUED = [(1, 1, 3.0), (6, 7, 7.0)]
WIDTH = 10.0
"""Of a cell; r.cost counts lengths in it."""
SAME = 1e-8
"""The file has nine digits."""


def r_cost(values, sources, **how):
    return walked(values, sources, cell_size=(WIDTH, 8), **how)


def test_r_cost():
    found = r_cost(GRASS["friction"], STARTS, allocation=True, backlink=True)
    np.testing.assert_allclose(found.distance() / WIDTH, GRASS["r.cost"], rtol=SAME)
    np.testing.assert_array_equal(found.allocation(), np.nan_to_num(GRASS["r.cost nearest"]))
    assert_same_directions(found.backlink(), GRASS["r.cost outdir"])
    way = tuple(found.path(0, 8)[::-1].T)
    costs = found.distance()[way] / WIDTH
    for flags, values in {
        "-dn": np.arange(1, len(costs) + 1),
        "-dc": costs,
        "-da": np.cumsum(costs),
    }.items():
        along = np.full(found.grid.shape, np.nan)
        along[way] = values
        np.testing.assert_allclose(along, GRASS[f"r.drain {flags}"], rtol=SAME)


def assert_same_directions(codes, degrees):
    """D8 codes, clockwise from east, and degrees counterclockwise."""
    moved = (codes > 0) & (codes < 255)
    np.testing.assert_array_equal(360 - 45 * np.log2(codes[moved]), degrees[moved])
    assert np.isnan(degrees[~moved]).all()


def test_r_cost_max_cost():
    """r.cost leaves costs above the limit that are not final; the others are the same."""
    found = r_cost(GRASS["friction"], STARTS, max_cost=12 * WIDTH).distance() / WIDTH
    theirs = GRASS["r.cost max_cost=12"]
    np.testing.assert_allclose(found, np.where(theirs <= 12, theirs, np.nan), rtol=SAME)
    assert (theirs > 12).any()


def test_r_cost_null_cost():
    """The flag -n then leaves cells without friction out of the result, but not of the ways."""
    friction = GRASS["friction"]
    found = r_cost(np.where(np.isnan(friction), 2, friction), STARTS).distance() / WIDTH
    np.testing.assert_allclose(found, GRASS["r.cost null_cost=2"], rtol=SAME)
    kept = np.where(np.isnan(friction), np.nan, found)
    np.testing.assert_allclose(kept, GRASS["r.cost -n null_cost=2"], rtol=SAME)


def test_r_cost_start_values():
    """With -r, costs begin with the values of the raster; they are also the ids of the starts."""
    starts = [(r, c, cost * WIDTH) for r, c, cost in VALUED]
    found = r_cost(GRASS["friction"], starts, allocation=True)
    np.testing.assert_allclose(found.distance() / WIDTH, GRASS["r.cost -r"], rtol=SAME)
    ids = np.array([np.nan, 3, 7])[found.allocation()]
    np.testing.assert_array_equal(ids, GRASS["r.cost -r nearest"])


def test_r_cost_stop():
    """Both stop at the target; r.cost leaves costs of cells that are not final yet."""
    stop = (5, 3)
    how = {"targets": [stop], "stop_at_targets": True}
    found = r_cost(GRASS["friction"], STARTS[:1], **how).distance() / WIDTH
    theirs = GRASS["r.cost stop_coordinates"]
    near = np.where(theirs <= theirs[stop], theirs, np.nan)
    np.testing.assert_allclose(found, near, rtol=SAME)


def test_r_cost_all_directions(tmp_path):
    """With -b, on a plain with three voids: bits from the north-east clockwise.

    Here steps of 8 and 10 add up without rounding. In widths of a cell, 0.8 has no exact sum, so
    r.cost misses some ties.
    """
    ones = np.where(np.isnan(GRASS["friction"]), np.nan, 1.0)
    store = make_store(tmp_path / "s.zarr", ones, np.nan, 64, cell=(WIDTH, 8.0))
    found = shortest_paths(
        store, STARTS[:1], cost="friction", friction="elevation", backlink=True
    ).distance()
    np.testing.assert_allclose(found / WIDTH, GRASS["r.cost of ones"], rtol=SAME)
    ties = whole(tied_steps(store).layers["ties"]).astype(int)
    theirs = np.nan_to_num(GRASS["r.cost -b of ones outdir"]).astype(int)
    turned = theirs >> 1 | (theirs & 1) << 7  # see docs/how-to/other-tools.md for the way back
    np.testing.assert_array_equal(turned & ~ties, 0)
    np.testing.assert_array_equal(turned > 0, ties > 0)
    assert (ties == turned).mean() > 0.75
    assert (turned & turned - 1).any()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("r.walk", {}),
        (
            "r.walk lambda=0.5 slope_factor=-0.1 walk_coeff=0.5,4,1.5,-1",
            {"lam": 0.5, "slope_factor": -0.1, "a": 0.5, "b": 4, "c": 1.5, "d": -1},
        ),
        ("r.walk null_cost=2", {}),
        ("r.walk -r", {}),
    ],
)
def test_r_walk(name, how):
    friction = GRASS["friction"]
    if "null" in name:
        friction = np.where(np.isnan(friction), 2, friction)
    found = walked(
        friction, VALUED if "-r" in name else STARTS, heights=GRASS["heights"], cost="langmuir",
        cell_size=(WIDTH, 8), parameters=how, backlink=True,
    )  # fmt: skip
    np.testing.assert_allclose(found.distance(), GRASS[name], rtol=SAME)
    if name == "r.walk":
        assert_same_directions(found.backlink(), GRASS["r.walk outdir"])


def test_example_of_the_manual_of_r_cost():
    """Rounded costs as its page shows them, without -k."""
    friction = """2 2 1 1 5 5 5
                  2 2 8 8 5 2 1
                  7 1 1 8 2 2 2
                  8 7 8 8 8 8 5
                  8 8 1 1 5 3 9
                  8 1 1 2 5 3 9"""
    costs = """22 21 21 20 17 15 14
               20 19 22 20 15 12 11
               22 18 17 18 13 11 9
               21 14 13 12 8 6 6
               16 13 8 7 4 0 6
               14 9 8 9 6 3 8"""
    values, expected = (
        np.array([line.split() for line in text.splitlines()], float) for text in (friction, costs)
    )
    found = walked(values, [(4, 5)]).distance()
    np.testing.assert_array_equal(np.floor(found + 0.5), expected)
