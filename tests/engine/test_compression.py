"""Compressed layers in operations: the same bits, and what `auto` chooses."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from strategies import Raster, same_bits

import terrain_gpu
from terrain_gpu.engine import compression
from terrain_gpu.errors import InputError
from terrain_gpu.store.coding import NAMES

HEIGHTS = Raster(np.dtype("<i2"), (130, 200), -1, "hills", "lakes").cells


def computed(store, compress):
    """All layers of a store: heights, a spanning tree, and distances with backlinks."""
    grid = terrain_gpu.GridSpec(*HEIGHTS.shape, (30.0, 0.0, 0.0, 0.0, -30.0, 0.0))
    with terrain_gpu.create_layer(
        store, "elevation", grid, "int16", nodata=-1, block_size=64, compress=compress
    ) as writer:
        for at in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(*at)
            writer.write_block(*at, HEIGHTS[r0:r1, c0:c1])
        writer.commit()
    how = {"backend": "cpu", "compress": compress, "verify": True}
    start = [tuple(int(n) for n in np.argwhere(HEIGHTS != -1)[0])]
    tree = terrain_gpu.minimum_spanning_tree(store, **how)
    terrain_gpu.shortest_paths(store, start, cost="surface", backlink=True, **how)
    opened = terrain_gpu.TileStore.open(store)
    return tree.report, {name: opened.layer(name) for name in opened.layers}


def test_results_are_the_same_bits(tmp_path):
    _, plain = computed(tmp_path / "plain", None)
    for compress in NAMES:
        report, layers = computed(tmp_path / compress, compress)
        assert report.settings["compress"] == {"mst": compress}
        assert layers.keys() == plain.keys()
        for name, layer in layers.items():
            cells = layer.read_window(0, 130, 0, 200)
            assert layer.compress == compress
            assert same_bits(cells, plain[name].read_window(0, 130, 0, 200))
            assert same_bits(zarr.open_array(str(layer.path), mode="r")[...], cells)


@pytest.mark.parametrize(
    ("size", "rate", "threads", "found"),
    [
        (compression.SMALL, 1e12, 1, "blosc-lz4"),
        (compression.SMALL + 1, 1e12, 1, None),
        (compression.SMALL + 1, 4e8, 1, "blosc-lz4"),
        (compression.SMALL + 1, 1e9, 1, None),
        (compression.SMALL + 1, 1e9, 4, "blosc-lz4"),
    ],
)
def test_what_auto_chooses(tmp_path, monkeypatch, size, rate, threads, found):
    monkeypatch.setattr(compression, "write_rate", lambda folder, enough: rate)
    assert compression.chosen(tmp_path / "s.zarr", size, threads) == found


class Disk:
    """A disk, and the clock of whoever waits for it."""

    def __init__(self, monkeypatch, rate, delay):
        self.now, self.written = 0.0, 0
        self._rate, self._delay = rate, delay
        monkeypatch.setattr(compression.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(compression.os, "fsync", self.fsync)
        compression._write_rate.cache_clear()

    def fsync(self, fd):
        size = compression.os.fstat(fd).st_size
        self.now += (size - self.written) / self._rate + self._delay
        self.written = size


@pytest.mark.parametrize(
    ("rate", "delay", "megabytes", "fast"),
    [
        (3e9, 0, 4, True),
        (3e9, 0.003, 16, True),  # a delay hides the rate of few bytes
        (0.9e9, 0, 32, False),
        (2e9, 0.05, 32, False),
    ],
)
def test_a_fast_disk_is_measured_by_few_bytes(tmp_path, monkeypatch, rate, delay, megabytes, fast):
    disk = Disk(monkeypatch, rate, delay)
    found = compression.write_rate(tmp_path / "not" / "there", 1e9)
    assert (found >= 1e9) == fast
    assert found <= rate
    assert disk.written == megabytes * compression.MB
    assert compression.write_rate(tmp_path, 1e9) == found  # not measured again
    assert disk.written == megabytes * compression.MB


def test_an_unknown_compression_is_refused(tmp_path):
    with pytest.raises(InputError, match="compress 'gzip' is not known"):
        terrain_gpu.minimum_spanning_tree(tmp_path / "s.zarr", compress="gzip")
