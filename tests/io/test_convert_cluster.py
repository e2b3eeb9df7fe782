"""Conversion by the workers of a cluster. See also `test_conversions`."""

from __future__ import annotations

import json
import pickle
import socket

import numpy as np
import pytest
import rasterio
from hypothesis import given
from hypothesis import strategies as st
from memory import MB, within
from rasterio.transform import from_origin

from terrain_gpu import ClusterError, TileStore, convert_dataset
from terrain_gpu.errors import InputError, PlanError
from terrain_gpu.io import convert_problem
from terrain_gpu.io.convert_problem import Convert
from terrain_gpu.store.checksums import checksum_of_part, crc32c, joined_crc

pytestmark = pytest.mark.usefixtures("no_fsync")


def heights(shape):
    found = np.random.default_rng(7).integers(0, 90, shape).astype(np.float32)
    found[10:60, 30:90] = -1
    return found


def write(path, data, left=0, **layout):
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=data.shape[0],
        width=data.shape[1],
        count=1,
        dtype=data.dtype,
        nodata=-1,
        transform=from_origin(500_000 + 10 * left, 0, 10, 10),
        **layout,
    ) as out:
        out.write(data, 1)


@pytest.fixture
def strips(tmp_path, monkeypatch):
    """A folder, the current one, with two rasters in strips side by side."""
    monkeypatch.chdir(tmp_path)
    data = heights((300, 500))
    write("west.tif", data[:, :270], blockysize=40, compress="deflate")
    write("east.tif", data[:, 270:], 270, blockysize=7)
    return tmp_path


def files(folder):
    return {
        path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


WANTED = {"block_size": 64, "round_cells": True, "clamp_min": 10}


def test_the_same_bytes(strips, cluster, monkeypatch):
    """A new store, from relative paths."""
    inputs = ["west.tif", "east.tif"]
    alone = convert_dataset(inputs, "alone.zarr", **WANTED)
    monkeypatch.setattr(convert_problem, "PART", 10_000)
    beside = convert_dataset(inputs, "beside.zarr", client=cluster, **WANTED)
    assert files(strips / "beside.zarr") == files(strips / "alone.zarr")
    assert (beside.cells, beside.valid_cells) == (alone.cells, alone.valid_cells)
    assert beside.settings["cluster"]["tasks"] > 1
    plan = beside.settings["plan"]
    assert (plan["unit_rows"], plan["unit_cols"], plan["passes"]) == (64, 320, 1)
    assert not list(strips.glob("*.incomplete"))


def test_a_finished_run_is_left_as_it_is(strips, cluster):
    convert_dataset("west.tif", "s.zarr", **WANTED)
    before = files(strips / "s.zarr")
    found = convert_dataset("west.tif", "s.zarr", client=cluster, resume=True, **WANTED)
    assert found.result["blocks_resumed"] == 25
    assert files(strips / "s.zarr") == before


@pytest.mark.parametrize(
    ("raster", "message"),
    [
        ("/no/such/r.tif", "cannot read its input .*/no/such/r.tif: no such file.; inputs must"),
        ("east.tif", "sees different files at the paths of the inputs; inputs must be visible"),
    ],
)
def test_a_worker_that_sees_other_files(strips, cluster, monkeypatch, raster, message):
    """As on a host with other folders."""
    state = Convert.__getstate__
    named = str(strips / raster)
    monkeypatch.setattr(Convert, "__getstate__", lambda one: state(one) | {"rasters": (named,)})
    with pytest.raises(ClusterError, match=f"a worker on {socket.gethostname()} {message}"):
        convert_dataset("west.tif", "s.zarr", client=cluster)
    monkeypatch.undo()
    assert not (strips / "s.zarr").exists()


def test_what_a_worker_has_opened_is_closed(strips):
    operation = Convert("s.zarr", ("west.tif",), block_size=64)
    with operation.mosaic:
        other = pickle.loads(pickle.dumps(operation))
    assert other.rasters == (str(strips / "west.tif"),)
    other.open()
    (one,) = other.mosaic.inputs
    assert len(one._opened) == 1
    other.close()
    assert not one._opened


def test_text_is_read_by_one_process(strips, cluster):
    (strips / "r.asc").write_text("ncols 2\nnrows 1\nxllcorner 0\nyllcorner 0\ncellsize 1\n1 2\n")
    with pytest.raises(InputError, match=r"r.asc: a text format .*; convert without a cluster, or"):
        convert_dataset("r.asc", "s.zarr", client=cluster)


def test_a_folder_that_workers_do_not_see(strips, cluster, monkeypatch):
    monkeypatch.setattr(Convert, "shared", "/no/such")
    with pytest.raises(ClusterError, match="does not see /no/such; the store must lie in a folder"):
        convert_dataset("west.tif", "s.zarr", client=cluster)


def test_too_little_memory_for_a_worker(strips, cluster):
    with pytest.raises(PlanError, match=r"give at least 3[0-9][0-9] MB"):
        convert_dataset("west.tif", "s.zarr", client=cluster, memory_limit="100MB")


def test_the_least_limit_holds_in_every_process(tmp_path):
    write(tmp_path / "r.tif", heights((2100, 6000)), compress="deflate", blockysize=512)
    command = "convert-dataset r.tif s.zarr --block-size 512 --workers 2 --overwrite -q"
    limit, peak = within(tmp_path, f"{command} --json r.json", 300 * MB)
    told = json.loads((tmp_path / "r.json").read_text())["settings"]["cluster"]
    assert told["workers"] == 2
    assert peak <= limit
    assert 0 < told["worker_peak_rss_bytes"] <= limit
    assert TileStore.open(tmp_path / "s.zarr").layer("elevation").grid.shape == (2100, 6000)


@given(first=st.binary(max_size=300), second=st.binary(max_size=300))
def test_checksums_of_parts_are_joined(first, second):
    joined = joined_crc(crc32c(first), crc32c(second), len(second))
    assert joined == crc32c(first + second)


def test_the_checksum_of_a_part(tmp_path):
    data = np.random.default_rng(1).bytes(9_000_000)
    (tmp_path / "f").write_bytes(data)
    assert checksum_of_part(str(tmp_path / "f"), 4_000_000, 4_500_000) == crc32c(
        data[4_000_000:8_500_000]
    )
