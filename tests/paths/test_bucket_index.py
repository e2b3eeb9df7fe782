"""The distance index of a store in object storage: the same bytes as on a disk."""

from __future__ import annotations

import json
import os
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zarr
from bucket import objects
from cluster import processes
from contract import Stop, make_store, stop_at
from programs import spawn
from test_paths_index import with_another_bit

import terrain_gpu
from terrain_gpu import build_index
from terrain_gpu.errors import InputError, OutputError, StoreError
from terrain_gpu.paths.distance_index import bucket as places
from terrain_gpu.paths.distance_index.files import NAME, Index
from terrain_gpu.paths.distance_index.writer import EntryWriter
from terrain_gpu.store import TileStore
from terrain_gpu.store.checksums import seal
from terrain_gpu.store.objects import ObjectPath

SOURCES = [(75, 5), (3, 140)]


def heights(dtype=np.int16) -> np.ndarray:
    found = np.random.default_rng(3).integers(0, 50, (150, 180)).astype(dtype)
    found[40:50, 30:90] = -1
    return found


@pytest.fixture
def store(bucket):
    """The URL of a store of 9 blocks."""
    return str(make_store(f"{bucket}/s.zarr", heights(), -1, 64))


@pytest.fixture
def twin(tmp_path):
    """The same store on a disk, with an index of absolute differences."""
    make_store(tmp_path / "twin.zarr", heights(), -1, 64)
    build_index(tmp_path / "twin.zarr")
    return tmp_path / "twin.zarr"


def index_files(store) -> dict[str, bytes]:
    """The files or objects of an index."""
    if isinstance(store, Path):
        found = (p for p in (store / NAME).rglob("*") if p.is_file())
        return {str(p.relative_to(store / NAME)): p.read_bytes() for p in found}
    return objects(f"{store}/{NAME}")


def leftovers(store: str, tmp_path: Path) -> list[str]:
    left = [name for name in objects(store) if name.startswith(".incomplete")]
    return left + [str(p) for p in (tmp_path / "scratch").iterdir()]


def distance(store, **how) -> np.ndarray:
    return terrain_gpu.shortest_paths(store, SOURCES, **how, overwrite=True).distance()


def reached(store) -> int:
    return terrain_gpu.shortest_paths(store, SOURCES, method="index", overwrite=True).reached


@pytest.mark.parametrize("cost", ["absdiff", "tobler"])
@pytest.mark.parametrize("limit", [None, "400MB"])
def test_it_is_the_same_as_on_a_disk(bucket, tmp_path, cost, limit):
    where = [tmp_path / "s.zarr", f"{bucket}/s.zarr"]
    found = []
    for store in where:
        make_store(store, heights(np.float32), -1, 64)
        built = build_index(store, cost=cost, memory_limit=limit)
        found.append(distance(store, cost=cost, method="index", memory_limit=limit))
        assert built.result["built"]
        assert not build_index(store, cost=cost).result["built"]
    np.testing.assert_array_equal(*found)
    assert objects(where[1]) == {
        str(p.relative_to(where[0])): p.read_bytes() for p in where[0].rglob("*") if p.is_file()
    }
    assert leftovers(where[1], tmp_path) == []


def test_one_that_is_replaced_has_other_names(store, twin, tmp_path):
    expected = distance(twin, method="relax")
    for dots in (False, True, False):
        build_index(store, overwrite=True)
        names = set(index_files(store))
        assert names == {"zarr.json"} | {
            ("c.{}.{}.0" if dots else "c/{}/{}/0").format(i, j) for i in range(3) for j in range(3)
        }
        np.testing.assert_array_equal(distance(store, method="index"), expected)
    assert index_files(store) == index_files(twin)
    assert leftovers(store, tmp_path) == []


def test_others_read_both_versions(store, twin):
    from obstore.store import S3Store
    from zarr.storage import ObjectStore

    expected = zarr.open_array(str(twin / NAME), mode="r")[...]
    for _ in range(2):
        build_index(store, overwrite=True)
        there = S3Store.from_url(f"{store}/{NAME}", client_options={"allow_http": True})
        array = zarr.open_array(ObjectStore(there, read_only=True), mode="r")
        np.testing.assert_array_equal(array[...], expected)


def test_it_is_downloaded_once_in_several_requests(store, proxy, monkeypatch, tmp_path):
    build_index(store)
    monkeypatch.setattr("terrain_gpu.store.objects._PART", 100_000)
    proxy.seen.clear()
    # Too little memory to map all files.
    kept = terrain_gpu.shortest_paths(store, SOURCES, method="index", threads=1)
    asked = [path for method, path in proxy.seen if method == "GET" and f"{NAME}/c" in path]
    index = Index.open(TileStore.open(store), kept.layers["distance"].blocks)
    assert index.bytes // 100_000 < len(asked) <= index.bytes // 100_000 + 9
    assert leftovers(store, tmp_path) == []


def test_it_is_proven(store, proxy, tmp_path):
    assert build_index(store, verify=True).result["verified_entries"] > 0
    done = spawn(f"terrain-gpu verify {store} --scratch {tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "distance index of absdiff verified" in done.stdout
    file = ObjectPath(store) / NAME / "c/1/1/0"
    opened = TileStore.open(store)
    index = Index.open(opened, opened.layer("elevation").blocks)
    # The file of a block of one tile: its bytes and their checksum, then where they lie.
    wrong = seal(with_another_bit(index, file.read()[0][:-24], 5))
    file.write(wrong + seal(np.array([0, len(wrong)], "<u8").tobytes()))
    done = spawn(f"terrain-gpu verify {store}")
    assert done.returncode == 1
    assert "distance_index" in done.stderr + done.stdout
    assert leftovers(store, tmp_path) == []


# -- resumed, replaced, shared --------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_stopped_build_continues_anywhere(store, twin, tmp_path, elsewhere, monkeypatch):
    with pytest.raises(Stop):
        build_index(store, threads=1, progress=stop_at(0.5))
    with pytest.raises(StoreError, match="there is none; build one"):
        reached(store)
    file = sorted(name for name in objects(f"{store}/{NAME}") if name.startswith("c"))[0]
    (ObjectPath(store) / NAME / file).write(b"changed since")
    if elsewhere:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.setenv("TERRAIN_GPU_SCRATCH", str(tmp_path / "elsewhere"))
    assert 0 < build_index(store).result["blocks_resumed"] < 8
    assert index_files(store) == index_files(twin)


def test_an_unfinished_build_for_other_costs_is_discarded(store, twin, tmp_path):
    with pytest.raises(Stop):
        build_index(store, cost="tobler", threads=1, progress=stop_at(0.5))
    assert build_index(store).result["blocks_resumed"] == 0
    assert index_files(store) == index_files(twin)
    assert leftovers(store, tmp_path) == []


def test_of_two_builds_on_one_machine_the_second_is_told(store):
    def again(*_):
        with pytest.raises(StoreError, match="is building the distance index; wait until it ends"):
            build_index(store)

    build_index(store, threads=1, progress=again)
    assert reached(store)


@pytest.mark.parametrize("cost", ["absdiff", "tobler"])
def test_of_two_builds_on_two_machines_the_first_is_told(
    store, monkeypatch, tmp_path_factory, cost
):
    """The second takes over what the first has built, or starts again if it is for other costs."""
    new = partial(tmp_path_factory.mktemp, "scratch")
    monkeypatch.setattr("terrain_gpu.store.scratch.scratch_folder", new)
    usual, calls = EntryWriter.write_block, []

    def write(self, *args):
        calls.append(args)
        if len(calls) == 4:
            assert build_index(store, cost=cost).result["built"]
        return usual(self, *args)

    monkeypatch.setattr(EntryWriter, "write_block", write)
    with pytest.raises(StoreError, match="another run has begun to write this distance index"):
        build_index(store, threads=1)
    monkeypatch.setattr(EntryWriter, "write_block", usual)
    found = Index.open(TileStore.open(store), TileStore.open(store).layer("elevation").blocks)
    assert found.settings["cost"] == cost
    for at in found.blocks.ids():
        found.read(at)


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("step", range(5))
def test_a_kill_during_the_commit(store, twin, tmp_path, monkeypatch, replaced, step):
    if replaced:
        build_index(store, cost="minimax")
    usual = places.IndexBucket.publish_index
    steps = iter(range(step))

    def or_die(method):
        def called(*args):
            if next(steps, None) is None:
                raise Stop
            return method(*args)

        return called

    def publish(self, *args):
        with monkeypatch.context() as dying:
            dying.setattr("terrain_gpu.store.objects.DELETED_AT_ONCE", 1)
            for name in ("write", "create", "replace", "_delete"):
                dying.setattr(ObjectPath, name, or_die(getattr(ObjectPath, name)))
            usual(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(places.IndexBucket, "publish_index", publish)
        with pytest.raises(Stop):
            build_index(store, overwrite=True)
    build_index(store, overwrite=replaced)
    assert leftovers(store, tmp_path) == []
    np.testing.assert_array_equal(distance(store, method="index"), distance(twin, method="index"))


def test_workers_of_a_cluster_build_it(store, twin, tmp_path):
    def take(environment):
        os.environ.update(environment)

    with processes(2) as client:
        # An earlier test may have started the server that forks workers, without this bucket.
        client.run(take, dict(os.environ))
        build_index(store, client=client)
    assert index_files(store) == index_files(twin)
    assert leftovers(store, tmp_path) == []


# -- what goes wrong ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.write(p.read()[0][:-1]), "truncated or corrupt"),
        (lambda p: p.write(b"\x01" + p.read()[0][1:]), "corrupt"),
        (lambda p: p.delete(), "missing from the distance index"),
    ],
)
def test_damaged_objects_are_named(store, tmp_path, damage, message):
    build_index(store)
    file = ObjectPath(store) / NAME / "c/1/1/0"
    damage(file)
    with pytest.raises(StoreError, match=message) as error:
        reached(store)
    assert str(error.value).startswith(str(file))
    assert "build the index again with --overwrite" in str(error.value)
    build_index(store, overwrite=True)
    assert reached(store)


def test_a_full_scratch_disk_is_named(store, monkeypatch):
    build_index(store)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match="index: no space left on the disk"):
        reached(store)


def test_files_that_are_too_large_are_refused(store, monkeypatch):
    monkeypatch.setattr(places, "LARGEST", 1000)
    with pytest.raises(InputError, match=r"distance_index: an object would have .* --block-size"):
        build_index(store)


@pytest.mark.parametrize("fault", [500, "lose", "cut"])
def test_passing_faults_change_nothing(store, twin, proxy, fault):
    seen = set()

    def once(method, path, body):
        first = (method, path) not in seen and NAME in path
        seen.add((method, path))
        return fault if first and (fault != "cut" or method == "GET") else None

    proxy.fault = once
    build_index(store)
    np.testing.assert_array_equal(distance(store, method="index"), distance(twin, method="index"))


def test_the_command_keeps_its_memory_limit(bucket, tmp_path):
    """The files of blocks of 512 have 33 MB each."""
    store = f"{bucket}/s.zarr"
    cells = np.cumsum(np.random.default_rng(1).integers(-3, 4, (2000, 2000)), 1).astype(np.float32)
    make_store(store, cells, None, 512)
    more = f"--cost tobler --memory-limit 500MB --scratch {tmp_path} --json -"
    for command in (
        f"build-index {store}",
        f"compute-sssp {store} --method index --source-rowcol 9,9",
    ):
        done = spawn(shlex.join(shlex.split(f"terrain-gpu {command} {more}")))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["peak_rss_bytes"] < 500e6
