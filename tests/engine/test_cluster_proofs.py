"""Proofs whose blocks are checked in the workers of a cluster."""

from __future__ import annotations

import json
import pickle
from functools import partial

import numpy as np
import pytest
from cluster import kill_a_worker
from contract import make_store, whole

from terrain_gpu import (
    accumulate,
    build_index,
    create_layer,
    fill,
    flow_direction,
    label_components,
    minimum_spanning_tree,
    shortest_paths,
    slope,
)
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine import cluster as clusters
from terrain_gpu.engine.cluster import Cluster
from terrain_gpu.engine.connection import address_of
from terrain_gpu.engine.proof import Limits, check_blocks, plan_threads
from terrain_gpu.errors import PlanError, StoreError, VerificationError
from terrain_gpu.paths.proof import verify_stored
from terrain_gpu.spanning_tree.proof.forest import plan_workers, verify_forest
from terrain_gpu.spanning_tree.weights import Weight
from terrain_gpu.store import TileStore


def cells(shape=(150, 210)):
    found = np.random.default_rng(3).integers(0, 50, shape).astype(np.int16)
    found[40:60, 30:90] = -1
    return found


@pytest.fixture
def store(tmp_path, no_fsync):
    return make_store(tmp_path / "s.zarr", cells(), -1, 64)


def flip(store, name, cell=(64, 100)):
    """Flip a bit of a finished layer, in a block of its own with right checksums."""
    layer = TileStore.open(store).layer(name)
    data = whole(layer)
    data.view(f"u{data.itemsize}")[cell] ^= 1
    how = {"nodata": layer.nodata, "block_size": layer.block_size, "overwrite": True}
    with create_layer(store, name, layer.grid, data.dtype, **how) as target:
        for at in target.blocks.ids():
            r0, r1, c0, c1 = target.block_window(*at)
            target.write_block(*at, np.ascontiguousarray(data[r0:r1, c0:c1]))
        own = {k: v for k, v in layer.info.items() if k not in ("digest", "checksum")}
        target.commit(own)


def verdict(prove):
    """What a proof finds; without what differs by machine."""
    try:
        found = prove()
    except VerificationError as error:
        return type(error), str(error), error.check, error.row, error.col
    return {key: value for key, value in found.items() if key != "backend"}


def test_a_violation_is_the_same_in_another_process():
    for error in (VerificationError("wrong", "cells", 3, 4), VerificationError("wrong", "totals")):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), vars(again)) == (str(error), vars(error))
        assert again.exit_code == 1


def test_a_layer_that_has_changed_since_is_refused(store):
    sent = pickle.dumps(TileStore.open(store).layer("elevation"))
    assert np.array_equal(whole(pickle.loads(sent)), cells())
    make_store(store.parent / "other.zarr", cells() + 1, -1, 64)
    (store / "elevation").rename(store / "before")
    (store.parent / "other.zarr" / "elevation").rename(store / "elevation")
    with pytest.raises(StoreError, match="replaced since it was opened"):
        whole(pickle.loads(sent))


# -- every kind of proof, in two and three workers -------------------------------------------------


PATHS = {
    "flats": {"cost": "absdiff"},
    "one way": {"cost": "max(0, z_to - z_from)"},
    "linked": {"cost": "surface", "backlink": True, "allocation": True},
    "heights": {"cost": "minimax"},
    "sixteen": {"cost": "surface", "connectivity": 16},
}


@pytest.mark.parametrize("name", PATHS)
def test_paths(store, name, cluster, larger_cluster):
    shortest_paths(store, [(3, 5), (140, 200)], **PATHS[name])
    for wrong in (False, True):
        if wrong:  # the last layer of the run, which others do not name
            flip(store, "allocation" if "allocation" in PATHS[name] else "distance")
        opened = TileStore.open(store)
        alone = verdict(partial(verify_stored, opened))
        assert isinstance(alone, tuple) == wrong
        for client in (cluster, larger_cluster):
            used = Cluster(client, str(store))
            assert verdict(partial(verify_stored, opened, cluster=used)) == alone
            assert used.figures.tasks > 0


@pytest.mark.parametrize("shape", [(1100, 1030), (70, 1100)])
def test_spanning_trees_in_squares_of_blocks(tmp_path, no_fsync, cluster, shape):
    store = make_store(tmp_path / "s.zarr", cells(shape), -1, 64)
    minimum_spanning_tree(store, backend="cpu")
    for wrong in (False, True):
        opened = TileStore.open(store)
        if wrong:
            flip(store, "mst")
            opened = TileStore.open(store)
        source, edges = opened.layer("elevation"), opened.layer("mst")
        kind = {"weight": "max", "connectivity": 8, "expected": edges.info["result"]}
        prove = partial(verify_forest, source, edges, **kind)
        used = Cluster(cluster, str(store))
        assert verdict(partial(prove, cluster=used)) == verdict(prove)
        weight, limits = Weight("max", source.dtype), Limits.of("8GB", cluster=used)
        side = plan_workers(source, weight, used, limits).unit_rows
        assert side == (256 if shape[0] == 1100 else 64)
        assert used.figures.tasks > 0


def made(store):
    """A store with a layer of every kind that has a proof of its own."""
    minimum_spanning_tree(store, weight="flow", backend="cpu")
    shortest_paths(store, [(3, 5)], backlink=True)
    slope(store)
    label_components(store, "elevation > 20")
    accumulate(store, directions="codes")
    flow_direction(store)
    fill(store)
    build_index(store)


def verify(store, *words):
    """The exit code of `terrain-gpu verify`, its result, and settings."""
    report = store.parent / "verified.json"
    words = ["verify", str(store), "--backend", "cpu", "-q", "--json", str(report), *words]
    code = options._guarded(lambda: group.main(list(map(str, words)), standalone_mode=False))
    found = json.loads(report.read_text())
    return code, found["result"], found["settings"]


def without_tasks(result):
    return {
        name: {k: v for k, v in one.items() if k != "proof_tasks"}
        for name, one in result.items()
        if name != "store"
    }


def test_the_command(store, cluster):
    """Right results, and wrong ones, as in one process; all are checked in workers."""
    made(store)
    address = "--scheduler", address_of(cluster)
    for names in ((), ("mst", "slope", "components")):
        for name in names:
            flip(store, name)
        alone, here, _ = verify(store)
        code, there, settings = verify(store, *address)
        assert (code, without_tasks(there)) == (alone, without_tasks(here))
        assert (code == 0) == (not names)
        proven = names or without_tasks(there)  # what follows from a changed layer is not proven
        assert all(there[name]["proof_tasks"] > 0 for name in proven)
        assert settings["cluster"]["tasks"] == sum(
            one["proof_tasks"] for name, one in there.items() if name != "store"
        )
    assert not {one["verified"] for name, one in there.items() if name in names} & {True}
    for data in (verify(store, "--data"), verify(store, "--data", *address)):
        assert data[0] == 0
        assert data[1]["mst"]["tiles"] == 12


def test_what_does_not_take_workers(store, cluster, capfd):
    address = "--scheduler", address_of(cluster)
    slope(store)
    for words, message in [
        (("--file", "a.tif"), "--file works in this process"),
        (("--accept-changes", "slope"), "--accept-changes works in this process"),
        (("--threads", "2"), "--threads cannot be combined"),
    ]:
        command = ["verify", str(store), *words, *address]
        assert options._guarded(lambda command=command: group.main(command, standalone_mode=False))
        assert message in capfd.readouterr().err


# -- faults, limits, messages ----------------------------------------------------------------------


def test_a_worker_dies_during_a_proof(store, cluster):
    killed = []

    def kill(cells, total):
        if not killed:
            killed.append(kill_a_worker(cluster))

    minimum_spanning_tree(store, backend="cpu")
    shortest_paths(store, [(3, 5)])
    opened = TileStore.open(store)
    alone = verdict(partial(verify_stored, opened))
    prove = partial(verify_stored, opened, cluster=Cluster(cluster, str(store)), progress=kill)
    assert verdict(prove) == alone
    assert killed


def first_of(at, data, given=b""):
    """Two blocks are wrong."""
    if at in ((1, 1), (2, 2)):
        raise VerificationError(f"block {at} is wrong", "cells", *at)
    return at, given[:1]


@pytest.mark.parametrize("size", [1, 1 << 17])
def test_the_first_violation_is_told(store, cluster, size):
    """Whoever checks blocks, and however large what all tasks share is."""
    layer, seen = TileStore.open(store).layer("elevation"), []
    for used in (None, Cluster(cluster, str(store))):
        limits = Limits.of("8GB", 2, cluster=used)
        plan = plan_threads(layer.blocks, "int16", 1 if used else 2, 10**6, limits)
        check = partial(first_of, given=bytes(size))
        with pytest.raises(VerificationError, match=r"block \(1, 1\) is wrong"):
            check_blocks(plan, layer.blocks, [], check, lambda *one: seen.append(one), limits)
    sent = used.figures.bytes_sent
    assert (sent < 3 * size) if size > 1 else sent > 0
    assert ((0, 0), ((0, 0), b"\0")) in seen


def test_what_is_sent_is_small(store, cluster, monkeypatch):
    """No task holds cells: what all share, what blocks need of others, and what they tell."""
    made(store)
    used = Cluster(cluster, str(store))
    monkeypatch.setattr(clusters, "Cluster", lambda *_: used)
    assert verify(store, "--scheduler", address_of(cluster))[0] == 0
    figures = used.figures
    assert figures.bytes_sent / figures.tasks < 60_000
    assert figures.bytes_received / figures.tasks < 60_000


def test_limits_of_workers_are_kept(store, cluster):
    """A limit that is too small is refused before the work, with one that suffices."""
    for make in (minimum_spanning_tree, partial(shortest_paths, sources=[(3, 5)]), slope):
        with pytest.raises(PlanError, match="give at least"):
            make(store, verify=True, client=cluster, memory_limit="1MB")
    assert set(TileStore.open(store).layers) == {"elevation"}
    assert not (store / ".incomplete").exists()
