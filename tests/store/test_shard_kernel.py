"""Shards that are read in one call: the same cells and the same messages as by `Shard`."""

from __future__ import annotations

import os
import re
import sys
from unittest import mock

import numba  # noqa: F401 - only where it is loaded are shards read in one call
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Raster, same_bits
from test_store import begin, fill, write

from terrain_gpu import StoreError, TileStore
from terrain_gpu.grid import TILE, z_rank_table
from terrain_gpu.store import codecs, coding, files, layer, shard_kernel
from terrain_gpu.store.checksums import block_digest, crc32c, seal
from terrain_gpu.store.decoding import arrange
from terrain_gpu.store.digest_kernel import BYTES, digest_of
from terrain_gpu.store.layer import Layer
from terrain_gpu.store.shard import ANY_DIGESTS, GAP
from terrain_gpu.store.tiles import ABSENT, untile

RASTERS = {
    "int16": Raster(np.dtype("<i2"), (257, 320), -1, "hills", "lakes"),
    "uint8": Raster(np.dtype("u1"), (256, 512), 0, "hills", "tiles"),
    "float64": Raster(np.dtype("<f8"), (193, 129), -9999.0, "ties", "tiles", True),
}


@pytest.fixture
def by_shard(monkeypatch):
    """A function that turns the kernel off."""
    return lambda: monkeypatch.setattr(layer, "shards_at_once", lambda name: None)


def tiles_of(found, at):
    tiles = np.zeros(((found.block_size // TILE) ** 2, TILE, TILE), found.dtype)
    found.read_tiles(*at, tiles)
    return tiles


@pytest.mark.parametrize("name", [None, *coding.NAMES])
@pytest.mark.parametrize("raster", RASTERS)
def test_it_reads_what_is_there(tmp_path, monkeypatch, by_shard, raster, name):
    found = write(tmp_path / "s", RASTERS[raster], block=128, compress=name)
    there = [at for at in found.blocks.ids() if found.shard_path(*at).exists()]
    assert there
    with monkeypatch.context() as patch:
        patch.setattr(Layer, "_shard", None)
        fast = [tiles_of(found, at) for at in there]
        rows = [found.read_block(*at) for at in there]
    by_shard()
    assert all(map(same_bits, fast, (tiles_of(found, at) for at in there)))
    assert all(map(same_bits, rows, map(found.read_block, *zip(*there, strict=True))))


def damages(size, tiles):
    """Places to flip a bit: first and last bytes of tiles, checksums and index."""
    ends = np.cumsum([size - 20 * tiles - 8, 4 * tiles, 4, 16 * tiles, 4])
    return sorted({0, *(ends - 1), *ends[:-1]})


@pytest.mark.parametrize("name", [None, "blosc-lz4", "zstd"])
def test_the_same_messages(tmp_path, by_shard, monkeypatch, name):
    raster = Raster(np.dtype("<i2"), (256, 256), None, "hills", "none")
    found = write(tmp_path / "s", raster, block=128, compress=name)
    path, other = found.shard_path(0, 0), found.shard_path(1, 1)
    whole, cases = path.read_bytes(), []
    for at in damages(len(whole), 4):
        cases.append(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    cases += [whole[:-1], whole[1:], whole[:40], b"", whole + b"0", other.read_bytes(), None]
    told = []
    for off in False, True:
        if off:
            by_shard()
        for case in cases:
            path.unlink(missing_ok=True)
            if case is not None:
                path.write_bytes(case)
            opened = TileStore.open(tmp_path / "s").layer("elevation")
            for read in (lambda: tiles_of(opened, (0, 0)), lambda: opened.read_block(0, 0)):  # noqa: B023
                with pytest.raises(StoreError) as error:
                    read()
                told.append(str(error.value))
    half = len(told) // 2
    assert told[:half] == told[half:]
    assert len({re.sub(r"\d", "", one) for one in told}) > 3


def shard(path, parts, gaps, order):
    """A file with the bytes of tiles after gaps, in this order; returns its tiles' ranks."""
    data, index = b"", np.full((len(order), 2), 2**64 - 1, "<u8")
    sums = np.zeros(len(order), "<u4")
    for rank, gap in zip(order, gaps, strict=True):
        if rank is ABSENT:
            continue
        data += b"-" * gap
        index[rank] = len(data), len(parts[rank])
        sums[rank] = crc32c(parts[rank])
        data += parts[rank]
    path.write_bytes(data + seal(sums.tobytes()) + seal(index.tobytes()))


@pytest.mark.parametrize("name", [None, "blosc-lz4"])
@pytest.mark.parametrize(
    ("order", "gaps", "reads"),
    [
        ([0, 1, 2, 3], [0, 0, 0, 0], True),
        ([0, 1, 2, 3], [7, 1, 0, 0], True),
        ([0, 1, 2, 3], [0, GAP, GAP + 1, 0], True),
        ([0, ABSENT, 2, 3], [0, 0, 0, 0], True),
        ([ABSENT, ABSENT, ABSENT, 3], [0, 0, 0, 0], True),
        ([ABSENT] * 4, [0, 0, 0, 0], True),
        ([1, 0, 2, 3], [0, 0, 0, 0], False),
        ([3, 2, 1, 0], [0, 0, 0, 0], False),
    ],
)
def test_shards_that_others_wrote(tmp_path, name, order, gaps, reads):
    tiles = np.arange(4 * TILE * TILE, dtype="<u2").reshape(4, TILE, TILE)
    code = codecs.encoder(name, tiles.dtype) if name else np.ndarray.tobytes
    shard(tmp_path / "shard", [bytes(code(one)) for one in tiles], gaps, order)
    there = np.isin(np.arange(4), [k for k in order if k is not ABSENT])
    fill, side = np.array(7, "u2"), 2 * TILE
    path = tmp_path / "-0-0"
    reader = shard_kernel.ShardReader(str(tmp_path) + "/", "-", z_order(side), side, name, fill)
    right = np.where(there[:, None, None], tiles, fill)
    whole = untile(right)
    (tmp_path / "shard").rename(path)
    out = np.zeros_like(tiles)
    assert reader.read_tiles(ANY_DIGESTS, 0, 0, out) == reads
    assert not reads or same_bits(out, right)
    for window in ((0, side, 0, side), (0, side, 70, side), (64, 65, 63, 64), (70, 90, 0, 50)):
        out = np.zeros((window[1] - window[0], window[3] - window[2]), "u2")
        if reader.read(ANY_DIGESTS, window, window, (0, 1), out):
            assert same_bits(out, whole[window[0] : window[1], window[2] : window[3]].copy())
        else:
            assert not reads


def z_order(side):
    return np.argsort(z_rank_table(side).ravel())


@pytest.fixture(
    scope="module", params=[(c, b) for c in (None, "blosc-lz4", "zstd") for b in (64, 128)]
)
def whole(request, tmp_path_factory):
    """A layer with an absent tile and an absent shard, and its cells."""
    codec, block = request.param
    raster = Raster(np.dtype("<i2"), (300, 333), -1, "hills", "none")
    cells = raster.cells.copy()
    cells[block : 2 * block, block : 2 * block] = cells[:64, 128:192] = -1
    with begin(tmp_path_factory.mktemp("s") / "s", raster, block=block, compress=codec) as writer:
        fill(writer, cells)
        return writer.commit(), cells


def drawn_window(data, shape):
    ends = []
    for size in shape:
        begin = data.draw(st.integers(0, size - 1))
        ends += begin, data.draw(st.integers(begin + 1, size))
    return tuple(ends)


def ring_of(cells, window, halo):
    row0, row1, col0, col1 = window
    return np.pad(cells, halo, constant_values=-1)[row0 : row1 + 2 * halo, col0 : col1 + 2 * halo]


@given(st.data(), st.sampled_from([0, 1, 2, 63, 64, 200]))
def test_any_window_with_any_halo(whole, data, halo):
    """In one call, also into rows that have gaps between them."""
    found, cells = whole
    window = drawn_window(data, cells.shape)
    right = ring_of(cells, window, halo)
    room = np.zeros((right.shape[0], right.shape[1] + 5), "<i2")
    with mock.patch.object(Layer, "_read_part", None):
        assert same_bits(found.read_ring(window, halo=halo), right)
        found.read_ring(window, room, halo=halo)
    assert same_bits(room[:, :-5].copy(), right)
    assert not room[:, -5:].any()


DAMAGES = {
    "flipped": lambda file, at, other: (
        [*file[:at], file[at] ^ 16, *file[at + 1 :]] if file else b"0"
    ),
    "cut": lambda file, at, other: file[:at],
    "longer": lambda file, at, other: file + b"0",
    "another": lambda file, at, other: other,
    "none": lambda file, at, other: None,
    "folder": lambda file, at, other: "folder",
}


@given(st.data(), st.sampled_from(sorted(DAMAGES)), st.integers(0, 1))
def test_any_window_of_a_damaged_layer(whole, data, kind, halo):
    """The right cells, or the message of `Shard`."""
    found, cells = whole
    window = drawn_window(data, cells.shape)
    path = found.shard_path(*data.draw(st.sampled_from(list(found.blocks.ids()))))
    before = path.read_bytes() if path.exists() else b""
    places = damages(len(before), (found.block_size // TILE) ** 2) if before else [0]
    place = data.draw(st.sampled_from(places) | st.integers(0, max(len(before) - 1, 0)))
    after = DAMAGES[kind](before, place, found.shard_path(0, 0).read_bytes())
    path.unlink(missing_ok=True)
    try:
        if after == "folder":
            path.mkdir()
        elif after is not None:
            path.write_bytes(bytes(after))
        told = []
        for patch in mock.patch.object(found, "name", found.name), BY_SHARD:
            with patch:
                try:
                    assert same_bits(
                        found.read_ring(window, halo=halo), ring_of(cells, window, halo)
                    )
                    told.append("")
                except StoreError as error:
                    told.append(str(error))
        assert told[0] == told[1]
    finally:
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        if before:
            path.write_bytes(before)


BY_SHARD = mock.patch.object(layer, "shards_at_once", return_value=None)


@given(st.integers(1, 5))
def test_the_digest_of_a_block(power):
    size = 20 * 4 ** (power - 1)
    data = np.random.default_rng(power).integers(0, 256, size, np.uint8)
    words = np.zeros(-(-size // BYTES) * BYTES, np.uint8)
    words[:size] = data
    assert digest_of(words.view(np.uint64), size) == block_digest(data)


def test_where_it_cannot_be(tmp_path, monkeypatch):
    found = write(tmp_path / "s", RASTERS["int16"], block=128, compress="zstd")
    at = next(at for at in found.blocks.ids() if found.shard_path(*at).exists())
    before = tiles_of(found, at)
    monkeypatch.setattr(shard_kernel, "_read", lambda *given: 0)
    assert same_bits(tiles_of(found, at), before)
    monkeypatch.setattr(shard_kernel, "has_instruction", lambda: False)
    assert not shard_kernel.can.__wrapped__(None)
    monkeypatch.delitem(sys.modules, "numba")
    assert layer.shards_at_once("zstd") is None


def test_parts_of_a_file(tmp_path, monkeypatch):
    """What the system writes in part is continued, and a file of a killed run replaced."""
    path, temporary = tmp_path / "c" / "0", tmp_path / "temporary"
    temporary.write_bytes(b"left")
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, parts: writev(fd, [parts[0][:3]]))
    parts = [np.arange(5, dtype="<u2"), b"", b"abcdefg", b"h"]
    with files.new_file(path, temporary, buffered=False) as file:
        files.write_parts(file, parts)
    assert path.read_bytes() == b"".join(map(bytes, parts))
    assert not temporary.exists()


@given(
    st.sampled_from(["u1", "<i2", "<f4", "<f8"]),
    st.sampled_from([1, 2, 4]),
    st.lists(st.integers(0, 256), min_size=4, max_size=4),
    st.lists(st.booleans(), min_size=16, max_size=16),
)
def test_place(dtype, side, ends, there):
    """The kernel that copies cells of a window from tiles, beside what copies them with gaps."""
    ranks = z_rank_table(side * TILE)
    (row0, row1), (col0, col1) = (
        sorted(min(end, side * TILE - 1) for end in two) for two in (ends[:2], ends[2:])
    )
    inner = row0, row1 + 1, col0, col1 + 1
    ranks_of = ranks[row0 // TILE : row1 // TILE + 1, col0 // TILE : col1 // TILE + 1]
    slots = np.where(np.array(there)[ranks_of], ranks_of, ABSENT)
    tiles = np.arange(side * side * TILE * TILE).astype(dtype).reshape(-1, TILE, TILE)
    shape, fill = (inner[1] - row0, inner[3] - col0), np.array(7, dtype)
    found, right = np.zeros(shape, dtype), np.zeros((*shape, 2), dtype)[..., 0]
    arrange(tiles, slots, ranks, inner, found, fill)
    arrange(tiles, slots, ranks, inner, right, fill)  # its cells are not side by side
    assert same_bits(found, right.copy())
