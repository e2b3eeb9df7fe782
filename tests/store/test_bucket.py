"""Stores in object storage: the same bytes as on a disk, whoever else writes, whatever fails."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from azurite import KEY
from bucket import KEYS, objects
from cluster import processes
from contract import Stop, make_store, same, stop_at, whole
from programs import spawn

import terrain_gpu
from terrain_gpu.engine.ledger import Ledger
from terrain_gpu.errors import InputError, OutputError, StoreError
from terrain_gpu.grid import GridSpec
from terrain_gpu.store import TileStore, client, create_layer
from terrain_gpu.store import bucket as runs
from terrain_gpu.store.objects import Meta, ObjectPath

schemes = pytest.mark.parametrize("scheme", ["s3", "gs", "az"], indirect=True)
GRID = GridSpec(100, 150, (10.0, 0.0, 500000.0, 0.0, -20.0, 5500000.0), "", "")


def cells(seed=3) -> np.ndarray:
    found = np.random.default_rng(seed).integers(0, 50, GRID.shape).astype(np.int16)
    found[40:50, 30:90] = -1
    found[64:, 64:128] = -1  # a block without cells
    return found


def files(store: Path) -> dict[str, bytes]:
    return {str(p.relative_to(store)): p.read_bytes() for p in store.rglob("*") if p.is_file()}


@pytest.fixture
def store(bucket):
    """The URL of a store with the layer elevation."""
    return str(make_store(f"{bucket}/maps/s.zarr", cells(), -1, 64))


def begin(store: str, name="other", **more):
    return create_layer(store, name, GRID, np.int16, nodata=-1, block_size=64, **more)


def fill(writer, data, blocks=None):
    for i, j in writer.blocks.ids() if blocks is None else blocks:
        r0, r1, c0, c1 = writer.block_window(i, j)
        writer.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))


def begun(store, blocks, **more) -> None:
    """A stopped run of the layer "other"."""
    with contextlib.suppress(Stop), begin(store, **more) as writer:
        fill(writer, cells(), blocks)
        raise Stop


def leftovers(store: str) -> list[str]:
    return sorted(name for name in objects(store) if name.startswith(".incomplete"))


# -- the same as on a disk ----------------------------------------------------------------------


def pipeline(store, folder: Path) -> None:
    """All operations, and the files they write."""
    folder.mkdir()
    terrain_gpu.slope(store, aspect="aspect")
    terrain_gpu.breach(store, max_distance=5, verify=True)
    terrain_gpu.minimum_spanning_tree(store, verify=True)
    terrain_gpu.label_components(store, "elevation > 30", table=folder / "table.csv")
    terrain_gpu.accumulate(store, directions="directions")
    terrain_gpu.extract_network(store, folder / "lines.gpkg", min_length=100)
    terrain_gpu.shortest_paths(
        store, [(75, 5), (3, 140)], backlink=True, allocation=True, build_index=True, verify=True
    )
    for name in ("elevation", "mst", "slope", "distance"):
        terrain_gpu.export_layer(store, folder / f"{name}.tif", layer=name)


def test_all_operations_leave_the_bytes_that_they_leave_on_a_disk(store, tmp_path):
    make_store(tmp_path / "s.zarr", cells(), -1, 64)
    pipeline(tmp_path / "s.zarr", tmp_path / "here")
    pipeline(store, tmp_path / "there")
    assert objects(store) == files(tmp_path / "s.zarr")
    here, there = files(tmp_path / "here"), files(tmp_path / "there")
    assert here.keys() == there.keys()
    for name in here.keys() - {"lines.gpkg"}:  # it contains times
        assert here[name] == there[name], name
    assert list((tmp_path / "scratch").iterdir()) == []


def test_compressed_layers(bucket, tmp_path):
    for place in (tmp_path / "s.zarr", f"{bucket}/s.zarr"):
        with begin(place, compress="zstd") as writer:
            fill(writer, cells())
            writer.commit()
    assert objects(f"{bucket}/s.zarr") == files(tmp_path / "s.zarr")
    layer = TileStore.open(f"{bucket}/s.zarr").layer("other")
    assert same(whole(layer), cells())
    assert same(layer.read_window(70, 75, 3, 140), cells()[70:75, 3:140])


def test_the_commands(bucket, tmp_path):
    make_store(tmp_path / "s.zarr", cells(), -1, 64)
    terrain_gpu.export_layer(tmp_path / "s.zarr", tmp_path / "a.tif")
    source, store = f"{bucket}/a.tif", f"{bucket}/deep/s.zarr"
    ObjectPath(source).write((tmp_path / "a.tif").read_bytes())
    convert = f"terrain-gpu convert-dataset {source} {store} --block-size 64"
    done = spawn(f"{convert} --memory-limit 400MB --json -")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["result"]["store"] == store
    assert report["peak_rss_bytes"] < 400e6
    done = spawn(f"terrain-gpu label-components {store} --where elevation>7 --scratch {tmp_path}")
    assert done.returncode == 0, done.stderr
    done = spawn(f"terrain-gpu info {store}")
    assert f"{store}\n" in done.stdout
    assert "components: uint32" in done.stdout
    done = spawn(f"terrain-gpu verify {store} --data")
    assert f"{store}: layer components" in done.stdout
    assert f"{store}: coordinates match the grid" in done.stdout
    ObjectPath(f"{store}/x/c/0").write(bytes(8 * 150))
    done = spawn(f"terrain-gpu verify {store} --data")
    assert "/x: damaged: coordinate 0 is 0.0, not " in done.stderr
    assert spawn(f"terrain-gpu verify {store} --accept-changes x").returncode == 0
    assert spawn(f"terrain-gpu verify {store} --data").returncode == 0
    terrain_gpu.export_layer(store, tmp_path / "b.tif")
    assert (tmp_path / "b.tif").read_bytes() == (tmp_path / "a.tif").read_bytes()
    shown = spawn(f"terrain-gpu export {store} s3://b/c.tif")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "s3://b/c.tif: an output file cannot be in object storage" in shown.stderr


@schemes
def test_others_open_it_by_its_url(store):
    import xarray as xr
    import zarr
    from obstore.store import from_url
    from zarr.storage import ObjectStore

    terrain_gpu.minimum_spanning_tree(store)
    terrain_gpu.minimum_spanning_tree(store, overwrite=True, connectivity=4)  # c.0.0
    options, more = {"allow_http": True}, {}
    if store.startswith("gs:"):  # obstore knows no STORAGE_EMULATOR_HOST
        more = {"base_url": os.environ["STORAGE_EMULATOR_HOST"], "skip_signature": True}
    there = ObjectStore(from_url(store, client_options=options, **more), read_only=True)
    group = zarr.open_group(there, mode="r")
    opened = TileStore.open(store)
    for name in ("elevation", "mst"):
        assert same(group[name][...], whole(opened.layer(name)))
    data = xr.open_zarr(there, consolidated=False, mask_and_scale=False, chunks=None)
    assert same(data["mst"].values, whole(opened.layer("mst")))
    assert data["x"].size == 150


def test_the_guide_opens_it(store, monkeypatch):
    guide = Path(__file__).parents[2] / "docs/how-to/object-storage.md"
    (program,) = re.findall(r"^```python\n(.*?)^```", guide.read_text(), re.S | re.M)
    assert program.count("s3://terrain/dem.zarr") == 1
    names = {}
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    exec(program.replace("s3://terrain/dem.zarr", store), names)
    assert names["data"]["elevation"].shape == GRID.shape


# -- replaced, resumed --------------------------------------------------------------------------


def test_each_further_layer_takes_as_many_requests(store, proxy):
    """To describe it and say whether it is stale, however many there are."""
    counts = []
    for k in range(6):
        terrain_gpu.calc(store, "elevation + 1", into=f"more_{k}")
        before = len(proxy.seen)
        TileStore.open(store).describe()
        counts.append(len(proxy.seen) - before)
    assert len(set(np.diff(counts))) == 1


@schemes
def test_a_layer_is_replaced_again_and_again(store):
    for seed in range(4):
        with begin(store, overwrite=True) as writer:
            fill(writer, cells(seed))
            writer.commit()
        names = {name for name in objects(store) if name.startswith("other/c")}
        assert len(names) == 5  # of one version; the empty block has none
        assert all(("/c." in name) == bool(seed % 2) for name in names)
        assert same(whole(TileStore.open(store).layer("other")), cells(seed))
    assert leftovers(store) == []


def test_readers_of_what_was_replaced_are_told(store):
    with begin(store) as writer:
        fill(writer, cells())
        writer.commit()
    old = TileStore.open(store).layer("other")
    with begin(store, overwrite=True) as writer:
        fill(writer, cells(4))
        assert same(whole(old), cells())
        writer.commit()
    with pytest.raises(StoreError, match="other"):
        whole(old)


def test_a_layer_that_exists_is_not_replaced_unasked(store):
    with pytest.raises(StoreError, match="layer 'elevation' exists; --overwrite replaces it"):
        begin(store, "elevation")
    with pytest.raises(StoreError, match="has a different grid"):
        make_store(store, cells()[:80], -1, 64)
    (ObjectPath(store) / "foreign/zarr.json").write(b'{"attributes": {}}')
    with pytest.raises(StoreError, match="foreign: exists and is not"):
        begin(store, "foreign", overwrite=True)
    with pytest.raises(InputError, match="is inside the store"):
        begin(f"{store}/elevation/s.zarr")


@schemes
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_stopped_run_is_resumed(store, tmp_path, monkeypatch, elsewhere):
    with pytest.raises(Stop):
        terrain_gpu.minimum_spanning_tree(store, threads=1, progress=stop_at(0.5))
    assert "mst" not in TileStore.open(store).layers
    with pytest.raises(StoreError, match="unfinished run of layer 'mst'"):
        terrain_gpu.minimum_spanning_tree(store)
    with pytest.raises(StoreError, match="connectivity was 8 and is now 4"):
        terrain_gpu.minimum_spanning_tree(store, resume=True, connectivity=4)
    if elsewhere:  # on a machine without the scratch files
        shutil.rmtree(tmp_path / "scratch")
        (tmp_path / "scratch").mkdir()
    found = terrain_gpu.minimum_spanning_tree(store, resume=True)
    assert 0 < found.report.result["blocks_resumed"] < 6
    make_store(tmp_path / "s.zarr", cells(), -1, 64)
    terrain_gpu.minimum_spanning_tree(tmp_path / "s.zarr")
    assert objects(store) == files(tmp_path / "s.zarr")
    found = terrain_gpu.minimum_spanning_tree(store, resume=True)
    assert found.report.result["blocks_resumed"] == 6
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_that_was_stopped_in_its_first_pass_is_resumed(
    store, tmp_path, monkeypatch, elsewhere
):
    """Its messages are in the scratch folder; on another machine blocks tell them again."""
    table, seen = tmp_path / "t.csv", []
    with pytest.raises(Stop):
        terrain_gpu.label_components(
            store, "elevation > 7", table=table, threads=1, progress=stop_at(0.4)
        )
    if elsewhere:
        monkeypatch.setenv("TERRAIN_GPU_SCRATCH", str(tmp_path))
    record = Ledger.record
    monkeypatch.setattr(Ledger, "record", lambda *of: seen.append(of) or record(*of))
    found = terrain_gpu.label_components(store, "elevation > 7", table=table, resume=True)
    assert (len(seen) == 12) == elsewhere
    plain = make_store(tmp_path / "s.zarr", cells(), -1, 64)
    alone = terrain_gpu.label_components(plain, "elevation > 7", table=tmp_path / "a.csv")
    assert (found.count, found.cells) == (alone.count, alone.cells)
    assert table.read_bytes() == (tmp_path / "a.csv").read_bytes()
    assert objects(store) == files(tmp_path / "s.zarr")
    assert elsewhere or list((tmp_path / "scratch").iterdir()) == []


@schemes
def test_blocks_that_changed_since_are_written_again(store):
    begun(store, [(0, 0), (0, 1), (1, 1), (1, 2)])
    shards = ObjectPath(store) / "other/c"
    (shards / "0/1").write((shards / "0/0").read()[0])
    (shards / "1/2").delete()
    (shards / "1/1").write(b"1")  # of the block without cells
    with begin(store, resume=True) as writer:
        assert np.argwhere(writer.done).tolist() == [[0, 0]]
        fill(writer, cells())
        writer.commit()
    assert same(whole(TileStore.open(store).layer("other")), cells())


@schemes
def test_a_run_that_leaves_nothing_leaves_nothing(store):
    before = objects(store)
    begun(store, [])
    with begin(store) as writer:
        fill(writer, cells(), [(0, 0)])
        writer.keep = False
    assert objects(store) == before


def test_starting_again_forgets_the_unfinished_run(store):
    begun(store, [(0, 0), (0, 1)])
    with begin(store, overwrite=True) as writer:
        assert not writer.done.any()
        fill(writer, cells(5))
        writer.commit()
    assert same(whole(TileStore.open(store).layer("other")), cells(5))
    assert leftovers(store) == []


# -- killed at the end --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "step"),
    [("nothing", 4), ("nothing", 9), ("store", 1), ("store", 3), ("store", 4)]
    + [("layer", step) for step in (2, 3, 4, 5)],
)
def test_whatever_step_of_the_end_a_kill_cuts_off(bucket, monkeypatch, there, step):
    store, replaced = f"{bucket}/s.zarr", there == "layer"
    if there == "store":
        make_store(store, cells(), -1, 64)
    if replaced:
        with begin(store) as writer:
            fill(writer, cells(8))
            writer.commit()
    steps = iter(range(step))

    def or_die(method):
        def called(*args):
            if next(steps, None) is None:
                raise Stop
            return method(*args)

        return called

    writer = begin(store, overwrite=replaced)
    fill(writer, cells())
    with monkeypatch.context() as dying:
        dying.setattr("terrain_gpu.store.objects.DELETED_AT_ONCE", 1)
        for name in ("write", "create", "replace", "_delete"):
            dying.setattr(ObjectPath, name, or_die(getattr(ObjectPath, name)))
        with pytest.raises(Stop):
            writer.commit()
    writer._target._scratch._let_go()  # as a kill does
    if replaced:  # one version or the other, and whole
        found = whole(TileStore.open(store).layer("other"))
        assert any(same(found, data) for data in (cells(), cells(8)))
    with begin(store, resume=True, overwrite=replaced, settings={}) as writer:
        if not writer.finished:
            fill(writer, cells(), np.argwhere(~writer.done).tolist())
        writer.commit()
    assert same(whole(TileStore.open(store).layer("other")), cells())
    assert leftovers(store) == []


# -- two writers --------------------------------------------------------------------------------


def test_of_two_writers_one_wins_and_the_other_is_told(store):
    with begin(store) as first:
        fill(first, cells(), [(0, 0)])
        with pytest.raises(StoreError, match="another run is writing 'other'"):
            begin(store, overwrite=True)
        fill(first, cells())
        first.commit()
    assert same(whole(TileStore.open(store).layer("other")), cells())


@pytest.fixture
def two_machines(monkeypatch, tmp_path_factory):
    """Every run has a disk of its own."""
    new = partial(tmp_path_factory.mktemp, "scratch")
    monkeypatch.setattr("terrain_gpu.store.scratch.scratch_folder", new)


@schemes
@pytest.mark.parametrize("how", ["resume", "overwrite"])
def test_a_writer_elsewhere_takes_over_and_the_first_is_told(store, two_machines, how):
    told = partial(pytest.raises, StoreError, match="another run has begun to write this layer")
    with begin(store) as first:
        fill(first, cells(), [(0, 0), (0, 1)])
        with pytest.raises(StoreError, match="unfinished run"):
            begin(store)
        with begin(store, **{how: True}) as second:
            assert second.done.sum() == 2 * (how == "resume")
            fill(second, cells(), [(0, 0), (1, 0)])
            with told():
                first.write_block(0, 0, np.zeros((64, 64), np.int16))
            first.write_block(0, 2, np.zeros((64, 22), np.int16))  # nobody has so far
            fill(second, cells())
            second.commit()
        with told():
            first.commit()
    assert same(whole(TileStore.open(store).layer("other")), cells())
    assert leftovers(store) == []


@schemes
def test_two_that_begin_at_once(store, two_machines, monkeypatch):
    both = []

    usual = runs.BucketTarget._next_version

    def meanwhile(self):
        monkeypatch.setattr(runs.BucketTarget, "_next_version", usual)
        both.append(begin(store))
        return usual(self)

    monkeypatch.setattr(runs.BucketTarget, "_next_version", meanwhile)
    with pytest.raises(StoreError, match="another run has begun to write this layer"):
        begin(store)
    with both[0] as writer:
        fill(writer, cells())
        writer.commit()


def test_two_new_stores_of_different_grids_at_one_place(bucket, two_machines):
    with begin(f"{bucket}/s.zarr") as writer:
        fill(writer, cells())
        make_store(f"{bucket}/s.zarr", cells()[:80], -1, 64)
        with pytest.raises(StoreError, match="was created with a different grid"):
            writer.commit()
    assert TileStore.open(f"{bucket}/s.zarr").layers == ["elevation"]


def test_a_shard_that_cannot_be_replaced_is_told(monkeypatch):
    """As in a bucket whose objects are locked, where every condition seems not to hold."""
    path = ObjectPath("s3://b/s.zarr/c/0/0")
    asked, tag = [], '"1"'
    answers = {"head": Meta(1, tag), "read": (b"y", tag), "create": None, "replace": None}
    for name, said in answers.items():
        monkeypatch.setattr(ObjectPath, name, lambda self, *given, said=said: said)

    class Target:
        fresh = True

        def check(self):
            asked.append(1)

    with pytest.raises(OutputError, match=r"s3://b/s\.zarr/c/0/0: cannot be replaced.*locked"):
        runs.ObjectShards(Target()).put_whole(path, b"x")
    assert len(asked) == runs.ROUNDS


@schemes
def test_a_layer_that_another_program_changed_meanwhile_is_kept(store):
    with begin(store, "elevation", overwrite=True) as writer:
        fill(writer, cells(4))
        metadata = ObjectPath(store) / "elevation/zarr.json"
        metadata.write(metadata.read()[0] + b"\n")
        with pytest.raises(StoreError, match="another program changed this layer"):
            writer.commit()
    assert same(whole(TileStore.open(store).layer("elevation")), cells())
    with begin(store, "elevation", overwrite=True) as writer:
        fill(writer, cells(4))
        writer.commit()
    assert same(whole(TileStore.open(store).layer("elevation")), cells(4))


@schemes
def test_a_server_that_ignores_conditions_is_refused(bucket, proxy):
    if bucket.startswith("az:"):
        pytest.skip("Azure's conditions are signed: the proxy cannot drop them")
    proxy.fault = lambda method, path, body: "plain"
    with pytest.raises(OutputError, match="ignores conditions"):
        make_store(f"{bucket}/s.zarr", cells(), -1, 64)
    assert objects(bucket) == {}


@schemes
def test_a_server_that_never_replaces_is_refused(bucket, proxy):
    proxy.fault = lambda method, path, body: "never"
    with pytest.raises(OutputError, match="rejects conditional writes although their conditions"):
        make_store(f"{bucket}/s.zarr", cells(), -1, 64)
    assert objects(bucket) == {}


def test_a_kill_while_a_server_is_tested_leaves_nothing_in_the_end(bucket, monkeypatch):
    def die(probe):
        probe.create(b"1")
        raise Stop

    with monkeypatch.context() as dying:
        dying.setattr(runs, "_wrong_answers", die)
        with pytest.raises(Stop):
            begin(f"{bucket}/s.zarr")
    assert len(leftovers(f"{bucket}/s.zarr")) == 2
    with begin(f"{bucket}/s.zarr", resume=True) as writer:
        fill(writer, cells())
        writer.commit()
    assert leftovers(f"{bucket}/s.zarr") == []


def test_a_server_that_compares_tags_without_quotation_marks(store, proxy):
    proxy.fault = lambda method, path, body: "bare"
    for seed in range(3):
        with begin(store, overwrite=True) as writer:
            fill(writer, cells(8))
            fill(writer, cells(seed))
            writer.commit()
        assert same(whole(TileStore.open(store).layer("other")), cells(seed))
    assert leftovers(store) == []
    place = ObjectPath(store) / "other/zarr.json"
    tag = place.head().tag
    assert place.replace(b"{}", tag) is not None
    assert place.replace(b"[]", tag) is None
    assert place.read()[0] == b"{}"


# -- faults -------------------------------------------------------------------------------------


@schemes
@pytest.mark.parametrize("fault", [500, 503, "drop", "lose", "cut"])
def test_faults_that_pass_change_nothing(store, proxy, tmp_path, fault):
    count = Counter()

    def now_and_then(method, path, body):
        """The requests 1, 2, 4, 8 ...: threads that ask for the same never get all the faults."""
        count[method, path, body] += 1
        wrong = count[method, path, body].bit_count() == 1
        return fault if wrong and (fault != "cut" or method == "GET") else None

    proxy.fault = now_and_then
    terrain_gpu.minimum_spanning_tree(store)
    terrain_gpu.minimum_spanning_tree(store, overwrite=True)
    assert same(whole(TileStore.open(store).layer("elevation")), cells())
    make_store(tmp_path / "s.zarr", cells(), -1, 64)
    terrain_gpu.minimum_spanning_tree(tmp_path / "s.zarr")
    assert same(
        whole(TileStore.open(store).layer("mst")),
        whole(TileStore.open(tmp_path / "s.zarr").layer("mst")),
    )
    assert leftovers(store) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (503, "503 Service Unavailable.*after 6 retries"),
        ("cut", "the response was truncated"),
        ("drop", "no connection|truncated"),
        (403, "access denied.*credentials"),
    ],
)
def test_faults_that_stay_are_named(store, proxy, fault, words):
    layer = TileStore.open(store).layer("elevation")
    proxy.fault = lambda method, path, body: fault if "/c/" in path else None
    with pytest.raises(StoreError, match=words) as found:
        layer.read_block(0, 0)
    assert str(found.value).startswith(f"{store}/elevation/c/0/0: cannot be read: ")
    with pytest.raises(StoreError, match=words):
        layer.read_window(0, 5, 0, 5)


def test_a_server_that_does_not_answer(store, proxy, monkeypatch):
    monkeypatch.setattr(client, "READ_TIMEOUT", 0.2)
    monkeypatch.setattr(client, "SERVER_RETRIES", 1)
    monkeypatch.setattr("terrain_gpu.store.objects.ATTEMPTS", 1)
    layer = TileStore.open(store).layer("elevation")
    proxy.fault = lambda method, path, body: "hang" if "/c/" in path else None
    with pytest.raises(StoreError, match="did not answer in time"):
        layer.read_block(0, 0)


def test_a_run_that_a_fault_ends_is_resumed(store, proxy):
    def fault(method, path, body):
        return 503 if method == "PUT" and "/mst/c/1/" in path else None

    proxy.fault = fault
    with pytest.raises(OutputError, match=r"mst/c/1/\d: cannot be written: 503.*--resume"):
        terrain_gpu.minimum_spanning_tree(store)
    proxy.fault = lambda method, path, body: None
    found = terrain_gpu.minimum_spanning_tree(store, resume=True, verify=True)
    assert found.report.result["blocks_resumed"] > 0
    assert leftovers(store) == []


@schemes
def test_a_bucket_that_is_not_there(bucket):
    nowhere = f"{bucket.partition(':')[0]}://nowhere-x/s.zarr"
    with pytest.raises(StoreError, match=f"{nowhere}.*no such bucket"):
        TileStore.open(nowhere)
    with pytest.raises(StoreError, match=f"{nowhere}.*no such bucket"):
        make_store(nowhere, cells(), -1, 64)
    with pytest.raises(StoreError, match="no such store"):
        TileStore.open(f"{bucket}/s.zarr")
    with pytest.raises(InputError, match="names a whole bucket; add a name"):
        TileStore.open(bucket)


@schemes
def test_credentials_are_never_told(store, proxy, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    proxy.fault = lambda method, path, body: 403
    with pytest.raises(StoreError) as found:
        TileStore.open(store)
    proxy.fault = lambda method, path, body: None
    terrain_gpu.minimum_spanning_tree(store)
    told = caplog.text + str(found.value) + repr(found.value)
    secrets = [*KEYS.values(), KEY]
    assert [secret for secret in secrets if secret != KEYS["AWS_REGION"] if secret in told] == []
    assert "Signature=" not in told


# -- by others ----------------------------------------------------------------------------------


def test_workers_write_there_too(store, bucket, tmp_path):
    def take(environment):
        os.environ.update(environment)

    alone = make_store(tmp_path / "s.zarr", cells(), -1, 64)
    terrain_gpu.minimum_spanning_tree(alone)
    terrain_gpu.export_layer(alone, raster := tmp_path / "r.tif")
    terrain_gpu.convert_dataset(raster, tmp_path / "c.zarr", block_size=64)
    with processes(1) as client:
        # An earlier test may have started the server that forks workers, without this bucket.
        client.run(take, dict(os.environ))
        terrain_gpu.minimum_spanning_tree(store, client=client)
        terrain_gpu.convert_dataset(raster, f"{bucket}/c.zarr", block_size=64, client=client)
    assert objects(store) == files(alone)
    assert objects(f"{bucket}/c.zarr") == files(tmp_path / "c.zarr")


# -- without it ---------------------------------------------------------------------------------


def test_stores_on_a_disk_need_no_obstore(tmp_path):
    make_store(tmp_path / "s.zarr", cells(), -1, 64)
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "import terrain_gpu\n"
        f"terrain_gpu.slope({str(tmp_path / 's.zarr')!r})\n"
        "assert 'terrain_gpu.store.bucket' not in sys.modules\n"
        "try:\n    terrain_gpu.slope('s3://bucket/s.zarr')\n"
        "except terrain_gpu.InputError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert re.search(r"s3://bucket: .*pip install 'terrain_gpu\[cloud\]'", done.stdout), done.stderr
