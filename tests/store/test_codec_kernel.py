"""Tiles that are coded and decoded together: the same bytes and cells as one by one."""

from __future__ import annotations

import logging
import sys
from unittest import mock

import numba  # noqa: F401 - only where it is loaded are tiles coded together
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Raster, same_bits
from test_store import begin, write

from terrain_gpu import InputError, TileStore
from terrain_gpu.grid import TILE
from terrain_gpu.store import (
    checksums,
    codec_kernel,
    codecs,
    coding,
    decoding,
    layer,
    shard_kernel,
    writer,
)

RASTERS = {
    "uint8": Raster(np.dtype("u1"), (260, 331), 0, "hills", "dense"),
    "int16": Raster(np.dtype("<i2"), (257, 320), -1, "hills", "lakes"),
    "noise": Raster(np.dtype("<u2"), (256, 200), None, "bits", "none"),
    "float64": Raster(np.dtype("<f8"), (193, 129), -9999.0, "ties", "tiles", True),
}


@pytest.fixture
def one_by_one(monkeypatch):
    """A function that turns the kernels off."""

    def off():
        monkeypatch.setattr(decoding, "together", lambda name: None)
        monkeypatch.setattr(codecs, "together", lambda name: None)
        monkeypatch.setattr(layer, "shards_at_once", lambda name: None)
        monkeypatch.setattr(writer, "saves_at_once", lambda name: None)

    return off


def everything(found):
    """All cells of a layer, read in every way."""
    count = (found.block_size // TILE) ** 2
    for at in found.blocks.ids():
        tiles = np.empty((count, TILE, TILE), found.dtype)
        found.read_tiles(*at, tiles)
        found.check_block(*at)
        yield tiles
        yield found.read_block(*at, halo=1)
    rows, cols = found.grid.shape
    yield found.read_window(0, rows, 0, cols)
    yield found.read_window(100, 101, 0, cols)
    yield found.read_window(0, rows, 70, 71)


@pytest.mark.parametrize(("block", "batch"), [(256, 1 << 20), (256, 40_000), (64, 1 << 20)])
@pytest.mark.parametrize("name", [None, *coding.NAMES])
@pytest.mark.parametrize("raster", RASTERS)
def test_the_same_bytes_and_cells(tmp_path, monkeypatch, one_by_one, raster, name, block, batch):
    monkeypatch.setattr(decoding, "BATCH", batch)
    monkeypatch.setattr(shard_kernel, "BATCH", batch)
    assert decoding.shards_at_once(name) is shard_kernel
    fast = write(tmp_path / "fast", RASTERS[raster], block=block, compress=name)
    found = list(everything(fast))
    one_by_one()
    plain = write(tmp_path / "plain", RASTERS[raster], block=block, compress=name)
    assert fast.identity == plain.identity
    shards = [
        {p.relative_to(made.path): p.read_bytes() for p in made.path.glob("c/*/*")}
        for made in (fast, plain)
    ]
    assert shards[0]
    assert shards[0] == shards[1]
    for one, other in zip(found, everything(fast), strict=True):
        assert same_bits(one, other)


@pytest.mark.parametrize("name", [None, *coding.NAMES])
def test_tiles_with_gaps_between_them(tmp_path, name):
    """They are written as they are; a buffer to read into must have none."""
    every = np.arange(32 * TILE * TILE, dtype="<u2").reshape(32, TILE, TILE)
    raster = Raster(every.dtype, (256, 256), None, "bits", "none")
    with begin(tmp_path / "s", raster, block=256, compress=name) as made:
        made.write_tiles(0, 0, every[::2])
        made.commit()
    found, out = TileStore.open(tmp_path / "s").layer("elevation"), np.zeros_like(every)
    found.read_tiles(0, 0, out[:16])
    assert same_bits(out[:16], every[::2])
    for wrong in (out[::2], out[31:15:-1]):
        with pytest.raises(InputError, match="C-contiguous"):
            found.read_tiles(0, 0, wrong)


def test_a_codec_that_fails(tmp_path, monkeypatch):
    """Tiles in the buffer are lost then: an error, not another attempt."""
    monkeypatch.setattr(writer, "saves_at_once", lambda name: None)
    monkeypatch.setattr(codec_kernel, "_code", lambda *given: False)
    with pytest.raises(RuntimeError, match="zstd failed to compress a tile"):
        write(tmp_path / "s", RASTERS["int16"], compress="zstd")


def test_where_it_cannot_be(monkeypatch, caplog):
    assert codecs.together(None) is None
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "numba")
        assert codecs.together("zstd") is None
    codec_kernel._functions.cache_clear()
    monkeypatch.setattr(
        codec_kernel.numcodecs.blosc, "__file__", codec_kernel.numcodecs.zstd.__file__
    )
    with caplog.at_level(logging.DEBUG):
        assert codecs.together("blosc-lz4") is None
    assert "tiles are coded one by one" in caplog.text
    codec_kernel._functions.cache_clear()


@given(st.integers(0, 2**32 - 1), st.integers(-9, 9), st.sampled_from(["u1", "<f4", "<f8"]))
def test_checksums_of_large_arrays(before, more, dtype):
    """A kernel continues them, which other threads do not wait for, as the library does."""
    data = np.random.default_rng(5).integers(0, 99, checksums._MANY + more).astype(dtype)
    with mock.patch.object(codec_kernel, "crc_of", side_effect=codec_kernel.crc_of) as kernel:
        found = checksums.crc32c(data, before)
    assert kernel.called == (data.nbytes >= checksums._MANY)
    assert found == checksums.crc32c(data.tobytes(), before)
