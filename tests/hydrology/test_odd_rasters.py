"""The whole chain over odd rasters: proven, against plain Python, and alike for all blocks."""

from __future__ import annotations

import numpy as np
import reference
from contract import make_store, same, whole
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from terrain_gpu import (
    TileStore,
    basins,
    breach,
    depressions,
    fill,
    fill_spill_merge,
    flow_accumulation,
    flow_direction,
    hand,
    minimum_spanning_tree,
    watershed,
)
from terrain_gpu.errors import InputError
from terrain_gpu.grid.lengths import step_lengths

SHAPES = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (1, 130), (129, 1), (2, 70), (65, 65), (70, 57)]
HEIGHTS = ["equal", "two", "extreme", "zeros", "pits", "noise", "cone"]
VOIDS = ["none", "some", "most", "all but one", "infinite"]


def odd_heights(dtype, shape, heights, voids, seed):
    """Heights and their nodata value."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    row, col = np.indices(shape)
    ring = np.maximum(abs(row - shape[0] // 2), abs(col - shape[1] // 2))
    z = {
        "equal": lambda: np.full(shape, 6),
        "two": lambda: rng.integers(0, 2, shape),
        "extreme": lambda: rng.choice([float(limits.min), float(limits.max), 0, 1], shape),
        "zeros": lambda: np.where(rng.random(shape) < 0.5, 0.0, -0.0),
        "pits": lambda: ring % 5 * 10 + ring % 3,  # one within another
        "noise": lambda: rng.integers(0, 100, shape),
        "cone": lambda: ring,
    }[heights]().astype(dtype)
    nodata = int(limits.min) if dtype.kind == "i" else -9999.0
    absent = {
        "none": lambda: np.zeros(shape, bool),
        "some": lambda: rng.random(shape) < 0.1,
        "most": lambda: rng.random(shape) < 0.95,
        "all but one": lambda: np.arange(z.size).reshape(shape) != rng.integers(z.size),
        "infinite": lambda: rng.random(shape) < 0.1,
    }[voids]()
    z[absent] = nodata
    if voids == "infinite" and dtype.kind == "f":
        z[absent] = rng.choice(np.array([np.nan, np.inf, -np.inf], dtype), absent.sum())
    return z, nodata


def chain(store, outlets, cells):
    """All that follows from heights, and what is found, each proven."""
    minimum_spanning_tree(store, weight="flow", backend="cpu")
    found = {
        "flow_direction": flow_direction(store, outlets, verify=True),
        "filled": fill(store, verify=True),
        "kept": fill(store, keep_deeper_than=1, keep_larger_than=3, into="kept", verify=True),
        "gradient": flow_direction(store, outlets, flats="gradient", into="gradient", verify=True),
        "breached": unless_lost(breach, store, max_distance=7, verify=True),
        "flow_accumulation": flow_accumulation(store, verify=True),
        "above": flow_accumulation(
            store, areas=True, exclude_self=True, directions="gradient", into="above", verify=True
        ),
        "mfd": flow_accumulation(store, method="mfd", into="mfd", verify=True),
        "basins": basins(store, verify=True),
        "depressions": depressions(store, verify=True),
        "water": fill_spill_merge(store, rain=0.7, verify=True),
        "hand": hand(store, to_outlets=True, verify=True),
    }
    for statistic in ("mean", "max"):
        into = f"upstream_{statistic}"
        found[into] = unless_lost(
            flow_accumulation, store, weights="elevation", statistic=statistic, verify=True
        )
    codes = whole(found["flow_direction"].layers["flow_direction"])
    if gauges := [cell for cell in cells if codes[cell] != 255]:
        found["watershed"] = watershed(store, gauges, verify=True)
    return {
        name: (whole(one.layers[name]), one.found) for name, one in found.items() if one is not None
    }


def unless_lost(command, *of, **how):
    """The result, or None where all but extreme values would be lost next to these."""
    try:
        return command(*of, **how)
    except InputError as error:
        if "If it is a fill value" not in str(error):
            raise
        return None


@settings(max_examples=examples(15))
@given(
    dtype=st.sampled_from(["<i2", "<f4"]),
    shape=st.sampled_from(SHAPES),
    heights=st.sampled_from(HEIGHTS),
    voids=st.sampled_from(VOIDS),
    outlets=st.sampled_from(["low_edge", "border", "middle"]),
    seed=st.integers(0, 999),
)
@example("<f4", (65, 65), "cone", "none", "middle", 0)  # all eight neighbours drain to it
@example("<f4", (65, 65), "zeros", "infinite", "low_edge", 1)
def test_odd_rasters(folders, dtype, shape, heights, voids, outlets, seed):
    data, nodata = odd_heights(dtype, shape, heights, voids, seed)
    good = reference.vertices(data, nodata)
    cells = reference.listed(good)
    if outlets == "middle":
        outlets = cells[len(cells) // 2 :][:1] or "low_edge"
    with folders() as folder:
        made = []
        for block in (64, 128):
            store = make_store(folder / f"{block}.zarr", data, nodata, block)
            made.append(chain(store, outlets, cells[::37]))
        lengths = step_lengths(TileStore.open(store).grid)
    first, second = made
    assert first.keys() == second.keys()
    for name, (layer, found) in first.items():
        assert same(layer, second[name][0]), name
        assert found == second[name][1], name
    ends = reference.named_outlets(outlets, good) if isinstance(outlets, str) else (outlets, [])
    tree = reference.rooted(data, "flow", ends[0], nodata, lengths=lengths, low=ends[1])
    codes = reference.drained(shape, *tree, np.ones(shape[0], int))[1]
    levels, layers = reference.filled(data, codes, nodata), {n: v for n, (v, _) in first.items()}
    assert same(layers["flow_direction"], codes)
    assert np.array_equal(layers["filled"], levels, equal_nan=True)
    sums = reference.flow_sums(codes, np.ones(shape[0], int))
    assert np.array_equal(layers["flow_accumulation"], sums)
    assert same(layers["gradient"], reference.down_gradients(layers["filled"], codes, lengths))
    assert np.array_equal(layers["basins"], reference.basins(codes))
    lowest, highest = layers.get("breached", data), layers["filled"]
    assert (lowest[good] <= data[good]).all()
    assert (highest[good] >= data[good]).all()
    assert layers["mfd"][codes == 0].sum() == (codes != 255).sum()
