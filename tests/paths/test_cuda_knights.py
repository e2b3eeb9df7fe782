"""16 neighbours, seams and the continuous metric on a GPU: the same bits as on the CPU.

Runs without a GPU, too, in emulated lanes.
"""

from __future__ import annotations

import itertools
import shutil

import emulation
import numpy as np
import pytest
import strategies
from effort import only_long
from hypothesis import given
from hypothesis import strategies as st
from region_plans import in_regions
from samples import make_layers, round_the_earth
from strategies import WGS84, shapes
from test_cuda_paths import ALL, assert_equal, both

from terrain_gpu import GridSpec, InputError, TileStore, shortest_paths
from terrain_gpu.cuda import device
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.io.places import from_rowcol
from terrain_gpu.paths.cost.continuous import ratios_of
from terrain_gpu.paths.proof import verify_stored
from terrain_gpu.paths.relax import continuous as front
from terrain_gpu.paths.relax.gpu import relaxing
from terrain_gpu.paths.relax.gpu.regions import RegionSpill
from terrain_gpu.paths.relax.relaxation import Relaxation

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")


@pytest.fixture(scope="module")
def lanes(kernels):
    """A GPU, or a stand-in for one until the end of the module."""
    if device.why_not() is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        emulation.in_lanes(patch, kernels)
        yield
    emulation.forget()


COSTS = {
    "friction": {"cost": "friction", "friction": "friction"},
    "slope": {"cost": "tobler", "reverse": True},
    "absdiff": {"cost": "absdiff"},
    "minimax": {"cost": "minimax"},
    "formula": {"cost": "(friction + 4) * length - dz", "friction": "friction", "reverse": True},
    "walls": {"cost": "absdiff", "barriers": "walls", "corner_cutting": False},
    "edge": {"cost": "surface", "source_edge": True},
}


def world(shape, seed=1):
    rng = np.random.default_rng(seed)
    z = rng.integers(0, 5, shape).astype(np.int16)
    z[shape[0] // 3 : shape[0] // 2, : shape[1] // 2] = -1
    friction = rng.integers(1, 9, z.shape).astype(np.uint8)
    walls = (rng.random(z.shape) < 0.2).astype(np.uint8)
    z[-1, -1], walls[-1, -1] = 1, 0
    good = np.argwhere((z >= 0) & (walls == 0))
    places = good[rng.permutation(len(good))[:3]].tolist()
    return z, {"friction": friction, "walls": walls}, [tuple(p) for p in places]


def as_the_cpu(shape, mode, *, seed=1, **how):
    z, layers, places = world(shape, seed)
    more = {k: layers.get(v, v) if isinstance(v, str) else v for k, v in COSTS[mode].items()}
    more["cost"] = COSTS[mode]["cost"]
    how = {"threads": 1, "block_size": 64, **how}  # kernels cannot be emulated side by side
    return both(z, places, nodata=-1, **more, **how)


@pytest.fixture(params=[None, only_long((1, 1)), (2, 1)], ids=str)
def regions(request, monkeypatch):
    """The GPU uses regions of so many rows and columns of blocks, or one for the whole raster."""
    if request.param is not None:
        in_regions(monkeypatch, *request.param)


@pytest.mark.parametrize("mode", COSTS)
@pytest.mark.parametrize("shape", [only_long((40, 33)), (67, 131), only_long((130, 64))])
def test_across_the_seam(lanes, regions, mode, shape):
    found = as_the_cpu(shape, mode, wrap="yes")
    assert found.report.result["wrap"] is True


@pytest.mark.parametrize("mode", COSTS)
@pytest.mark.parametrize("shape", [only_long((40, 33)), (65, 130), only_long((129, 66))])
def test_16_neighbours(lanes, regions, mode, shape):
    as_the_cpu(shape, mode, connectivity=16)


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("flip", [False, True])
def test_a_move_over_a_corner(lanes, regions, monkeypatch, turns, flip):
    """A cell beside a corner of tiles is lowered late, and only a knight's move carries it on."""
    monkeypatch.setattr(relaxing, "_FILL", 50.0)  # all tiles at once, not in order
    f = np.full((128, 128), np.nan)
    f[63, 64] = f[64, 64] = 1
    f[63, 63] = f[64, 65:120] = 1e-6
    starts = np.full(f.shape, np.nan)
    starts[64, 119], starts[63, 64], starts[64, 64] = 10, 10.65, 10.45
    f, starts = (np.rot90(a.T if flip else a, turns).copy() for a in (f, starts))
    sources = [(int(r), int(c), starts[r, c]) for r, c in np.argwhere(~np.isnan(starts))]
    how = {"cost": "friction", "friction": f, "connectivity": 16, "threads": 1, "block_size": 64}
    found = both(f, sources, **how)
    assert found.distance()[~np.isnan(f)].max() == pytest.approx(10 + 5**0.5 / 2, abs=1e-3)


# Of few kernels: each has to be compiled.
MODES = ["friction", "absdiff", "walls", "edge"]
NEIGHBOURS = {"16": {"connectivity": 16}, "seam": {"wrap": "yes"}}
NEIGHBOURS["both"] = NEIGHBOURS["16"] | NEIGHBOURS["seam"]


@pytest.mark.parametrize("way", NEIGHBOURS)
@given(
    shape=shapes(200, 6000).filter(lambda shape: shape[1] >= 5),
    mode=st.sampled_from(MODES),
    sides=st.tuples(*[st.sampled_from([1, 2, 9])] * 2),
    block=st.sampled_from([64, 128]),
    bound=st.sampled_from([None, 4.0, 12.5]),
    fill=st.sampled_from([1.0, 50.0]),
    seed=st.integers(0, 99),
)
def test_any_shape(lanes, way, shape, mode, sides, block, bound, fill, seed):
    with pytest.MonkeyPatch.context() as patch:
        in_regions(patch, *sides)
        patch.setattr(relaxing, "_FILL", fill)
        how = {**NEIGHBOURS[way], "max_cost": bound, "block_size": block}
        as_the_cpu(shape, mode, seed=seed, **how)


@pytest.mark.parametrize("cols", [65, 129])
@pytest.mark.parametrize("side", [1, 2])
def test_moves_pass_a_block_of_one_column(lanes, monkeypatch, cols, side):
    """In a maze whose ways cross the seam by moves over a last block of one column."""
    in_regions(monkeypatch, side)
    rng = np.random.default_rng(cols)
    f = np.where(rng.random((70, cols)) < 0.42, np.nan, rng.integers(1, 99, (70, cols)))
    f[:, 20:40] = np.nan
    f[20, 41] = 1
    how = {"cost": "friction", "friction": f, "threads": 1, "block_size": 64}
    found = both(f, [(20, 41)], **NEIGHBOURS["both"], **how)
    assert np.isfinite(found.distance()[:, :20]).any()


@pytest.mark.parametrize("way", NEIGHBOURS)
@pytest.mark.parametrize("cost", ["absdiff", "minimax"])
def test_flats(lanes, regions, way, cost):
    """Plateaus, on which backlinks follow hops, between walls that lead round."""
    z = np.zeros((131, 140), np.int16)
    z[:, 40:90] = 3
    walls = strategies._spiral(z.shape)
    walls[::3] = False
    both(z, [(60, 2)], cost=cost, barriers=walls, threads=1, block_size=64, **NEIGHBOURS[way])


@pytest.mark.parametrize("way", NEIGHBOURS)
def test_blocks_are_read_where_they_are_needed(lanes, monkeypatch, way):
    """Regions of many blocks, which are visited again and again, up to a target."""
    in_regions(monkeypatch, 3)
    z, _, places = world((200, 390))
    targets = from_rowcol(GridSpec(*z.shape), places[1:2])
    how = {"cost": "surface", "targets": targets, "stop_at_targets": True, **NEIGHBOURS[way]}
    result = both(z, places[:1], nodata=-1, threads=1, block_size=64, **how).report.result
    assert result["regions"] == 6
    assert result["region_visits"] > 6


@pytest.fixture
def stored(tmp_path, no_fsync):
    """A store of a raster of the whole Earth, and sources."""
    z, _, places = world((140, 200))
    make_layers(tmp_path / "s.zarr", round_the_earth(z.shape), {"elevation": z})
    return tmp_path / "s.zarr", places


STORED = {"16": {"connectivity": 16, "wrap": "no"}, "seam": {"wrap": "auto"}}
STORED["both"] = {"connectivity": 16, "wrap": "auto"}


@pytest.mark.parametrize("way", STORED)
@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda")])
def test_a_stopped_run_goes_on_elsewhere(lanes, stored, monkeypatch, way, first, second):
    in_regions(monkeypatch, 2)
    how = {"threads": 1, "cost": "surface", **STORED[way], **ALL}
    home, name = {"cuda": (RegionSpill, "save"), "cpu": (Relaxation, "_visit")}[first]
    work, count = getattr(home, name), itertools.count()

    def failing(self, *given):
        if next(count) == 5:
            raise KeyboardInterrupt
        return work(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(home, name, failing)
        with pytest.raises(KeyboardInterrupt):
            shortest_paths(*stored, **how, backend=first)
    found = shortest_paths(*stored, **how, backend=second, resume=True)
    assert found.report.settings["backend"] == second
    assert not (stored[0] / ".incomplete").exists()
    assert_equal(found, shortest_paths(*stored, **how, backend="cpu", into="whole"))


@pytest.mark.parametrize("way", STORED)
def test_proofs_are_left_to_the_cpu(lanes, stored, way):
    how = {"threads": 1, "verify": True, **STORED[way]}
    result = shortest_paths(*stored, **how, backend="cuda").report.result
    assert result["wrap"] == (way != "16")
    assert result["verified_on"] == "cpu"
    found = verify_stored(TileStore.open(stored[0]), backend="cuda", threads=1)
    assert found["backend"] == "cpu"


@pytest.mark.parametrize("col", [0, 69])
def test_a_cell_that_is_also_beyond_the_seam_is_named(lanes, col):
    f = np.ones((9, 70))
    f[4, col] = -1
    for backend in ("cuda", "cpu"):
        with pytest.raises(InputError, match=rf"friction -1\.0 at row 4, column {col} is negative"):
            shortest_paths(f, [(0, 30)], cost="friction", friction=f, wrap="yes", backend=backend)


@pytest.mark.parametrize("way", NEIGHBOURS)
def test_a_negative_cost_is_named_as_by_the_cpu(lanes, regions, way):
    """Of the cells in the last block, none of which is near the source."""
    z = np.zeros((130, 140), np.int16)
    z[:, 40:120] = -1
    z[129, 138] = 11
    how = {**COSTS["formula"], "friction": np.full(z.shape, 5, np.uint8), **NEIGHBOURS[way]}
    how |= {"nodata": -1, "block_size": 64, "threads": 1}
    for backend in ("cuda", "cpu"):
        with pytest.raises(InputError, match=r"the step .* to row 129, column 138 costs -2, but"):
            shortest_paths(z, [(3, 130)], backend=backend, **how)
    z[129, 138] = 8
    both(z, [(3, 130)], **how)


# -- the continuous metric -------------------------------------------------------------------------


def by_the_continuous_metric(shape, seed=1, **how):
    """Frictions of many sizes, with gaps and walls between some."""
    rng = np.random.default_rng(seed)
    f = (10.0 ** rng.integers(-3, 3, shape)).astype(np.float32)
    f[:, ::5] = 1
    f[rng.random(shape) < 0.1] = np.nan
    walls = rng.random(shape) < 0.1
    good = np.argwhere(~np.isnan(f) & ~walls)
    sources = [(*good[k].tolist(), 2.5 * k) for k in rng.integers(len(good), size=2)]
    how = {"cost": "friction", "friction": f, "barriers": walls, "metric": "continuous", **how}
    how = {"threads": 1, "block_size": 64, "cell_size": (1.0, 0.75), **how}
    found = [shortest_paths(f, sources, **how, backend=b) for b in ("cuda", "cpu")]
    assert [f.report.settings["backend"] for f in found] == ["cuda", "cpu"]
    assert strategies.same_bits(*(f.distance() for f in found))
    return found[0]


@given(
    shape=shapes(200, 6000).filter(lambda shape: shape[1] >= 3 and np.prod(shape) > 9),
    sides=st.tuples(*[st.sampled_from([1, 2, 9])] * 2),
    wrap=st.sampled_from(["yes", "no"]),
    bound=st.sampled_from([None, 12.5]),
    fill=st.sampled_from([1.0, 50.0]),
    seed=st.integers(0, 99),
)
def test_the_continuous_metric(lanes, shape, sides, wrap, bound, fill, seed):
    with pytest.MonkeyPatch.context() as patch:
        in_regions(patch, *sides)
        patch.setattr(relaxing, "_FILL", fill)
        by_the_continuous_metric(shape, seed, wrap=wrap, max_cost=bound)


def test_the_continuous_metric_around_corners(lanes, regions):
    assert by_the_continuous_metric((65, 70), corner_cutting=False, verify=True).reached > 2000


def test_ratios_have_the_bits_of_the_cpu():
    lengths = step_lengths(GridSpec(80, 9, (40.0, 0, 0, 0, -2.0, 91), WGS84))
    lengths = np.pad(lengths, ((0, 0), (1, 65)), mode="edge")
    for row in (0, 16):
        theirs = front._front(lengths, row).ratios
        mine = ratios_of(lengths)[:, row + 1 : row + 65].reshape(8, 7, 64).swapaxes(1, 2)
        assert strategies.same_bits(np.ascontiguousarray(mine), theirs)


def test_a_friction_that_is_none_is_named_as_by_the_cpu(lanes):
    f = np.ones((9, 70), np.float32)
    f[4, 69] = 0
    how = {"metric": "continuous", "cost": "friction", "friction": f}
    for backend in ("cuda", "cpu"):
        with pytest.raises(InputError, match="the friction at row 4, column 69 is less than 1e-30"):
            shortest_paths(f, [(0, 30)], backend=backend, **how)


@pytest.mark.gpu
@pytest.mark.parametrize("wrap", ["yes", "no"])
@pytest.mark.parametrize("shape", [(700, 1100), (3, 5000), (3001, 33)])
def test_large_continuous(regions, shape, wrap):
    by_the_continuous_metric(shape, wrap=wrap, threads=4, block_size=256)


@pytest.mark.gpu
@pytest.mark.parametrize("way", NEIGHBOURS)
@pytest.mark.parametrize("mode", COSTS)
@pytest.mark.parametrize("shape", [(700, 1100), (3, 5000), (3001, 33)])
def test_large(mode, shape, way):
    as_the_cpu(shape, mode, threads=4, **NEIGHBOURS[way])


@pytest.mark.gpu
@pytest.mark.parametrize("way", NEIGHBOURS)
def test_large_regions(regions, way):
    for mode in COSTS:
        as_the_cpu((700, 1100), mode, threads=4, block_size=256, **NEIGHBOURS[way])
