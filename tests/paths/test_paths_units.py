"""Heights and lengths in any unit: models that need metres, slopes and limits convert them."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from rasterio.crs import CRS

from terrain_gpu import (
    GridSpec,
    TileStore,
    build_index,
    create_layer,
    query_index,
    shortest_paths,
    slope,
)
from terrain_gpu.cli.main import group
from terrain_gpu.grid.lengths import metres_per_unit
from terrain_gpu.paths.cost.formula.presets import PRESETS
from terrain_gpu.paths.cost.models import MODELS

FOOT, SURVEY = 0.3048, 1200 / 3937
METRIC = [name for name, model in MODELS.items() if model.metric], [*PRESETS]
CODES = {1.0: 32633, SURVEY: 2264, FOOT: 2994}


def a_store(path, step, heights, unit, vertical="", scale=None):
    """Hills of 20 x 25 cells of 30 m, in a CRS whose unit has `step` metres; heights in `unit`."""
    z = np.add.outer(np.arange(20) ** 2 * 0.5, np.arange(25) * 3 % 17).astype(float)
    wkt = CRS.from_epsg(CODES[step]).to_wkt()
    if vertical:
        wkt = CRS.from_string(f"EPSG:{CODES[step]}+{vertical}").to_wkt()
    side = 30 / step
    grid = GridSpec(20, 25, (side, 0.0, 6e5, 0.0, -side, 2e5), wkt)
    attributes = {"units": unit} if unit else {}
    if scale is not None:
        attributes |= {"scale_factor": scale, "add_offset": 100.0}
    with create_layer(
        path, "elevation", grid, np.dtype("f8"), block_size=64, attributes=attributes
    ) as writer:
        writer.write_block(0, 0, z / heights)
        writer.commit()
    return path


@pytest.fixture
def stores(tmp_path):
    """One terrain in metres, and the same in other units."""
    return [
        a_store(tmp_path / "metres.zarr", 1.0, 1.0, "m"),
        a_store(tmp_path / "feet.zarr", FOOT, FOOT, "ft"),
        a_store(tmp_path / "survey.zarr", SURVEY, SURVEY, "US survey foot"),
        a_store(tmp_path / "mixed.zarr", 1.0, FOOT, "foot"),
        a_store(tmp_path / "vertical.zarr", 1.0, SURVEY, "", vertical="6360"),
        a_store(tmp_path / "scaled.zarr", SURVEY, 0.1, "metre", scale=0.1),
        a_store(tmp_path / "plain.zarr", SURVEY, 1.0, ""),
    ]


@pytest.mark.parametrize("cost", [*METRIC[0], *METRIC[1]])
def test_models_convert_to_metres(stores, caplog, no_fsync, cost):
    found = [
        shortest_paths(store, [(3, 4)], cost=cost, max_slope=0.9).distance() for store in stores
    ]
    for distance in found[1:]:
        assert np.allclose(distance, found[0], rtol=1e-11)
    # Only the one whose heights have no unit.
    assert caplog.text.count("their unit is not recorded; they are treated as metres") == 1


def test_slopes_convert_heights_to_the_unit_of_lengths(stores, no_fsync):
    for store in stores[:-1]:
        slope(store, aspect="aspect", verify=True)
        shortest_paths(store, [(3, 4)], cost="surface", max_slope=0.31, verify=True)
        assert CliRunner().invoke(group, ["verify", str(store)]).exit_code == 0
    read = [
        [TileStore.open(s).layer(n).read_block(0, 0) for n in ("slope", "distance")]
        for s in stores[:-1]
    ]
    for (degrees, lengths), store in zip(read, stores, strict=False):
        metres = metres_per_unit(TileStore.open(store).layer("elevation").grid)
        assert np.allclose(degrees, read[0][0], rtol=1e-6)
        assert np.allclose(lengths * metres, read[0][1], rtol=1e-9, equal_nan=True)


def test_an_index_converts_too(stores, no_fsync):
    right = shortest_paths(stores[0], [(3, 4)], cost="tobler").distance()
    feet = stores[1]
    build_index(feet, cost="tobler", corner_cutting=True)
    found = shortest_paths(feet, [(3, 4)], cost="tobler", method="index")
    assert np.allclose(found.distance(), right, rtol=1e-11)
    assert np.allclose(query_index(feet, [(3, 4)], [(19, 24)]).costs, right[19, 24])
    found = shortest_paths(feet, [(3, 4)], cost="tobler", max_slope=0.9, build_index=True, into="b")
    assert found.report.settings["method"] == "index"
