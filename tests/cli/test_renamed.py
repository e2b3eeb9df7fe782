"""Former names of options, and numbers without a unit: they work, with a line about them."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from programs import forked

import terrain_gpu
from terrain_gpu import InputError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.store import create_layer


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    heights = np.add.outer(np.arange(20, 0, -1), np.abs(np.arange(20) - 9)).astype("f4")
    heights[0, 0] = -9
    for name in ("elevation", "carved"):
        with create_layer("s.zarr", name, GridSpec(20, 20), "float32", nodata=-9) as out:
            out.write_block(0, 0, heights)
            out.commit()
    return "s.zarr"


def test_former_names_in_the_command(store):
    words = f"terrain-gpu compute-sssp {store} --source-rowcol 0,0 --source-rowcol 9,9 --overwrite"
    done = forked(f"{words} --nodata=skip")
    assert (done.returncode, done.stdout.count("cells")) == (0, 1), done.stderr
    assert "WARNING: --nodata is now called --on-nodata" in done.stderr
    assert "now called" not in forked(f"{words} --on-nodata skip").stderr
    assert "--nodata" not in forked("terrain-gpu compute-sssp --help-all").stdout
    streams = f"terrain-gpu streams {store} --threshold 9 --lines s.geojson --overwrite"
    done = forked(f"{streams} --layer carved")
    assert done.returncode == 0, done.stderr
    assert "WARNING: --layer is now called --heights" in done.stderr


def test_distances_without_a_unit_in_the_command(store):
    words = f"terrain-gpu compute-sssp {store} --source-rowcol 0,0 --overwrite"
    done = forked(f"{words} --snap 3")
    told = "WARNING: --snap '3' has no unit and means cells; write it, such as 3px\n"
    assert (done.returncode, done.stderr.count(told)) == (0, 1), done.stderr
    assert "no unit" not in forked(f"{words} --snap 3px").stderr
    done = forked(f"{words} --snap 3m")
    assert (done.returncode, "snap 3m: the raster has no coord" in done.stderr) == (2, True)
    done = forked(f"{words} --snap wide")
    assert done.returncode == 2
    assert "Invalid value for '--snap': 'wide': give a distance with its unit" in done.stderr
    done = forked(f"terrain-gpu watershed {store} --pour-point-rowcol 15,8 --snap 2")
    assert done.returncode == 0, done.stderr
    told = "WARNING: --snap 2 has no unit and means map units (metres in a geographic CRS); write "
    assert done.stderr.count(told) == 1


def test_former_names_in_python(store, caplog):
    caplog.set_level(logging.WARNING, "terrain_gpu")
    terrain_gpu.streams(store, 9, lines="s.geojson", layer="carved")
    assert "streams: layer is now called heights" in caplog.messages
    with pytest.raises(InputError, match="layer is now called heights: leave it out"):
        terrain_gpu.streams(store, 9, layer="carved", heights="carved")
    with pytest.raises(StoreError, match="no layer 'gone'"):
        terrain_gpu.streams(store, 9, lines="t.geojson", heights="gone", into="other")
