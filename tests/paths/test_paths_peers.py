"""Shortest paths against other programs, on real rasters: scikit-image, and r.cost and r.walk."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import numpy as np
import pytest
import rasterio
from samples import DEMS

from terrain_gpu import shortest_paths

NAMES = sorted(p.name for p in DEMS.glob("*.*") if p.suffix != ".md")
SIDE = 400
CELL = 10.0, 8.0
"""Width and height in the tests of GRASS: not square, so that it shows which one counts."""
MAPS = "cost", "near", "dir", "walk"

pytestmark = pytest.mark.skipif(not NAMES, reason=f"no rasters in {DEMS}")


def most_varied(void: np.ndarray) -> tuple[slice, slice]:
    """The window of at most SIDE x SIDE cells whose share of nodata is nearest to a third."""
    rows, cols = (range(0, max(n - SIDE, 0) + 1, SIDE // 2) for n in void.shape)
    windows = [np.s_[r : r + SIDE, c : c + SIDE] for r in rows for c in cols]
    return min(windows, key=lambda window: abs(void[window].mean() - 1 / 3))


@pytest.fixture(scope="module", params=NAMES)
def land(request):
    """Heights and frictions, both NaN where there is no value, and three sources."""
    with rasterio.open(DEMS / request.param) as data:
        cells, masked = data.read(1), data.read_masks(1) == 0
    if cells.dtype.kind == "f":
        masked |= ~np.isfinite(cells)
    part = most_varied(masked)
    heights = np.where(masked[part], np.nan, cells[part].astype(np.float64))
    assert not masked.any() or np.isnan(heights).any()
    # Any real numbers that differ from cell to cell, higher where it is steep.
    rough = np.random.default_rng(1).uniform(0.5, 1, heights.shape)
    steep = np.hypot(*np.gradient(np.nan_to_num(heights)))
    frictions = np.where(np.isnan(heights), np.nan, rough + np.log1p(steep))
    some = np.random.default_rng(2).permutation(np.argwhere(~np.isnan(heights)))[:3]
    return heights, frictions, some.tolist()


@pytest.mark.parametrize("connectivity", [8, 4])
def test_scikit_image_agrees(land, connectivity):
    """MCP_Geometric also multiplies the mean of both costs by the length.

    Version 0.26 gave the same bits; another compiler may fuse operations.
    """
    graph = pytest.importorskip("skimage.graph")
    _, frictions, sources = land
    how = {"cost": "friction", "friction": frictions, "connectivity": connectivity}
    found = shortest_paths(frictions, sources, **how, verify=True)
    impassable = np.nan_to_num(frictions, nan=-1)
    expected, _ = graph.MCP_Geometric(impassable, fully_connected=connectivity == 8).find_costs(
        sources
    )
    expected[~np.isfinite(expected)] = np.nan
    np.testing.assert_allclose(found.distance(), expected, rtol=1e-12)


@pytest.fixture(scope="module")
def walked(land, tmp_path_factory):
    """Heights, frictions and sources, with what r.cost and r.walk make of them."""
    if not shutil.which("grass"):
        pytest.skip("GRASS is not installed")
    folder = tmp_path_factory.mktemp("grass")
    heights, frictions, sources = land
    rows, cols = heights.shape
    width, height = CELL
    for name, cells in (("z", heights), ("f", frictions)):
        cells.tofile(folder / name)
    starts = ",".join(f"{(c + 0.5) * width},{(rows - r - 0.5) * height}" for r, c in sources)
    region = f"north={rows * height} south=0 east={cols * width} west=0 rows={rows} cols={cols}"
    script = folder / "script"
    script.write_text(
        "set -e\n"
        f"r.in.bin -d input=z output=z anull=nan {region} --q\n"
        f"r.in.bin -d input=f output=f anull=nan {region} --q\n"
        "g.region raster=z\n"
        f"r.cost input=f output=cost nearest=near outdir=dir start_coordinates={starts} --q\n"
        f"r.walk elevation=z friction=f output=walk start_coordinates={starts} --q\n"
        + "".join(f"r.out.bin -f input={n} output={n} bytes=8 null=-1 --q\n" for n in MAPS)
    )
    command = ["grass", "--tmp-location", "XY", "--exec", "bash", shlex.quote(script.name)]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {name: np.fromfile(folder / name).reshape(heights.shape) for name in MAPS}
    return *land, {name: np.where(cells < 0, np.nan, cells) for name, cells in found.items()}


def test_r_cost_agrees(walked):
    """It measures lengths in cell widths, we in map units.

    So its sums round differently: GRASS 8.2 differed by up to 2.3e-15 of the cost.
    """
    _, frictions, sources, maps = walked
    how = {"cost": "friction", "friction": frictions, "cell_size": CELL, "allocation": True}
    found = shortest_paths(frictions, sources, **how)
    np.testing.assert_allclose(found.distance(), maps["cost"] * CELL[0], rtol=1e-13)
    np.testing.assert_array_equal(found.allocation(), np.nan_to_num(maps["near"]))
    # Degrees from east, counterclockwise; our codes run clockwise, from 1 for east.
    codes = found.backlink()
    moved = (codes > 0) & (codes < 255)
    degrees = 360 - 45 * np.log2(codes[moved])
    np.testing.assert_array_equal(degrees, maps["dir"][moved])
    assert np.isnan(maps["dir"][~moved]).all()


def test_r_walk_agrees(walked):
    """It adds the parts of a step (up or down, length, friction) to the cost one by one.

    So each step rounds three times, not once: GRASS 8.2 differed by up to 1.1e-14 of the cost.
    """
    heights, frictions, sources, maps = walked
    found = shortest_paths(heights, sources, cost="langmuir", friction=frictions, cell_size=CELL)
    np.testing.assert_allclose(found.distance(), maps["walk"], rtol=1e-13)
