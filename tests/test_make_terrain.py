"""scripts/make_terrain.py: each cell has one value; options and files work as promised."""

import hashlib
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import rasterio
from click.testing import CliRunner
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

import make_terrain
from make_terrain import NODATA, terrain_window

ALL_ON = {"lakes": True, "holes": True, "coast": True}


def voids(cells):
    return np.isnan(cells) if cells.dtype.kind == "f" else cells == NODATA[cells.dtype.name]


def run(*arguments):
    return CliRunner().invoke(make_terrain.main, [str(a) for a in arguments])


def cut(start, stop, inner):
    edges = [start, *sorted({start + i for i in inner if start + i < stop}), stop]
    return list(pairwise(edges))


@given(
    origin=st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    row_cuts=st.lists(st.integers(1, 39), max_size=4),
    col_cuts=st.lists(st.integers(1, 39), max_size=4),
    options=st.fixed_dictionaries(
        {
            "seed": st.integers(-1, 2**64),
            "dtype": st.sampled_from(list(NODATA)),
            "roughness": st.floats(0, 2),
            "feature_size": st.integers(2, 10_000),
            "lakes": st.booleans(),
            "holes": st.booleans(),
            "coast": st.booleans(),
        }
    ),
)
@settings(max_examples=examples(150), deadline=None)
def test_any_partition_gives_the_same_bits(origin, shape, row_cuts, col_cuts, options):
    (r0, c0), (rows, cols) = origin, shape
    r1, c1 = r0 + rows, c0 + cols
    parts = [
        [terrain_window(*band, *strip, **options) for strip in cut(c0, c1, col_cuts)]
        for band in cut(r0, r1, row_cuts)
    ]
    whole = terrain_window(r0, r1, c0, c1, **options)
    assert whole.shape == shape
    assert np.block(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    ("options", "digest"),
    [
        ({"dtype": "float64"}, "3fae7f510f5363adb42c5df6985e94c0137eae43df3cb26eb1e1a8e5ef8549e4"),
        (
            {"dtype": "int16", "feature_size": 64, **ALL_ON},
            "72c9d7ecbe300cabf885e937c8778e2934fce116d949305cf7aa68a29715cf22",
        ),
    ],
)
def test_cells_never_change(options, digest):
    """Pinned: benchmarks of different machines and releases must run on the same cells."""
    cells = terrain_window(2**31 - 50, 2**31 + 50, 2**33 - 50, 2**33 + 50, **options)
    assert hashlib.sha256(cells.astype(cells.dtype.newbyteorder("<"))).hexdigest() == digest


def test_far_cells_vary_and_do_not_wrap():
    near, far = (terrain_window(0, 64, c, c + 64) for c in (0, 2**32))
    assert np.unique(far).size > 4000
    assert not np.array_equal(near, far)


def test_seeds_give_independent_terrain():
    one, two = (terrain_window(0, 512, 0, 512, seed=s, feature_size=16).ravel() for s in (1, 2))
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.05


@pytest.mark.parametrize("dtype", NODATA)
def test_heights_fit_the_relief_and_use_most_of_it(dtype):
    cells = terrain_window(0, 1024, 0, 1024, dtype=dtype, feature_size=128, relief=500)
    assert cells.dtype == dtype
    assert 0 <= cells.min() < 100
    assert 400 < cells.max() <= 500


@pytest.mark.parametrize(("dtype", "relief"), [("int16", 32767), ("uint16", 65535)])
def test_relief_beyond_the_dtype_is_refused(dtype, relief):
    assert not voids(terrain_window(0, 64, 0, 64, dtype=dtype, relief=relief - 1)).any()
    with pytest.raises(ValueError, match="does not fit"):
        terrain_window(0, 64, 0, 64, dtype=dtype, relief=relief)


def test_lower_hurst_exponent_is_rougher():
    steps = [
        np.abs(np.diff(terrain_window(0, 512, 0, 512, roughness=h))).mean()
        for h in (1.2, 0.8, 0.4, 0.0)
    ]
    assert steps == sorted(steps)
    assert steps[-1] > 20 * steps[0]


def test_lakes_are_plateaus_of_equal_heights():
    dry, wet = (
        terrain_window(0, 1024, 0, 1024, dtype="float64", feature_size=512, lakes=lakes)
        for lakes in (False, True)
    )
    lake = wet > dry
    assert (np.diff(dry) == 0).mean() < 1e-4
    assert 0.05 < lake.mean() < 0.2
    assert (wet >= dry).all()
    _, sizes = np.unique(wet[lake], return_counts=True)
    assert sizes.max() > 1000


@pytest.mark.parametrize("dtype", NODATA)
def test_holes_are_two_percent_in_irregular_voids(dtype):
    whole, holed = (terrain_window(0, 2048, 0, 2048, dtype=dtype, holes=h) for h in (False, True))
    void = voids(holed)
    assert not voids(whole).any()
    assert 0.01 < void.mean() < 0.03
    assert np.array_equal(whole[~void], holed[~void])
    labels, count = ndimage.label(void)
    assert count > 100
    assert np.bincount(labels.ravel())[1:].max() > 500


@pytest.mark.parametrize("dtype", NODATA)
def test_coast_is_half_the_raster_in_big_parts(dtype):
    cells = terrain_window(0, 1024, 0, 1024, dtype=dtype, feature_size=64, coast=True)
    sea = voids(cells)
    assert 0.4 < sea.mean() < 0.6
    assert cells[~sea].min() < 10
    for part in (sea, ~sea):
        sizes = np.bincount(ndimage.label(part)[0].ravel())[1:]
        assert sizes[sizes > 1000].sum() > 0.9 * part.sum()


@pytest.mark.parametrize("dtype", NODATA)
@pytest.mark.parametrize(
    "layout", [[], ["--strips"], ["--compress", "deflate"], ["--strips", "--compress", "deflate"]]
)
def test_geotiff_reads_back(tmp_path, dtype, layout):
    out = tmp_path / "out.tif"
    result = run(
        "1100x1303", out, "--dtype", dtype, "--seed", 5, "--holes", "--threads", 2, *layout
    )
    assert result.exit_code == 0, result.output
    expected = terrain_window(0, 1100, 0, 1303, seed=5, dtype=dtype, holes=True)
    with rasterio.open(out) as src:
        np.testing.assert_array_equal(src.read(1), expected)
        assert np.array_equal(src.read_masks(1) == 0, voids(expected))
        assert src.profile["tiled"] == ("--strips" not in layout)
        assert src.crs == "EPSG:32633"
        assert src.transform[:6] == make_terrain.TRANSFORM
    assert [p.name for p in tmp_path.iterdir()] == ["out.tif"]


def test_geotiff_bytes_do_not_depend_on_threads(tmp_path):
    for threads in (1, 3):
        assert run("2100x1030", tmp_path / f"{threads}.tif", "--threads", threads).exit_code == 0
    assert (tmp_path / "1.tif").read_bytes() == (tmp_path / "3.tif").read_bytes()


def test_store_reads_back(tmp_path):
    store = pytest.importorskip("terrain_gpu.store")
    out = tmp_path / "out"
    arguments = ["300x517", out, "--dtype", "int16", "--coast", "--feature-size", 64]
    result = run(*arguments, "--block-size", 128, "--threads", 2)
    assert result.exit_code == 0, result.output
    layer = store.TileStore.open(out).layer("elevation")
    expected = terrain_window(0, 300, 0, 517, dtype="int16", coast=True, feature_size=64)
    np.testing.assert_array_equal(layer.read_window(0, 300, 0, 517), expected)
    assert (layer.nodata, layer.block_size, layer.grid.crs_code) == (-9999, 128, "EPSG:32633")


def test_few_blocks_wait_for_a_slow_writer():
    started = []
    results = make_terrain._in_order(lambda i: started.append(i) or i, list(range(100)), 2)
    for consumed, i in enumerate(results):
        assert i == consumed
        assert len(started) <= consumed + 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["10x", "new.tif"], "ROWSxCOLS"),
        (["0x10", "new.tif"], "ROWSxCOLS"),
        (["10x10", "old.tif"], "--overwrite"),
        (["10x10", "new.tif", "--dtype", "int16", "--relief", "40000"], "does not fit"),
    ],
)
def test_refusals_name_the_remedy_and_write_nothing(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("old.tif").write_text("kept")
    result = run(*arguments)
    assert result.exit_code != 0
    assert message in result.output
    assert [p.name for p in tmp_path.iterdir()] == ["old.tif"]
    assert Path("old.tif").read_text() == "kept"


def test_overwrite_replaces(tmp_path):
    out = tmp_path / "out.tif"
    for seed in (1, 2):
        assert run("20x30", out, "--seed", seed, "--overwrite").exit_code == 0
    with rasterio.open(out) as src:
        assert np.array_equal(src.read(1), terrain_window(0, 20, 0, 30, seed=2))
