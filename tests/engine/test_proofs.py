"""Proofs of slopes, labels and drainage: right results pass, and no wrong one does.

The contract of operations changes single cells; here results are consistent but wrong.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import reference
from contract import make_store
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import border, drained, expected_labels, hung, rooted
from strategies import rasters, shapes

from terrain_gpu import (
    TileStore,
    accumulate,
    calc,
    label_components,
    minimum_spanning_tree,
    remove_layers,
    slope,
)
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.arrays import ArrayLayer
from terrain_gpu.engine.proof import Limits
from terrain_gpu.errors import InputError, PlanError, VerificationError
from terrain_gpu.grid import BlockGrid, GridSpec
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.hydrology.accumulate import proof as checker
from terrain_gpu.hydrology.accumulate.proof import outlets_digest, verify_drainage
from terrain_gpu.hydrology.forest.source import Forest, open_forest
from terrain_gpu.raster.label_components.expression import Expression
from terrain_gpu.raster.label_components.proof import verify_labels
from terrain_gpu.raster.slope.proof import verify_slopes
from terrain_gpu.spanning_tree.weights import Weight

LIMITS = Limits.of(memory_limit="8GB", threads=1)


class Blocks(BlockGrid):
    """Blocks of any side, so that small rasters have many."""

    def __post_init__(self):
        pass


def layer(data, block, nodata=None, name="elevation"):
    grid = GridSpec(*data.shape, (10.0, 0.0, 0.0, 0.0, -20.0, 0.0))
    return ArrayLayer(data, Blocks(*data.shape, block), grid, nodata, name)


def refused(check, *args):
    with pytest.raises(VerificationError) as caught:
        check(*args)
    assert caught.value.exit_code == 1
    return caught.value.check


# -- slopes --------------------------------------------------------------------------------------


@given(
    raster=rasters(shape=shapes(40, 600)), block=st.sampled_from([3, 8, 64]), cell=st.integers(0)
)
def test_slopes(raster, block, cell):
    heights = layer(raster.cells, block, raster.nodata)
    names = "slope", "aspect"
    right = dict(
        zip(
            names,
            reference.slope(raster.cells, raster.nodata, step_lengths(heights.grid)),
            strict=True,
        )
    )
    layers = {name: layer(data, block) for name, data in right.items()}
    found = verify_slopes(heights, layers, LIMITS)
    assert found == {"cells": (right["slope"] != -9999).sum()}
    for name, data in right.items():
        wrong = data.copy()
        here = wrong.reshape(-1)[cell % wrong.size :][:1]
        assume(not np.isnan(here[0]))
        here.view(np.uint32)[0] ^= 1
        assert refused(verify_slopes, heights, {name: layer(wrong, block)}, LIMITS) == name


# -- labels --------------------------------------------------------------------------------------


def check_labels(mask, labels, connectivity, block):
    """The proof, of what a run would record with such labels."""
    expected = {"components": len(np.unique(labels[labels > 0])), "cells": int(mask.sum())}
    return verify_labels(
        Expression("elevation > 0", ["elevation"]),
        {"elevation": layer(mask.astype(np.int16), block)},
        layer(labels.astype(np.uint32), block),
        connectivity,
        expected,
        LIMITS,
    )


@given(data=st.data())
def test_labels(data):
    rows, cols = data.draw(st.tuples(st.integers(1, 14), st.integers(1, 14)))
    seed, density = (
        data.draw(st.integers(0, 2**32 - 1)),
        data.draw(st.sampled_from([0.3, 0.5, 0.7])),
    )
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, cols)) < density
    connectivity, block = (
        data.draw(st.sampled_from([4, 8])),
        data.draw(st.sampled_from([2, 3, 5, 64])),
    )
    right = expected_labels(mask, connectivity)
    count = int(right.max())
    found = check_labels(mask, right, connectivity, block)
    assert found == {"components": count, "cells": mask.sum()}
    kind = data.draw(st.sampled_from(["names", "cell", "neighbours", "split"]))
    wrong = right.copy()
    if kind == "names":  # other names for the same components, or one name for two
        wrong = np.append(0, rng.integers(1, count + 2, count))[right]
    elif kind == "cell":
        wrong[rng.integers(rows), rng.integers(cols)] = rng.integers(0, count + 2)
    elif kind == "neighbours":
        wrong = expected_labels(mask, 12 - connectivity)
    else:  # one of another name from a line on
        line = rng.integers(rows)
        wrong[line:] += (wrong[line:] > 0) * wrong[:line].max(initial=0)
    assume(not np.array_equal(wrong, right))
    refused(check_labels, mask, wrong, connectivity, block)


@pytest.mark.parametrize("block", [2, 4, 64])
def test_components_that_share_a_label_are_found_wherever_they_are(block):
    """Two cells far from each other: nothing but the count of components tells them apart."""
    for other in [(0, 3), (0, 7), (7, 0), (7, 7), (5, 5)]:
        mask = np.zeros((8, 8), bool)
        mask[0, 0] = mask[other] = True
        check_labels(mask, expected_labels(mask), 8, block)
        assert refused(check_labels, mask, mask.astype(int), 8, block) == "components"


# -- drainage ------------------------------------------------------------------------------------


class Drained:
    """A forest of small heights, its outlets and what drains, by plain Python."""

    def __init__(self, heights, outlets, block, weight="max"):
        self.heights, self.outlets, self.block = heights, outlets, block
        self.cells = layer(heights, block, -1)
        self.weight = Weight.on(self.cells.grid, weight, heights.dtype)
        self.lengths = step_lengths(self.cells.grid)
        self.edges = reference.kruskal(heights, weight, -1, lengths=self.lengths)[0]
        self.valid = reference.vertices(heights, -1)

    def along(self, into, order):
        return drained(self.heights.shape, into, order, np.ones(len(self.heights), int))

    def verify(self, sums, codes, outlets=None):
        edges = layer(self.edges, self.block, name="mst")
        forest = Forest(None, self.cells, edges, self.weight)
        count = int((codes == 0).sum())
        expected = {"cells": int(self.valid.sum()), "outlets": count}
        if outlets is None:
            cols = self.heights.shape[1]
            ids = [row * cols + col for row, col in self.outlets]
            outlets = outlets_digest(np.array(ids, np.int64), cols)
        sums = layer(sums.astype(np.int64), self.block, 0)
        codes = layer(codes.astype(np.uint8), self.block, 255)
        return verify_drainage(forest, codes, sums, outlets, False, expected, LIMITS)


def drawn(data):
    """A `Drained`, and random numbers."""
    rows, cols = data.draw(st.tuples(st.integers(1, 10), st.integers(2, 14)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    heights = rng.integers(0, data.draw(st.sampled_from([2, 5, 1000])), (rows, cols))
    heights[rng.random((rows, cols)) < data.draw(st.sampled_from([0, 0.2]))] = -1
    heights.flat[0] = 1
    valid = np.argwhere(heights >= 0)
    count = int(rng.integers(1, min(len(valid), 6) + 1))
    outlets = sorted(map(tuple, rng.permutation(valid)[:count].tolist()))
    block = data.draw(st.sampled_from([2, 3, 5, 64]))
    return Drained(heights.astype(np.int16), outlets, block), rng


@given(data=st.data())
def test_drainage(data):
    world, rng = drawn(data)
    shape = world.heights.shape
    into, order = rooted(world.heights, "max", world.outlets, -1)
    sums, codes = world.along(into, order)
    found = world.verify(sums, codes)
    counts = {"cells": world.valid.sum(), "outlets": len(world.outlets), "reached": len(order)}
    assert found == counts
    # Other divides along the same forest, with sums that belong to them.
    forest = np.argwhere(world.edges[..., None] >> np.arange(4) & 1).tolist()
    steps = (
        [(r * shape[1] + c, *reference.FORWARD[d]) for r, c, d in rng.permutation(forest).tolist()]
        if forest
        else []
    )
    others, other_codes = world.along(*hung(shape, world.outlets, steps))
    if not np.array_equal(other_codes, codes):
        assert refused(world.verify, others, other_codes) == "minimal"
    cell = tuple(data.draw(st.integers(0, side - 1)) for side in shape)
    wrong = sums.copy()
    wrong[cell] += 1
    assert refused(world.verify, wrong, codes) == "sum"
    wrong = codes.copy()
    wrong[cell] = data.draw(st.sampled_from([0, 255, 3, *(1 << k for k in range(8))]))
    if wrong[cell] != codes[cell]:
        refused(world.verify, sums, wrong)


@given(data=st.data())
def test_drainage_to_the_border(data):
    world, _ = drawn(data)
    ends = border(world.valid)
    sums, codes = world.along(*rooted(world.heights, "max", ends, -1))
    assert world.verify(sums, codes, "border")["outlets"] == len(ends)
    fewer = ends[:-1]
    sums, codes = world.along(*rooted(world.heights, "max", fewer, -1))
    assert refused(world.verify, sums, codes, "border") in ("outlet", "direction")


@given(data=st.data())
def test_drainage_to_low_outlets(data):
    world, rng = drawn(data)
    world = Drained(world.heights, [], world.block, "flow")
    low = border(world.valid)

    def along(outlets, low):
        return world.along(*rooted(world.heights, "flow", outlets, -1, 8, world.lengths, low))

    sums, codes = along([], low)
    found = world.verify(sums, codes, "low_border")
    assert found["reached"] == world.valid.sum()
    one = low[rng.integers(len(low))]
    others = [cell for cell in low if cell != one]
    for outlets in ([one], []):  # an outlet too many, or one too few
        other_sums, other_codes = along(outlets, others)
        if not np.array_equal(other_codes, codes):
            refused(world.verify, other_sums, other_codes, "low_border")


@pytest.mark.parametrize("block", [2, 7, 64])
def test_directions_that_form_a_cycle(block):
    """Within a block, and across the border of two."""
    world = Drained(np.zeros((1, 9), np.int16), [(0, 8)], block)
    codes = np.array([[1, 1, 1, 1, 1, 1, 1, 16, 0]])
    assert refused(world.verify, np.ones((1, 9)), codes) == "acyclic"


@pytest.mark.parametrize("block", [2, 3, 64])
def test_one_divide_is_right(block):
    """A chain between two outlets: every other edge is a divide that the proof refuses."""
    heights = np.array([[1, 4, 2, 9, 3, 3, 8, 1, 5, 9, 2, 0]], np.int16)
    world = Drained(heights, [(0, 0), (0, 11)], block)
    right = 9  # of the heaviest edges, those of 9, the last in the order of edges
    for divide in range(11):
        codes = np.where(np.arange(12) <= divide, 16, 1)[None]
        codes[0, [0, 11]] = 0
        sums = np.where(np.arange(12) <= divide, divide + 1 - np.arange(12), np.arange(12) - divide)
        if divide == right:
            world.verify(sums[None], codes)
        else:
            assert refused(world.verify, sums[None], codes) == "minimal"


def test_other_outlets_are_refused():
    world = Drained(np.arange(12, dtype=np.int16).reshape(1, 12), [(0, 5)], 4)
    sums, codes = world.along(*rooted(world.heights, "max", [(0, 6)], -1))
    assert refused(world.verify, sums, codes) == "outlet"


# -- stores --------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path, no_fsync):
    cells = np.random.default_rng(3).integers(0, 50, (150, 210)).astype(np.int16)
    cells[40:60, 30:90] = -1
    path = make_store(tmp_path / "s.zarr", cells, -1, 64)
    minimum_spanning_tree(path, backend="cpu")
    return path


def verify(store: Path, capfd) -> tuple[int, dict, str]:
    words = ["verify", str(store), "--backend", "cpu", "--json", str(store.parent / "v.json")]
    capfd.readouterr()
    code = options._guarded(lambda: group.main(words, standalone_mode=False))
    out, err = capfd.readouterr()
    return code, json.loads((store.parent / "v.json").read_text())["result"], out + err


def test_a_proof_of_sums_needs_directions(store, capfd):
    with pytest.raises(InputError, match="also name a layer for them: directions"):
        accumulate(store, verify=True)
    accumulate(store)
    code, found, text = verify(store, capfd)
    assert code == 0
    assert not found["accumulation"]["verified"]
    assert "accumulate --directions" in found["accumulation"]["unproven"]
    assert "layer accumulation not proven: sums are proven from directions" in text
    accumulate(store, into="other", directions="codes", areas=True)
    assert not verify(store, capfd)[1]["accumulation"]["verified"]
    accumulate(store, into="more", directions="d8")
    code, found, text = verify(store, capfd)
    assert code == 0
    assert {name: found[name]["layers"] for name in ("accumulation", "more", "other")} == {
        "accumulation": ["accumulation", "d8"],
        "more": ["more", "d8"],
        "other": ["other", "codes"],
    }
    assert f"layers more, d8 verified, {found['more']['reached']:,} cells drain to " in text


def test_given_outlets_are_known_again_from_directions(store, capfd):
    accumulate(store, [(3, 4), (100, 200)], directions="d8", verify=True)
    assert verify(store, capfd)[1]["accumulation"]["outlets"] == 2


def test_every_layer_of_slopes_and_labels_is_proven(store, capfd):
    slope(store, aspect="aspect")
    slope(store, into="steep")
    label_components(store, "slope > 60 and elevation < 40", into="cliffs", connectivity=4)
    label_components(store, "nodata(elevation)")
    code, found, text = verify(store, capfd)
    assert code == 0
    assert all(
        found[name]["verified"] for name in TileStore.open(store).layers if name != "elevation"
    )
    for line in (
        "layer aspect verified, ",
        "layer components verified, 1 component of 1,200 cells in all",
    ):
        assert line in text


def test_slopes_of_other_cells_are_not_proven(store, capfd):
    slope(store)
    label_components(store, "slope > 60")
    slope(store, layer="mst", overwrite=True)
    code, found, _ = verify(store, capfd)
    assert code == 2
    assert found["slope"]["verified"]
    assert "computed from other cells" in found["components"]["error"]


def test_a_removed_input_is_named(store, capfd):
    slope(store)
    label_components(store, "slope > 60")
    calc(store, "slope * 2", into="twice")
    remove_layers(store, ["slope"], force=True)
    code, found, _ = verify(store, capfd)
    assert code == 2
    for name in ("components", "twice"):
        assert "no layer 'slope'" in found[name]["error"]


def test_aspects_of_an_earlier_version_are_not_guessed(store, capfd):
    slope(store, aspect="aspect")
    slope(store, into="steep")
    for name in ("slope", "aspect", "steep"):
        file = store / name / "zarr.json"
        facts = json.loads(file.read_text())
        for key in ("holds", "checksum"):
            del facts["attributes"]["terrain_gpu"][key]
        file.write_text(json.dumps(facts))
    code, found, _ = verify(store, capfd)
    assert code == 2
    assert [found[name]["verified"] for name in ("slope", "aspect", "steep")] == [
        False,
        False,
        True,
    ]
    assert "holds is recorded as None; compute it again" in found["aspect"]["error"]


@pytest.mark.parametrize(
    "make",
    [
        slope,
        lambda store, **how: label_components(store, "elevation > 9", **how),
        lambda store, **how: accumulate(store, directions="d8", **how),
    ],
    ids=["slope", "label-components", "accumulate"],
)
def test_limits_that_are_too_small_for_the_proof_are_refused_before_the_work(store, make):
    before = TileStore.open(store).layers
    with pytest.raises(PlanError, match="give at least"):
        make(store, verify=True, memory_limit="1MB")
    assert TileStore.open(store).layers == before
    assert not (store / ".incomplete").exists()


def test_more_ways_between_blocks_than_planned(tmp_path, no_fsync, monkeypatch):
    data = np.random.default_rng(2).integers(0, 9, (300, 200)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", data, None, 64)
    minimum_spanning_tree(store, backend="cpu")
    accumulate(store, directions="codes", verify=True)
    forest = open_forest(store)
    codes = TileStore.open(store).layer("codes")
    monkeypatch.setattr(checker, "ways_between", lambda blocks: 0)
    (plan,) = checker.plan_passes(forest, codes, None, Limits.of(None, 1))
    with pytest.raises(
        PlanError, match=r"codes: .* to verify this many cells that drain to other blocks; give"
    ):
        checker.verify_drainage(
            forest, codes, None, "border", False, codes.info["result"], Limits.of(plan.memory, 1)
        )
