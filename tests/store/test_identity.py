"""Results over layers rewritten since: every command tells them from fresh ones.

The rewritten layer has the minimum, maximum and number of cells of the old one; one cell differs.
"""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

from terrain_gpu import (
    GridSpec,
    TileStore,
    accumulate,
    build_index,
    create_layer,
    extract_network,
    label_components,
    minimum_spanning_tree,
    shortest_paths,
)
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.errors import StoreError, TerrainError

SHAPE = 150, 200


def heights(changed):
    z = np.random.default_rng(1).random(SHAPE)
    z[0, 0], z[0, 1] = 0.0, 1.0
    if changed:
        z.ravel()[100] = 0.9
    return z


def put(store, data, name="elevation"):
    with create_layer(
        store, name, GridSpec(*SHAPE), data.dtype, block_size=64, overwrite=True
    ) as writer:
        for i, j in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(i, j)
            writer.write_block(i, j, data[r0:r1, c0:c1])
        return writer.commit()


@pytest.fixture
def store(tmp_path, monkeypatch, no_fsync):
    monkeypatch.chdir(tmp_path)
    put("s.zarr", heights(False))
    return "s.zarr"


def call(capfd, command):
    capfd.readouterr()
    code = options._guarded(lambda: group.main(shlex.split(command), standalone_mode=False))
    return (code, *capfd.readouterr())


def rewrite(store):
    before = TileStore.open(store).layer("elevation").describe()
    after = put(store, heights(True)).describe()
    assert before.pop("digest") != after.pop("digest")
    assert before == after


def test_a_tree_of_other_cells_is_not_used(store, tmp_path):
    tree = minimum_spanning_tree(store)
    accumulate(store)
    rewrite(store)
    for run in (
        lambda: accumulate(store, overwrite=True),
        lambda: accumulate(store, resume=True),
        lambda: extract_network(store, tmp_path / "n.geojson", min_length=9),
    ):
        with pytest.raises(StoreError, match="mst: computed from other cells than"):
            run()
    with pytest.raises(StoreError, match="layer 'mst' exists; --overwrite replaces it"):
        minimum_spanning_tree(store, resume=True)
    again = minimum_spanning_tree(store, resume=True, overwrite=True)
    assert again.total_weight == minimum_spanning_tree(heights(True)).total_weight
    assert again.total_weight != tree.total_weight


def test_sums_over_another_tree_are_not_resumed(store):
    minimum_spanning_tree(store)
    first = accumulate(store).layer.info["settings"]
    rewrite(store)
    minimum_spanning_tree(store, overwrite=True)
    with pytest.raises(StoreError, match="layer 'accumulation' exists; --overwrite replaces it"):
        accumulate(store, resume=True)
    assert accumulate(store, resume=True, overwrite=True).layer.info["settings"] != first


def test_distances_over_other_cells_are_not_resumed(store):
    old = shortest_paths(store, [(5, 5)], backlink=True).distance()
    rewrite(store)
    with pytest.raises(StoreError, match="layer 'distance' exists; --overwrite replaces it"):
        shortest_paths(store, [(5, 5)], backlink=True, resume=True)
    found = shortest_paths(store, [(5, 5)], resume=True, overwrite=True)
    expected = shortest_paths(heights(True), [(5, 5)]).distance()
    np.testing.assert_array_equal(found.distance(), expected)
    assert (expected != old).any()


@pytest.mark.parametrize("what", ["friction", "barriers"])
def test_distances_over_other_frictions_or_barriers_are_not_resumed(store, what):
    beside = np.random.default_rng(2).integers(0, 2, SHAPE).astype(np.uint8)
    beside[5, 5] = 0
    put(store, beside, "land")
    run = {what: "land", "cost": "friction" if what == "friction" else "surface"}
    shortest_paths(store, [(5, 5)], **run)
    beside[100, 100] ^= 1
    beside[100, 101] = 1 - beside[100, 100]
    put(store, beside, "land")
    with pytest.raises(StoreError, match="layer 'distance' exists"):
        shortest_paths(store, [(5, 5)], resume=True, **run)


class Stop(Exception):
    pass


@pytest.mark.parametrize("command", ["mst", "distance", "components", "accumulation"])
def test_unfinished_runs_over_other_cells_are_not_resumed(store, command):
    def stop(done, total):
        if done and total and done < total:
            raise Stop

    minimum_spanning_tree(store)
    run = {
        "mst": lambda **how: minimum_spanning_tree(store, **how),
        "distance": lambda **how: shortest_paths(store, [(5, 5)], **how),
        "components": lambda **how: label_components(store, "elevation > 0.4", **how),
        "accumulation": lambda **how: accumulate(store, **how),
    }[command]
    with create_layer(store, "x1", GridSpec(*SHAPE), np.uint8, block_size=64):
        pass
    with pytest.raises(Stop):
        run(overwrite=True, progress=_late(stop))
    rewrite(store)
    if command == "accumulation":
        minimum_spanning_tree(store, overwrite=True)
    found = run(overwrite=True, resume=True)
    assert found.report.result.get("blocks_resumed", 0) == 0


def _late(stop):
    """Stops once something is finished: at the last tenth of the cells."""
    seen = [0]

    def tick(done, total):
        seen[0] += done
        if seen[0] > 0.9 * total:
            stop(done, total)

    return tick


def test_an_index_of_other_cells_is_not_used(store):
    build_index(store, cost="surface")
    rewrite(store)
    with pytest.raises(StoreError, match="the layer layer has changed since"):
        shortest_paths(store, [(5, 5)], cost="surface", method="index")
    with pytest.raises(StoreError, match="was built for other costs"):
        build_index(store, cost="surface")


def test_what_belongs_to_other_distances_is_stale(store, capfd):
    """Backlinks and allocation of an earlier run beside new distances."""
    shortest_paths(store, [(5, 5)], backlink=True, allocation=True)
    stale = TileStore.open(store).describe()["layers"]
    assert [stale[name]["stale"] for name in ("distance", "backlink", "allocation")] == [[]] * 3
    shortest_paths(store, [(90, 90)], overwrite=True)
    told = TileStore.open(store).describe()["layers"]
    assert told["distance"]["stale"] == []
    assert told["backlink"]["stale"] == told["allocation"]["stale"] == ["distance"]
    code, _, err = call(capfd, "verify s.zarr")
    assert code == 2
    assert "backlink: not from the same run as" in err


def test_info_names_what_is_stale(store, capfd):
    minimum_spanning_tree(store, weight="absdiff")
    code, out, _ = call(capfd, "info s.zarr")
    assert code == 0
    assert "mst: uint8, weight absdiff\n" in out
    assert "STALE" not in out
    rewrite(store)
    code, out, _ = call(capfd, "info s.zarr")
    assert code == 0
    assert "STALE   elevation changed since; compute it again" in out
    _, out, _ = call(capfd, "info s.zarr --json -")
    assert json.loads(out)["result"]["layers"]["mst"]["stale"] == ["elevation"]


def test_verify_goes_on_past_a_stale_layer(store, capfd):
    """One stale layer must not lose the proof of another."""
    minimum_spanning_tree(store)
    rewrite(store)
    shortest_paths(store, [(5, 5)], backlink=True)
    code, out, err = call(capfd, "verify s.zarr")
    assert code == 2
    assert "layers distance, backlink verified" in out
    assert "mst: computed from other cells" in err
    code, out, _ = call(capfd, "verify s.zarr --json -")
    result = json.loads(out)["result"]
    assert code == 2
    assert result["distance"]["verified"]
    assert not result["mst"]["verified"]
    assert "other cells" in result["mst"]["error"]


def test_verify_data_compares_every_tile(store, capfd):
    minimum_spanning_tree(store)
    code, out, err = call(capfd, "verify s.zarr --data")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("s.zarr: layer elevation: 12 tiles match their checksums, ")
    assert lines[1].startswith("s.zarr: layer mst: 12 tiles match their checksums, ")
    shard = TileStore.open(store).layer("elevation").shard_path(1, 2)
    whole = bytearray(shard.read_bytes())
    whole[999] ^= 1
    shard.write_bytes(whole)
    code, out, err = call(capfd, "verify s.zarr --data")
    assert code == 2
    assert out.startswith("s.zarr: layer mst: 12 tiles")
    assert "tile (0, 0) of block (1, 2) of layer 'elevation' differs from its checksum" in err
    assert err.count("\n") == 1
    for command in ("compute-mst s.zarr --overwrite", "export s.zarr x.tif"):
        code, _, err = call(capfd, command)
        assert code == 2
        assert "of layer 'elevation' differs from its checksum" in err


def test_changes_on_purpose_are_accepted(store, capfd):
    minimum_spanning_tree(store)
    before = TileStore.open(store).layer("elevation")
    import zarr

    array = zarr.open_array(str(before.path), mode="r+")
    array[3, 4] = 7.5
    with pytest.raises(StoreError, match=r"--accept-changes elevation"):
        before.read_block(0, 0)
    code, out, _ = call(capfd, "verify s.zarr --accept-changes elevation")
    assert code == 0
    assert "layer elevation accepted as it is now" in out
    layer = TileStore.open(store).layer("elevation")
    assert layer.read_window(3, 4, 4, 5) == 7.5
    assert layer.info["max"] == 7.5
    assert layer.identity != before.identity
    with pytest.raises(TerrainError, match="computed from other cells"):
        accumulate(store)
    code, _, err = call(capfd, "verify s.zarr --accept-changes nix")
    assert code == 2
    assert "no layer 'nix'" in err


def test_layers_of_other_programs_are_told_by_all_their_cells(store):
    """Without a recorded digest all cells are read, so that stale results are still found."""
    import zarr

    path = TileStore.open(store).layer("elevation").path / "zarr.json"
    metadata = json.loads(path.read_text())
    for key in ("digest", "checksum"):
        del metadata["attributes"]["terrain_gpu"][key]
    path.write_text(json.dumps(metadata))
    minimum_spanning_tree(store)
    accumulate(store)
    zarr.open_array(str(path.parent), mode="r+")[100, 100] = 0.5
    with pytest.raises(StoreError, match="computed from other cells"):
        accumulate(store, overwrite=True)
