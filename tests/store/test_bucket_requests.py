"""How many requests reading and writing in object storage take, and that nothing old is read."""

from __future__ import annotations

import re

import numpy as np
import pytest
from bucket import objects
from contract import make_store, same, whole

import terrain_gpu
from terrain_gpu.errors import StoreError
from terrain_gpu.store import TileStore, create_layer, object_bytes
from terrain_gpu.store.objects import ObjectPath

BLOCK, DOWN, ACROSS = 128, 4, 6
BLOCKS = DOWN * ACROSS


def cells(seed=2) -> np.ndarray:
    found = np.random.default_rng(seed).integers(0, 50, (500, 700)).astype(np.int16)
    found[128:256, 256:384] = -1  # a block without cells
    return found


def layer_of(store):
    """The layer, newly opened; its digests are read."""
    layer = TileStore.open(store).layer("elevation")
    layer.read_window(0, 1, 0, 1)
    return layer


@pytest.fixture
def store(bucket, proxy):
    return str(make_store(f"{bucket}/s.zarr", cells(), -1, BLOCK))


@pytest.fixture(params=["whole", "ends"])
def kept(request, monkeypatch):
    """Shards so small that all of each is kept, or so large that its end is."""
    if request.param == "ends":
        monkeypatch.setattr(object_bytes, "LAST", 1000)
    return request.param


def replace(store, data) -> None:
    grid, how = TileStore.open(store).grid, {"nodata": -1, "block_size": BLOCK}
    with create_layer(store, "elevation", grid, data.dtype, overwrite=True, **how) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))
        writer.commit()


def read_with_rims(layer, data) -> None:
    ringed = np.pad(data, 1, constant_values=-1)
    for i, j in layer.blocks.ids():
        r0, r1, c0, c1 = layer.block_window(i, j)
        assert same(layer.read_block(i, j, halo=1), ringed[r0 : r1 + 2, c0 : c1 + 2])


def test_blocks_are_read_with_their_rims_in_few_requests(store, proxy, kept):
    """One each; for large shards also its end once, and parts of up to eight neighbours."""
    layer = layer_of(store)
    most = {"whole": BLOCKS, "ends": (1 + 1 + 8) * BLOCKS}[kept]
    for _ in range(2):
        proxy.seen.clear()
        read_with_rims(layer, cells())
        assert len(proxy.seen) <= most
        most -= (kept == "ends") * BLOCKS  # the ends are known now


def test_little_memory_for_what_was_read_costs_requests_only(store, proxy, kept, monkeypatch):
    layer = layer_of(store)
    size = {"whole": 2 * BLOCK * BLOCK + 88, "ends": 88}[kept]
    for most in (0, size, 7 * size + 1):
        recent = object_bytes.Recent(most)
        monkeypatch.setattr("terrain_gpu.store.shard.recent", recent)
        monkeypatch.setattr("terrain_gpu.store.layer.recent", recent)
        read_with_rims(layer, cells())
        assert recent._used == sum(found[1] for found in recent._kept.values()) <= most
        assert bool(recent._kept) == bool(most)


def test_a_run_takes_few_requests_for_each_block(store, proxy):
    """To read it, to write it, and to record that."""
    terrain_gpu.slope(store, into="once", threads=1)
    proxy.seen.clear()
    terrain_gpu.slope(store, threads=1)
    assert len(proxy.seen) <= 3 * BLOCKS + 40


def test_two_requests_find_a_layer_and_those_it_was_computed_from(store, proxy):
    terrain_gpu.slope(store)
    opened = TileStore.open(store)
    proxy.seen.clear()
    assert opened.stale(opened.layer("slope")) == []
    assert len(proxy.seen) == 2


def test_a_server_that_does_not_delete_many_at_once(store, proxy):
    proxy.fault = lambda method, path, body: 501 if body.count(b"<Key>") > 1 else None
    terrain_gpu.slope(store)
    before = objects(store)
    terrain_gpu.slope(store, into="other")
    terrain_gpu.slope(store, into="other", overwrite=True)
    assert not any(name.startswith(".incomplete") for name in objects(store))
    terrain_gpu.remove_layers(store, ["other"])
    assert objects(store) == before


def test_what_was_replaced_since_is_noticed(store, kept):
    old = layer_of(store)
    read_with_rims(old, cells())
    for seed in (3, 4):  # the names of shards are those of the first version again
        replace(store, cells(seed))
    with pytest.raises(StoreError, match="replaced since it was opened"):
        old.read_block(0, 0)
    if kept == "ends":
        with pytest.raises(StoreError, match="replaced since it was opened"):
            old.read_window(0, 9, 0, 9)
    assert same(whole(layer_of(store)), cells(4))


def test_damage_after_a_block_was_read_is_found(store, kept):
    layer = layer_of(store)
    read_with_rims(layer, cells())
    shard = ObjectPath(layer.shard_path(2, 1))
    data = bytearray(shard.read()[0])
    data[100] ^= 1
    shard.write(bytes(data))
    for opened in (layer, layer_of(store)):
        with pytest.raises(StoreError, match=re.escape("block (2, 1) of layer 'elevation'")):
            opened.check_block(2, 1)
        with pytest.raises(StoreError, match=re.escape("block (2, 1) of layer 'elevation'")):
            opened.read_block(2, 1)
    shard.delete()
    for opened in (layer, layer_of(store)):
        with pytest.raises(StoreError, match="missing from layer 'elevation'"):
            opened.read_block(2, 1)


def test_what_another_program_may_change_is_read_anew(store, proxy):
    """A layer without digests, as others write it."""
    layer = layer_of(store)
    del layer.info["digest"]
    assert not layer.is_sealed
    layer.read_window(0, 9, 0, 9)
    proxy.seen.clear()
    layer.read_window(0, 9, 0, 9)
    assert len(proxy.seen) == 1
