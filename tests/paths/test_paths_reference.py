"""Step lengths against other formulas; the reference of cost distance by hand and by scipy."""

from __future__ import annotations

import math

import numba
import numpy as np
import pytest
import reference
from effort import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rasterio.crs import CRS
from reference import TOWARD, allocation, backlinks, dijkstra, edge_cost
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra as scipy_dijkstra
from strategies import MODELS, WGS84, cost_problems, rasters, shapes

from terrain_gpu.errors import InputError
from terrain_gpu.grid import GridSpec
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.paths.cost import edges
from terrain_gpu.paths.cost import models as costs

# -- lengths -------------------------------------------------------------------------------


def degrees(rows, step, top, crs="EPSG:4326"):
    """A grid of square cells whose first row is centred on latitude `top`."""
    wkt = CRS.from_user_input(crs).to_wkt(version="WKT2_2019")
    return GridSpec(rows, 2, (step, 0.0, 7.0, 0.0, -step, top + step / 2), wkt)


def vincenty(lat1, lon1, lat2, lon2, a=6378137.0, f=1 / 298.257223563):
    """Geodesic in metres; Vincenty 1975, inverse formula."""
    b, lon = a * (1 - f), math.radians(lon2 - lon1)
    u1, u2 = (math.atan((1 - f) * math.tan(math.radians(p))) for p in (lat1, lat2))
    s1, c1, s2, c2 = math.sin(u1), math.cos(u1), math.sin(u2), math.cos(u2)
    lam = lon
    for _ in range(20):
        sin = math.hypot(c2 * math.sin(lam), c1 * s2 - s1 * c2 * math.cos(lam))
        cos = s1 * s2 + c1 * c2 * math.cos(lam)
        sigma = math.atan2(sin, cos)
        sin_alpha = c1 * c2 * math.sin(lam) / sin
        cos2 = 1 - sin_alpha**2
        mid = cos - 2 * s1 * s2 / cos2 if cos2 else 0.0
        c = f / 16 * cos2 * (4 + f * (4 - 3 * cos2))
        bend = sigma + c * sin * (mid + c * cos * (2 * mid**2 - 1))
        lam = lon + (1 - c) * f * sin_alpha * bend
    uu = cos2 * (a**2 - b**2) / b**2
    big_a = 1 + uu / 16384 * (4096 + uu * (uu * (320 - 175 * uu) - 768))
    big_b = uu / 1024 * (256 + uu * (uu * (74 - 47 * uu) - 128))
    cubic = big_b / 6 * mid * (4 * sin**2 - 3) * (4 * mid**2 - 3)
    return b * big_a * (sigma - big_b * sin * (mid + big_b / 4 * (cos * (2 * mid**2 - 1) - cubic)))


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ((1.0, 0.0, 0.0, 0.0, -1.0, 0.0), (1, math.sqrt(2), 1, math.sqrt(2))),
        ((3.0, 0.0, 9.0, 0.0, -4.0, 7.0), (3, 5, 4, 5)),
        ((-12.0, 0.0, 9.0, 0.0, 5.0, 7.0), (12, 13, 5, 13)),
    ],
)
@pytest.mark.parametrize("crs", [None, "EPSG:32633", "EPSG:2264"])
def test_planar_lengths_are_map_units(transform, expected, crs):
    wkt = CRS.from_user_input(crs).to_wkt() if crs else ""
    found = step_lengths(GridSpec(3, 2, transform, wkt))
    assert found.dtype == np.float64
    assert np.array_equal(found, np.repeat(np.array(expected, float)[:, None], 3, axis=1))


def test_rotated_grids_are_refused_at_the_door():
    with pytest.raises(InputError, match="gdalwarp"):
        GridSpec(3, 2, (1.0, 0.1, 7.0, 0.1, -1.0, 50.0), WGS84)


def test_one_degree_on_wgs84():
    east, _, south, _ = step_lengths(degrees(91, 1.0, 90.0))
    assert east[90] == pytest.approx(111_319.491, abs=1e-3)
    assert east[30] == pytest.approx(55_800.0, abs=1)
    assert east[0] == pytest.approx(0, abs=1e-6)
    assert south[89] == pytest.approx(110_574.3886, abs=1e-3)
    assert south[0] == pytest.approx(vincenty(90, 0, 89, 0), abs=1e-3)
    assert round(south[0]) == 111_694
    assert south[:90].sum() == pytest.approx(10_001_965.7293, abs=1e-4)


def test_a_step_may_be_a_quadrant():
    assert step_lengths(degrees(2, 90.0, 90.0))[2, 0] == pytest.approx(10_001_965.7293, abs=1e-4)


@given(
    top=st.floats(-85, 85),
    step=st.sampled_from([1e-6, 1 / 3600, 1 / 1200, 1 / 120]),
    rows=st.integers(1, 4),
)
def test_small_cells_agree_with_vincenty(top, step, rows):
    found = step_lengths(degrees(rows, step, top))
    for r in range(rows):
        lat = top - r * step
        for k, (dr, dc) in enumerate(reference.FORWARD):
            expected = vincenty(lat, 0, lat - dr * step, dc * step)
            assert found[k, r] == pytest.approx(expected, rel=1e-6), (lat, k)


@pytest.mark.parametrize(
    ("crs", "unit", "axis", "inverse"),
    [
        ("EPSG:4267", 1, 6378206.4, 294.978698213898),
        ("EPSG:4807", 0.9, 6378249.2, 293.466021293627),
        ("EPSG:4979", 1, 6378137.0, 298.257223563),
        ("EPSG:4326+5773", 1, 6378137.0, 298.257223563),
        ("ESRI:104905", 1, 3396190.0, 169.894447223612),
        ("+proj=longlat +R=6371000 +no_defs", 1, 6371000.0, math.inf),
        ("+proj=longlat +ellps=bessel +towgs84=1,2,3 +no_defs", 1, 6377397.155, 299.1528128),
        (
            'GEOGCRS["feet",DATUM["d",ELLIPSOID["a ""b"", c",20926202,298.257,LENGTHUNIT["foot",'
            '0.3048]]],CS[ellipsoidal,2],AXIS["lat",north],AXIS["lon",east],ANGLEUNIT["degree",'
            "0.017453292519943295]]",
            *(1, 20926202 * 0.3048, 298.257),
        ),
    ],
)
def test_ellipsoids_and_angles_of_the_crs(crs, unit, axis, inverse):
    lat, step = 50.0, 0.01
    found = step_lengths(degrees(1, step, lat, crs))[:, 0]
    for k, (dr, dc) in enumerate(reference.FORWARD):
        ends = lat * unit, 0, (lat - dr * step) * unit, dc * step * unit
        assert found[k] == pytest.approx(vincenty(*ends, a=axis, f=1 / inverse), rel=1e-6)


def test_south_up_grids_mirror_north_up_ones():
    north_up = degrees(90, 0.5, 60.0)
    a, b, c, d, e, f = north_up.transform
    south_up = GridSpec(90, 2, (-a, b, c, d, -e, f + 90 * e), north_up.crs_wkt)
    up, down = step_lengths(north_up), step_lengths(south_up)
    np.testing.assert_allclose(down[0, ::-1], up[0], rtol=1e-12)
    np.testing.assert_allclose(down[1:, -2::-1], up[1:, :-1], rtol=1e-12)


@pytest.mark.parametrize("top", [90.6, 90.5001, -88.4])
def test_rows_beyond_a_pole(top):
    with pytest.raises(InputError, match=r"row \d is at latitude .* beyond the pole; crop"):
        step_lengths(degrees(3, 1.0, top))


def test_a_row_on_the_pole_but_for_rounding():
    assert step_lengths(degrees(3, 1.0, 90 + 1e-7))[0, 0] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("wkt", "words"),
    [
        ("nonsense", "cannot be read"),
        (CRS.from_proj4("+proj=ob_tran +o_proj=longlat +o_lat_p=30 +R=6371229").to_wkt(), "warp"),
        (WGS84.replace("298.257223563", "0.5"), "impossible"),
    ],
)
def test_crs_without_a_usable_ellipsoid(wkt, words):
    with pytest.raises(InputError, match=words):
        step_lengths(GridSpec(3, 2, (1.0, 0.0, 7.0, 0.0, -1.0, 50.0), wkt))


# -- the reference by hand -----------------------------------------------------------------


def cost(model, za=0, zb=0, f=(None, None), length=1.0, **parameters):
    return edge_cost(model, za, zb, *f, length, **parameters)


def test_edge_costs():
    assert cost("absdiff", 2**63, 1) == 2**63 - 1
    assert cost("absdiff", 0.25, 1.0) == 0.75
    assert cost("absdiff", 1, 5, (1, 2)) == 6.0
    assert cost("friction", f=(1, 2), length=10.0) == 15.0
    assert cost("surface", 4, 0, length=3.0) == 5.0
    assert cost("surface", 4, 0, (2, 4), 3.0) == 15.0
    assert cost("minimax", -3, 5) == cost("minimax", 5, -3) == 5


def test_tobler_is_fastest_on_a_gentle_descent():
    assert cost("tobler", 5, 0, length=100.0) == pytest.approx(60)  # 6 km/h
    assert cost("tobler", length=1000.0) == pytest.approx(3600 / 5.0367, rel=1e-5)
    assert cost("tobler", 0, 5, length=100.0) > cost("tobler", 5, 0, length=100.0)
    assert cost("tobler", 0, 5, (2, 2), 100.0) == 2 * cost("tobler", 0, 5, length=100.0)
    assert cost("tobler", 0, 10_000) == math.inf


def test_exp_has_the_same_bits_when_compiled_and_is_right():
    @numba.njit
    def compiled(x, found):
        for k in range(len(x)):
            found[k] = edges.exponential(x[k])

    rng = np.random.default_rng(4)
    last = 709.782712893384
    x = np.concatenate((rng.uniform(0, 3, 5000), rng.uniform(0, last, 5000), [0, 5e-324, last]))
    found = np.empty_like(x)
    compiled(x, found)
    assert found.tolist() == [reference.exponential(v) for v in x.tolist()]
    assert found.tolist() == [costs.exponential(v) for v in x.tolist()]  # not compiled
    np.testing.assert_allclose(found, np.exp(x), rtol=5e-16)
    beyond = np.array([np.nextafter(last, np.inf), 1e9, np.inf])
    compiled(beyond, beyond)
    assert np.isinf(beyond).all()


def test_langmuir_in_its_three_slopes():
    assert cost("langmuir", 0, 10, length=100.0) == pytest.approx(72 + 60)
    assert cost("langmuir", 10, 0, length=100.0) == pytest.approx(72 - 19.998)
    assert cost("langmuir", 21.25, 0, length=100.0) == pytest.approx(72 - 1.9998 * 21.25)
    assert cost("langmuir", 30, 0, length=100.0) == pytest.approx(72 + 59.994)
    assert cost("langmuir", 0, 0, (2, 4), 10.0, lam=0.5) == pytest.approx(7.2 + 15)
    assert cost("langmuir", 5, 0, length=10.0, a=1, d=-3, slope_factor=-0.4) == 25


def test_langmuir_is_what_r_walk_gives():
    """r.walk of GRASS 8.2.1: start in the upper left corner, cells of 1 x 2, lambda 0.5."""
    z = np.array([[10, 11.5, 9], [10.2, 10, 3]])
    f = np.array([[1, 2, 3], [0, 5, 0.5]])
    lengths = np.array([[1], [math.sqrt(5)], [2], [math.sqrt(5)]]).repeat(2, axis=1)
    found = dijkstra(
        z, "langmuir", [(0, 0, None, 1)], f=f, lengths=lengths, parameters={"lam": 0.5}
    )
    expected = [[0, 10.47, 12.791944898799], [3.14, 4.71004, 20.80364]]
    np.testing.assert_allclose(found.astype(float), expected, rtol=1e-12)


def test_friction_is_what_r_cost_gives():
    """r.cost of GRASS 8.2.1 on the same cells; it measures in widths of a cell, here 1."""
    f = np.array([[1, 2, 3], [0, 5, 0.5]])
    lengths = np.array([[1], [math.sqrt(5)], [2], [math.sqrt(5)]]).repeat(2, axis=1)
    found = dijkstra(np.zeros((2, 3)), "friction", [(0, 0, None, 1)], f=f, lengths=lengths)
    expected = [[0, 1.5, 4], [1, 3.5, 4.295084971875]]
    np.testing.assert_allclose(found.astype(float), expected, rtol=1e-12)


def solve(z, model, sources, *, max_cost=None, **graph):
    z = np.array(z)
    distance = dijkstra(z, model, sources, max_cost=max_cost, **graph)
    codes, hops = backlinks(distance, z, model, sources, **graph)
    return distance.tolist(), codes.tolist(), hops.tolist(), allocation(codes, z, model, sources)


def test_a_strictly_nearer_predecessor_comes_first():
    distance, codes, hops, ids = solve([[0, 1, 1, 2]], "absdiff", [(0, 0, None, 7)])
    assert distance == [[0, 1, 1, 2]]
    assert codes == [[0, 16, 16, 16]]
    assert hops == [[0, 0, 1, 0]]
    assert ids.tolist() == [[7] * 4]


def test_a_flat_is_crossed_by_hops_from_its_rim():
    z = [[0, 9, 9, 9, 0], [0, 0, 0, 0, 0]]
    distance, codes, hops, _ = solve(
        z, "absdiff", [(0, 0, None, 1), (0, 4, None, 2)], connectivity=4
    )
    assert distance == [[0, 9, 9, 9, 0], [0, 0, 0, 0, 0]]
    # Every 9 has a nearer cell below (S, 4); beside the sources, W (16) and E (1) are as near.
    assert codes == [[0, 4, 4, 1, 0], [64, 16, 1, 1, 64]]
    assert hops == [[0, 0, 0, 0, 0], [1, 2, 3, 2, 1]]


def test_the_lowest_of_eight_directions():
    z = np.ones((3, 3), int)
    everyone = [(r, c, None, 1) for r in range(3) for c in range(3) if (r, c) != (1, 1)]
    for k, (dr, dc) in enumerate(TOWARD):
        some = [s for s in everyone if (s[0] - 1, s[1] - 1) in TOWARD[k:]]
        _, codes, _, _ = solve(z, "absdiff", some)
        assert codes[1][1] == 1 << k
        assert codes[1 + dr][1 + dc] == 0


def test_a_dear_source_is_no_root():
    sources = [(0, 0, None, 1), (0, 2, 5, 2), (0, 4, 3, 3), (0, 4, 1, 4), (0, 4, 1, 5)]
    distance, codes, _, ids = solve([[0, 1, 2, 3, 4]], "absdiff", sources)
    assert distance == [[0, 1, 2, 2, 1]]
    assert codes == [[0, 16, 16, 1, 0]]
    assert ids.tolist() == [[1, 1, 1, 4, 4]]


def test_minimax_includes_the_source_and_starts_from_its_height():
    sources = [(0, 0, None, 1), (0, 4, -2, 2)]
    distance, codes, _, ids = solve([[-5, -7, 3, -9, -4]], "minimax", sources)
    assert distance == [[-5, -5, 3, -2, -2]]
    assert codes == [[0, 16, 1, 1, 0]]
    assert ids.tolist() == [[1, 1, 2, 2, 2]]
    assert solve([[-5, -7, 3, -9, -4]], "minimax", sources, reverse=True)[0] == distance


def test_a_source_on_a_pass_of_its_own_height_is_a_root():
    _, codes, _, ids = solve([[4, 1, 4, 1]], "minimax", [(0, 0, None, 1), (0, 2, None, 2)])
    assert codes == [[0, 1, 0, 16]]
    assert ids.tolist() == [[1, 2, 2, 2]]


def test_corners_are_cut_unless_forbidden():
    z, inf = np.zeros((2, 2), int), math.inf
    for barriers in (np.array([[0, 1], [1, 0]], bool), np.array([[1, 0], [0, 1]], bool)):
        start = tuple(np.argwhere(~barriers)[0].tolist())
        end = tuple(np.argwhere(~barriers)[1].tolist())
        for kind in ({"barriers": barriers}, {"valid": ~barriers}):
            sources = [(*start, None, 1)]
            assert dijkstra(z, "surface", sources, **kind)[end] == math.sqrt(2)
            assert dijkstra(z, "surface", sources, corner_cutting=False, **kind)[end] == inf
    barriers = np.array([[0, 1], [0, 0]], bool)
    one = dijkstra(z, "surface", [(0, 0, None, 1)], corner_cutting=False, barriers=barriers)
    assert one[1, 1] == math.sqrt(2)


def test_nodata_and_the_cutoff_leave_cells_unreached():
    z = np.array([[0.0, 1.0, np.nan, 3.0], [1.0, 2.0, np.inf, 3.0]])
    distance, codes, hops, ids = solve(z, "absdiff", [(0, 0, None, 1)], max_cost=1)
    assert distance == [[0, 1, math.inf, math.inf], [1, math.inf, math.inf, math.inf]]
    assert codes == [[0, 16, 255, 255], [64, 255, 255, 255]]
    assert hops == [[0, 0, -1, -1], [0, -1, -1, -1]]
    assert ids.tolist() == [[1, 1, 0, 0], [1, 0, 0, 0]]


def test_reverse_is_the_way_to_the_source():
    z, sources = np.array([[100, 0]]), [(0, 0, None, 1)]
    lengths = np.full((4, 1), 100.0)
    away = dijkstra(z, "langmuir", sources, lengths=lengths)[0, 1]
    back = dijkstra(z, "langmuir", sources, lengths=lengths, reverse=True)[0, 1]
    assert away == pytest.approx(72 + 199.98)
    assert back == pytest.approx(72 + 600)


# -- the reference against scipy, and its own promises -------------------------------------


def scipy_distances(z, f, lengths, sources, *, directed, connectivity):
    """Distances by scipy, on a matrix built from whole slices; surface or tobler times friction."""
    rows, cols = z.shape
    ids = np.arange(z.size).reshape(z.shape)
    us, vs, ws = [], [], []
    for k, (dr, dc) in enumerate(reference.FORWARD):
        if connectivity == 4 and dr and dc:
            continue
        here = (slice(0, rows - dr), slice(max(0, -dc), cols - max(0, dc)))
        there = (slice(dr, rows), slice(max(0, dc), cols - max(0, -dc)))
        length = np.broadcast_to(lengths[k, : rows - dr, None], ids[here].shape)
        for a, b in ((here, there), (there, here)):
            dz = z[b].astype(float) - z[a].astype(float)
            if directed:
                w = length * 3.6 / (6 * np.exp(-3.5 * np.abs(dz / length + 0.05)))
            else:
                w = np.sqrt(length * length + dz * dz)
            us.append(ids[a].ravel())
            vs.append(ids[b].ravel())
            ws.append((w * ((f[a] + f[b]) / 2)).ravel())
    # An extra vertex leads to every source at its start cost, so that scipy has one root.
    us.append(np.full(len(sources), z.size))
    vs.append(np.array([ids[row, col] for row, col, _, _ in sources]))
    ws.append(np.array([start for _, _, start, _ in sources], float))
    graph = coo_matrix(
        (np.concatenate(ws), (np.concatenate(us), np.concatenate(vs))), shape=(z.size + 1,) * 2
    )
    return scipy_dijkstra(graph.tocsr(), indices=z.size)[:-1].reshape(z.shape)


@settings(max_examples=examples(30))
@given(
    raster=rasters(shape=shapes(40, 400), nodata=False, special=False),
    model=st.sampled_from(["surface", "tobler"]),
    reverse=st.booleans(),
    connectivity=st.sampled_from([4, 8]),
    seed=st.integers(0, 2**32 - 1),
)
def test_scipy_agrees(raster, model, reverse, connectivity, seed):
    rng = np.random.default_rng(seed)
    z = raster.cells
    assume(raster.terrain != "bits")
    f, lengths = rng.uniform(0.1, 3, z.shape), rng.uniform(3000, 9000, (4, len(z)))
    places = rng.choice(z.size, min(3, z.size), replace=False)
    sources = [
        (int(p) // z.shape[1], int(p) % z.shape[1], 1.0 + k, k) for k, p in enumerate(places)
    ]
    found = dijkstra(
        z, model, sources, f=f, lengths=lengths, connectivity=connectivity, reverse=reverse
    ).astype(float)
    # Heights turned over turn every slope round, which is what reverse means for tobler.
    heights = -z.astype(float) if reverse else z
    expected = scipy_distances(
        heights, f, lengths, sources, directed=model == "tobler", connectivity=connectivity
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    if model == "surface":
        assert np.array_equal(found, expected)


@settings(max_examples=examples(150))
@given(problem=cost_problems())
def test_distances_are_a_fixed_point_and_predecessors_a_forest(problem):
    p = problem
    distance = dijkstra(p.cells, p.model, p.sources, max_cost=p.max_cost, **p.graph)
    codes, hops = backlinks(distance, p.cells, p.model, p.sources, **p.graph)
    ids = allocation(codes, p.cells, p.model, p.sources)
    starts = reference.seeds(p.cells, p.model, p.sources)
    cutoff = math.inf if p.max_cost is None else p.max_cost
    reached = distance < math.inf
    assert np.array_equal(codes != 255, reached)
    assert np.array_equal(hops >= 0, reached)
    assert np.array_equal(ids > 0, reached)
    assert not reached[~p.valid].any()
    assert all(d <= cutoff for d in distance[reached])
    assert not p.exact or all(type(d) is int for d in distance[reached])
    for cell, (start, name) in starts.items():
        assert distance[cell] <= start or start > cutoff
        if codes[cell] == 0:
            assert (distance[cell], ids[cell]) == (start, name)
    assert {cell for cell in reference.listed(codes == 0)} <= set(starts)
    tight = {}
    for u, steps in reference.arcs(p.cells, p.model, **p.graph).items():
        for v, w, code in steps:
            if reached[u]:
                new = reference.extend(p.model, distance[u], w)
                assert distance[v] <= new or new > cutoff
                if new == distance[v]:
                    tight[v, code] = u
    for v in reference.listed((codes > 0) & reached):
        u = tight[v, int(codes[v])]
        assert ids[u] == ids[v]
        assert (distance[u], hops[u]) < (distance[v], hops[v] + (distance[u] == distance[v]))
        if distance[u] < distance[v]:
            assert hops[v] == 0
        else:
            assert hops[u] == hops[v] - 1
            assert not any(
                distance[other] < distance[v] for (cell, _), other in tight.items() if cell == v
            )


@settings(max_examples=examples(40))
@given(problem=cost_problems())
def test_the_order_of_sources_does_not_matter(problem):
    p = problem
    answers = []
    for sources in (p.sources, p.sources[::-1]):
        distance = dijkstra(p.cells, p.model, sources, **p.graph)
        codes, hops = backlinks(distance, p.cells, p.model, sources, **p.graph)
        ids = allocation(codes, p.cells, p.model, sources)
        answers.append([a.tolist() for a in (distance, codes, hops, ids)])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("model", MODELS)
def test_strategies_reach_every_model(model):
    seen = []

    @settings(max_examples=examples(25), database=None)
    @given(problem=cost_problems(models=[model]))
    def look(problem):
        p = problem
        if p.sources:
            distance = dijkstra(p.cells, p.model, p.sources, **p.graph)
            seen.append((distance < math.inf).sum() - len({s[:2] for s in p.sources}))

    look()
    assert max(seen) > 100
