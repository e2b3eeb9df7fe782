"""Distances beyond 32 bits: the run starts again with 64, whatever was written before."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from test_paths import Stop, all_of, fields_in_memory, make_layers

from terrain_gpu import LayerWriter, TileStore, shortest_paths
from terrain_gpu.paths.cost_distance.operation import LAYERS
from terrain_gpu.paths.relax.relaxation import GUARDS

pytestmark = pytest.mark.usefixtures("no_fsync")

BEYOND = 10_000
"""What stands for 2**31 here."""

METHODS = [{}, {"method": "dijkstra"}, {"build_index": True}]
NAMES = [(), ("backlink",), ("backlink", "allocation")]


@pytest.fixture(params=METHODS, ids=lambda how: "-".join(map(str, how.values())) or "relax")
def method(request):
    return request.param


@pytest.fixture(params=NAMES, ids=lambda names: "-".join(("distance", *names)))
def names(request):
    return dict.fromkeys(request.param, True)


@pytest.fixture
def peak(tmp_path):
    """Six blocks without flats; only cells inside a tile of the last are far, none on a rim."""
    data = 4 * np.random.default_rng(7).integers(0, 9, (128, 192)).astype(np.uint16)
    data[100:103, 160:163] = 40_000
    data += np.tile(np.array([[0, 1], [2, 3]], np.uint16), (64, 96))
    make_layers(tmp_path / "s.zarr", 64, elevation=data)
    run = partial(shortest_paths, tmp_path / "s.zarr", [(0, 0)], threads=1)
    every = shortest_paths(data, [(0, 0)], backlink=True, allocation=True)
    return run, [array.astype(np.uint64) for array in all_of(every)]


def assert_promoted(found, expected, names):
    assert found.report.result["distance_dtype"] == "uint64"
    distance = expected[0]
    np.testing.assert_array_equal(found.distance(), distance)
    for name, array in zip(LAYERS[1:], expected[1:], strict=True):
        if name in names:
            np.testing.assert_array_equal(getattr(found, name)(), array)
    store = next(iter(found.layers.values())).path.parent
    assert not (store / ".incomplete").exists()
    assert set(TileStore.open(store).layers) == {"elevation", "distance", *names}


@pytest.mark.parametrize("resume", [False, True])
def test_every_layer_starts_again(peak, monkeypatch, method, names, resume):
    run, expected = peak
    monkeypatch.setitem(GUARDS, 4, BEYOND)
    assert_promoted(run(**method, **names, resume=resume), expected, names)


def test_what_an_earlier_run_left_starts_again_too(peak, monkeypatch, method, names):
    """Its blocks have 32 bits; all but the last are written."""
    run, expected = peak
    usual, last = LayerWriter.write_block, ["distance", *names][-1]

    def stopping(self, i, j, data):
        if self.shard_path(i, j).parts[-4] == last and (i, j) == (1, 2):
            raise Stop
        return usual(self, i, j, data)

    with monkeypatch.context() as patch:
        patch.setattr(LayerWriter, "write_block", stopping)
        with pytest.raises(Stop):
            run(**method, **names)
    monkeypatch.setitem(GUARDS, 4, BEYOND)
    assert_promoted(run(**method, **names, resume=True), expected, names)


@pytest.mark.parametrize("at", ["write_block", "commit"])
def test_a_promoted_run_that_was_stopped_goes_on(peak, monkeypatch, method, names, at):
    """Stopped before the first block of the last layer, or between the commits."""
    run, expected = peak
    monkeypatch.setitem(GUARDS, 4, BEYOND)
    usual, last = getattr(LayerWriter, at), ["distance", *names][-1]
    wide = []

    def stopping(self, *how):
        wide.append(self.dtype == np.uint64)
        if any(wide) and self.path.name == last:
            raise Stop
        return usual(self, *how)

    with monkeypatch.context() as patch:
        patch.setattr(LayerWriter, at, stopping)
        with pytest.raises(Stop):
            run(**method, **names)
    assert_promoted(run(**method, **names, resume=True), expected, names)
    again = run(**method, **names, resume=True)
    assert again.report.result["distance_dtype"] == "uint64"
    np.testing.assert_array_equal(again.distance(), expected[0])


def test_the_plan_is_that_of_64_bits(peak, monkeypatch, method):
    run, _ = peak
    monkeypatch.setitem(GUARDS, 4, BEYOND)
    how = {**method, "memory_limit": "400MB"}
    promoted = run(**how)
    run = partial(run.func, *run.args[:1], [(0, 0, BEYOND + 1)], threads=1, overwrite=True)
    assert promoted.report.settings["plan"] == run(**how).report.settings["plan"]


def test_spilled_fields_of_every_layer_go(peak, monkeypatch, names):
    run, expected = peak
    monkeypatch.setitem(GUARDS, 4, BEYOND)
    with fields_in_memory(1):
        assert_promoted(run(**names), expected, names)
