"""Tiles of |dz| in 16 bits: the same distances as in full, whether 16 bits suffice or not."""

from __future__ import annotations

import hypothesis
import numpy as np
import pytest
import reference
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from terrain_gpu import shortest_paths
from terrain_gpu.grid import TILE
from terrain_gpu.paths.cost.edges import infinity_of
from terrain_gpu.paths.cost.steps import unreached
from terrain_gpu.paths.relax import block
from terrain_gpu.paths.relax.tile import PADDED, new_tile_work

GUARD = np.uint32(2**31 - 2**16 - 1)
"""See `relax.GUARDS`."""


def terrain(kind, shape, dtype, seed):
    """Heights whose distances fit 16 bits in a tile, or do not, or only just."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    rows, cols = np.indices(shape)
    if kind == "flat":
        found = np.full(shape, info.max)
    elif kind == "slope":
        found = info.min + (rows + cols) * 7 % 120 + rng.integers(0, 2, shape)
    elif kind == "noise":
        found = rng.integers(info.min, info.max, shape, endpoint=True)
    elif kind == "ridges":  # rows that cost half the range of 16 bits, more or less
        found = np.where(
            cols % 2, np.minimum(500 + rng.integers(0, 40, shape[0]), info.max)[:, None], 0
        )
    elif kind == "terraces":  # flat tiles, and the whole range from one to the next
        found = np.where((rows // TILE + cols // TILE) % 2, info.max, info.min)
    elif kind == "walls":  # each step takes the whole range, and a tile 64 of them
        found = np.where(cols % 2, info.max, info.min)
    else:  # "peaks": steps that take almost the range, to cells that nothing lies behind
        found = np.full(shape, info.min)
        some = rng.random(shape) < 0.01
        found[some] = rng.integers(info.max - 2, info.max, some.sum(), endpoint=True)
    return found.astype(dtype)


def in_64_bits(distances):
    """Distances as if 32 bits had not sufficed."""
    wide = distances.astype(np.uint64)
    wide[distances == unreached(distances.dtype)] = unreached(wide.dtype)
    return wide


KINDS = "flat", "slope", "ridges", "terraces", "noise", "walls", "peaks"


@given(
    st.sampled_from(KINDS),
    st.sampled_from([(64, 64), (128, 64), (64, 192), (131, 200), (1, 128), (128, 1)]),
    st.sampled_from(["uint8", "int8", "uint16", "int16"]),
    st.sampled_from([0.0, 0.001, 0.45]),
    st.sampled_from([0, 40_000, int(GUARD) - 70_000, int(GUARD) - 1]),
    st.sampled_from([{}, {"connectivity": 4}, {"corner_cutting": False}, {"reverse": True}]),
    st.sampled_from([64, 128, 1024]),
    st.integers(0, 9),
)
@hypothesis.settings(max_examples=examples(60))
def test_distances_are_dijkstras(kind, shape, dtype, void, start, how, side, seed):
    z = terrain(kind, shape, dtype, seed)
    rng = np.random.default_rng(seed)
    barriers = rng.random(shape) < void
    sources = [(*(int(rng.integers(n)) for n in shape), start + k) for k in range(3)]
    for row, col, _ in sources:
        barriers[row, col] = False
    given_by = {"block_size": side, "barriers": barriers.astype(np.uint8), **how}
    found = shortest_paths(z, sources, **given_by)
    expected = shortest_paths(z, sources, method="dijkstra", **given_by)
    found, expected = found.distance(), expected.distance()
    if start < GUARD - 70_000:  # near the guard, the order decides: docs/design/shortest-paths.md
        assert found.dtype == expected.dtype
    np.testing.assert_array_equal(in_64_bits(found), in_64_bits(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_distances_are_the_references(kind):
    z = terrain(kind, (2 * TILE, TILE), "uint16", seed=1)
    cell = (70, 5)
    found = shortest_paths(z, [cell], block_size=TILE).distance()
    expected = reference.dijkstra(z, "absdiff", [(*cell, 0, 0)])
    assert found.tolist() == expected.tolist()


def relaxed(z, start, options=(True, True, False), absent=None):
    """What `relax_differences` returns for one tile, and the distances in it."""
    heights = np.zeros((PADDED, PADDED), np.uint16)
    heights[1:-1, 1:-1] = z
    gone = np.zeros((PADDED, PADDED), bool) if absent is None else absent
    infinity = infinity_of(np.empty(0, np.uint32))
    distances = np.full((PADDED, PADDED), infinity, np.uint32)
    distances[1, 1] = start
    work = new_tile_work(np.dtype(np.uint32))

    small, into = np.empty((2, PADDED, PADDED), np.uint16)
    passes = narrow(
        block.AbsDiff(),
        (distances.ravel(), heights.ravel(), gone.ravel().view(np.uint8)),
        options,
        distances,
        np.uint32(GUARD),
        (small, into, *work[2:]),
        into.ravel(),
    )
    return passes, distances[1:-1, 1:-1]


@block.jit
def narrow(cost, flats, options, distances, guard, work, heights):
    improved = np.empty(8, np.uint32)
    return block.relax_differences(
        cost, flats, options, distances, 0, 0, True, guard, work, heights, improved
    )


def test_16_bits_are_used_where_they_suffice_and_only_there():
    z = np.zeros((TILE, TILE), np.uint16)
    z[:, 1:] = 32_767  # with all steps of a row, 65 534
    passes, distances = relaxed(z, start=7)
    assert passes > 0
    np.testing.assert_array_equal(distances, z + np.uint32(7))
    z[:, 1:] = 32_768
    passes, distances = relaxed(z, start=7)
    assert passes == -1
    assert (distances == infinity_of(distances)).sum() == TILE**2 - 1, "the block is as before"
    z[:, 1:] = 1
    assert relaxed(z, start=GUARD - 65_535)[0] > 0
    assert relaxed(z, start=GUARD - 65_534)[0] == -1
    assert relaxed(z, 0, options=(False, True, False))[0] == -1
    for row, col in ((1, 1), (TILE, TILE), (1, TILE), (TILE, 1)):
        absent = np.zeros((PADDED, PADDED), bool)
        absent[row, col] = True
        assert relaxed(z, 0, absent=absent)[0] == -1
        absent = np.ones((PADDED, PADDED), bool)
        absent[1:-1, 1:-1] = False
        assert relaxed(z, 0, absent=absent)[0] > 0, "cells around the tile are never reached"
