"""Divided flow in the workers of a cluster. See also `contract`."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from contract import make_store, same, whole
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from test_multiflow import beside, prepare
from test_paths_cluster import Lossy, Ticking

from terrain_gpu import TileStore, flow_accumulation, hand
from terrain_gpu.engine.run import run
from terrain_gpu.errors import StoreError
from terrain_gpu.hydrology.common.rims import BlockRim
from terrain_gpu.hydrology.divided_flow import base, remote
from terrain_gpu.hydrology.divided_flow.remote import FlowDispatch, KeptFlows, visit_flows
from terrain_gpu.hydrology.divided_flow.visits import Flow, KeptCells
from terrain_gpu.hydrology.flow_accumulation.divided import MultipleFlow
from terrain_gpu.hydrology.hand.divided import DinfHand

pytestmark = pytest.mark.usefixtures("no_fsync")

SHAPE = 150, 210
KINDS = "rough", "smooth", "flat"


def heights(kind, seed):
    """Of twelve blocks: noise, slopes that flow crosses back and forth, or lakes; with a gap."""
    rng = np.random.default_rng(seed)
    row, col = np.mgrid[: SHAPE[0], : SHAPE[1]]
    slope = row + 40 * np.sin(col / 9) + 40 * np.sin(row / 11)
    found = {
        "rough": lambda: rng.integers(0, 99, SHAPE),
        "smooth": lambda: slope * 20 + rng.integers(0, 9, SHAPE),
        "flat": lambda: rng.integers(0, 3, SHAPE),
    }[kind]().astype(np.int16)
    found[60:70, 100:140] = -999
    return found


def make(path, kind, seed):
    """A store with what both operations read."""
    store = make_store(path, heights(kind, seed), -999, 64)
    prepare(store)
    rain = np.random.default_rng(seed).random(SHAPE)
    rain[::7, ::5] = np.nan
    beside(store, "rain", rain)
    return store


def operations(store):
    """Every kind of flow, with all that a visit takes with it."""
    return [
        MultipleFlow(str(store), "mfd", weights="rain"),
        MultipleFlow(str(store), "dinf"),
        DinfHand(str(store), streams=None, distance="away"),
    ]


def found_by(operation, **how):
    """The layers of a run, and its findings and report."""
    done = run(operation, overwrite=True, **how)
    return {name: whole(layer) for name, layer in done.layers.items()}, done.found, done.report


def agree(beside, alone):
    for name, cells in alone[0].items():
        assert same(beside[0][name], cells)
    assert beside[1] == alone[1]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """For each kind of heights: the store, and each operation with what one process finds."""
    folder, found = tmp_path_factory.mktemp("kept"), {}
    for kind in KINDS:
        store = make(folder / f"{kind}.zarr", kind, 3)
        found[kind] = [(one, found_by(one, threads=1)) for one in operations(store)]
    return found


class LossyFlows(Lossy):
    """Each worker keeps flows of its own; those of one that dies are lost."""

    def __init__(self, draw, patch):
        super().__init__(draw)
        self.patch, self.flows = patch, defaultdict(KeptFlows)

    def do(self, name, work, item):
        self.patch.setattr(remote, "FLOWS", self.flows[name])
        return super().do(name, work, item)


@settings(max_examples=examples(40))
@given(
    st.data(),
    st.sampled_from(KINDS),
    st.integers(0, 2),
    st.sampled_from([0, 1, 3, 40]),
    st.sampled_from([0.0, 0.004, 1.0]),
    st.sampled_from([(16, 4), (1, 1), (2, 3)]),
)
def test_whatever_workers_lose(kept, data, kind, which, capacity, seconds, most):
    """With room for `capacity` flows, and calls of that many seconds and blocks."""
    operation, alone = kept[kind][which]
    few = lambda run, state, _: FlowDispatch(run, state, capacity)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "FlowDispatch", few)
        patch.setattr(remote, "time", Ticking())
        patch.setattr(remote, "SECONDS", seconds)
        patch.setattr(remote, "MOST", most[0])
        patch.setattr(remote, "NEW", most[1])
        beside = found_by(operation, threads=1, engine=LossyFlows(data.draw, patch))
    agree(beside, alone)
    told = beside[2].result
    assert told["block_visits"] >= told["block_loads"] >= 12
    assert capacity or told["block_visits"] == told["block_loads"]


@pytest.mark.parametrize("workers", ["cluster", "larger_cluster"])
def test_random_rasters_in_workers(folders, workers, request, monkeypatch):
    """Two workers and three; this process does no visit."""
    client = request.getfixturevalue(workers)

    def refused(*given):
        raise AssertionError("a visit in the process of the run")

    @settings(max_examples=examples(4))
    @given(st.sampled_from(KINDS), st.integers(0, 2**30))
    def check(kind, seed):
        with folders() as folder:
            for operation in operations(make(folder / "s.zarr", kind, seed)):
                alone = found_by(operation, threads=2)
                with monkeypatch.context() as patch:
                    patch.setattr(type(operation), "start", refused)
                    patch.setattr(type(operation), "advance", refused)
                    beside = found_by(operation, client=client)
                agree(beside, alone)
                told, tasks = beside[2].result, beside[2].settings["cluster"]["tasks"]
                assert told["block_visits"] >= told["block_loads"] >= 12
                assert tasks >= 6  # of both phases

    check()


def dying(folder, operation, writers, call):
    """Visit; one process dies before it goes on with a block, and one after."""
    again = any(not visit.new for visit in call.visits)
    for when in ("before", "after"):
        if when == "after":
            found = visit_flows(operation, writers, call)
        if again and not (folder / when).exists():
            (folder / when).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return found


def test_workers_die_in_visits(kept, cluster, tmp_path, monkeypatch):
    for number, (operation, alone) in enumerate(kept["smooth"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.setattr(remote, "visit_flows", partial(dying, folder))
        beside = found_by(operation, client=cluster)
        agree(beside, alone)
        assert beside[2].settings["cluster"]["retries"] >= 2
        assert len(list(folder.iterdir())) == 2


def test_with_little_memory(kept, cluster, monkeypatch):
    """Flows that do not fit are found again, with the same bits."""
    few = lambda run, state, _: FlowDispatch(run, state, 1)  # noqa: E731
    monkeypatch.setattr(base, "FlowDispatch", few)
    operation, alone = kept["smooth"][0]
    beside = found_by(operation, client=cluster)
    agree(beside, alone)
    assert beside[2].result["block_loads"] > 12


@pytest.fixture(scope="module")
def circular(tmp_path_factory):
    """Directions of which two lead to each other."""
    store = make(tmp_path_factory.mktemp("circle") / "s.zarr", "rough", 1)
    codes = np.full(SHAPE, 1, np.uint8)
    codes[:, -1], codes[70, 60] = 0, 16
    beside(store, "levels", np.zeros(SHAPE, np.int16))
    beside(store, "codes", codes)
    return MultipleFlow(str(store), filled="levels", directions="codes")


def test_a_circle(circular, cluster):
    """The message is that of one process."""
    told = []
    for client in (None, cluster):
        with pytest.raises(StoreError, match=r"a loop of 2 cells: \(70, 59\), \(70, 60\)") as error:
            run(circular, client=client)
        told.append(str(error.value))
    assert told[0] == told[1]


@settings(max_examples=examples(5))
@given(st.data(), st.sampled_from([0, 3, 40]))
def test_a_circle_whatever_workers_lose(circular, data, capacity):
    """It is reported as by one process, and nothing else is."""
    few = lambda run, state, _: FlowDispatch(run, state, capacity)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "FlowDispatch", few)
        patch.setattr(remote, "time", Ticking())
        with pytest.raises(StoreError, match=r"a loop of 2 cells: \(70, 59\), \(70, 60\)"):
            found_by(circular, threads=1, engine=LossyFlows(data.draw, patch))


def test_what_the_driver_knows_stays(kept):
    """A flow that begins again with less takes back no rim and no count, and hides nothing."""
    operation = kept["smooth"][0][0]
    state = base.FlowRims(operation.blocks, operation.kept)
    dispatch = FlowDispatch(SimpleNamespace(tick=lambda at: None), state, 3)
    unknown = state.unknown
    known = BlockRim(*(np.full_like(side, 7) for side in state.rims.of((0, 0))))
    nothing = BlockRim(*(np.full_like(side, unknown) for side in known))
    crossed = np.zeros((3, 3), np.int64)
    crossed[1, 2] = 5

    def visited(at, rim, crossed):
        left = {at: remote.FlowLeft(rim, 9, 0, crossed)}
        return remote.FlowsVisited({at: 0}, left, [], 1, 1)

    assert dispatch.give("w", ["w"])
    dispatch._take("w", visited((0, 1), nothing, 0 * crossed))
    assert not dispatch._pending
    dispatch._take("w", visited((0, 0), known, crossed))
    assert dispatch._pending == {(0, 1)}
    dispatch._take("w", visited((0, 0), nothing, 0 * crossed))
    assert same(state.rims.of((0, 0)).east.copy(), known.east)
    assert dispatch._pending == {(0, 1)}
    assert dispatch._news[0, 1] == 5


def test_functions_and_their_reports(kept, cluster):
    store = kept["rough"][0][0].store
    found = [
        flow_accumulation(store, method="quinn", into="quinn", client=cluster, verify=True),
        hand(store, to_outlets=True, method="dinf", into="above", client=cluster, verify=True),
    ]
    for one in found:
        assert one.report.result["block_visits"] >= 12
        assert sum(w["tasks"] for w in one.report.settings["cluster"]["each"].values()) > 0


@pytest.mark.parametrize("columns", [0, 2])
def test_what_is_known_around_a_block_stays(columns):
    """Rings and rims add to it, wherever the other block lies."""
    dtype = np.dtype((np.float64, (columns,))) if columns else np.dtype(np.int64)
    kept = KeptCells(dtype, np.nan if columns else np.iinfo(np.int64).min)
    flow = Flow.of([np.zeros((8, 9)), np.zeros((8, 9), np.uint8)], kept)
    flow.enter(BlockRim(*[kept.unknown] * 4))
    more = dtype.shape
    for step in product((-1, 0, 1), repeat=2):
        if step == (0, 0):
            continue
        sides = {"north": 5, "south": 5, "west": 4, "east": 4}
        rim = BlockRim(*(np.full((n, *more), 0, dtype.base) for n in sides.values()))
        for k, side in enumerate(rim):
            side[...] = 10 * k + np.arange(len(side)).reshape(-1, *[1] * len(more))
        flow.learn_rim(step, rim)
    north, south, west, east = (
        side.reshape(len(side), -1)[:, -1]
        for side in (flow.ring[0], flow.ring[-1], flow.ring[:, 0], flow.ring[:, -1])
    )
    assert north.tolist() == [14, 10, 11, 12, 13, 14, 10]
    assert south.tolist() == [4, 0, 1, 2, 3, 4, 0]
    assert west.tolist() == [14, 30, 31, 32, 33, 4]
    assert east.tolist() == [10, 20, 21, 22, 23, 0]
    nothing = BlockRim(
        *(
            np.full_like(side, kept.unknown)
            for side in (flow.ring[0], flow.ring[-1], flow.ring[:, 0], flow.ring[:, -1])
        )
    )
    before = flow.ring.copy()
    flow.learn(nothing)
    assert same(flow.ring[0].copy(), before[0].copy())
    assert same(flow.ring[:, 0].copy(), before[:, 0].copy())


def test_flows_of_another_run_are_forgotten():
    flows = KeptFlows()
    assert flows.take("one", (0, 0)) is None
    for k in range(3):
        flows.keep("one", (0, k), k, 2)
    assert flows.blocks() == [(0, 1), (0, 2)]
    assert flows.take("one", (0, 1)) == 1
    assert flows.take("two", (0, 2)) is None
    assert flows.blocks() == []
    flows.keep("one", (0, 2), 2, 2)  # late
    assert flows.blocks() == []


def test_the_store_is_as_before(kept):
    """Nothing is left beside the layers."""
    for kind in KINDS:
        store = kept[kind][0][0].store
        assert not [name for name in os.listdir(store) if name.startswith(".")]
        assert TileStore.open(store).layers
