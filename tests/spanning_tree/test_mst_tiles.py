"""Blocks of several tiles, and of less than one, against Kruskal; and what their work takes."""

from __future__ import annotations

import numpy as np
import pytest
import reference

from terrain_gpu import minimum_spanning_tree
from terrain_gpu.spanning_tree.cpu import frozen
from terrain_gpu.spanning_tree.weights import WEIGHTS, Weight, weights_of

TYPES = [np.uint8, np.int16, np.uint16, np.int32, np.float32, np.int64, np.float64]


def arrays(work):
    return [a for part in work for a in arrays(part)] if isinstance(work, tuple) else [work]


@pytest.mark.parametrize("sides", [(64, 64), (128, 128), (256, 3), (1, 1024), (1024, 1024)])
def test_work_takes_what_the_plan_says(sides):
    for dtype in map(np.dtype, TYPES):
        for name in weights_of(dtype):
            weight = Weight(name, dtype)
            taken = sum(array.nbytes for array in arrays(frozen.new_work(sides, weight)))
            assert taken <= frozen.work_bytes(sides, weight.key_dtype)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_four_tiles_of_a_block(dtype, weight):
    """Few values, as many equal weights as there can be, then all different; with holes."""
    dtype = np.dtype(dtype)
    if weight not in weights_of(dtype):
        return
    rng = np.random.default_rng(len(weight))
    few = rng.integers(0, 3, (130, 133)).astype(dtype)
    many = (rng.random((133, 130)) * 60_000 - (dtype.kind != "u") * 30_000).astype(dtype)
    for z, nodata, connectivity in ((few, None, 8), (few, 1, 8), (many, None, 8), (many, None, 4)):
        mask, total, count = reference.kruskal(z, weight, nodata, connectivity)
        for block in (64, 256):
            how = {"weight": weight, "nodata": nodata, "connectivity": connectivity}
            tree = minimum_spanning_tree(z, block_size=block, backend="cpu", **how)
            assert np.array_equal(tree._forward, mask)
            assert (tree.total_weight, tree.edge_count) == (total, count)


@pytest.mark.parametrize("span", [0, 1, 24, 25, 60])
@pytest.mark.parametrize("least", [-149, -127, -126, 0, 66])
@pytest.mark.parametrize("weight", ["max", "absdiff"])
@pytest.mark.parametrize("signs", [(-2, 2), (-2, -0.5), (0.5, 2)], ids=["both", "-", "+"])
def test_sums_of_a_tile_are_exact_whatever_the_exponents(weight, least, span, signs):
    """From subnormals on; up to 24 exponents are summed together, 25 are not."""
    rng = np.random.default_rng(span)
    exponents = rng.choice([least, least + span], (60, 61))
    z = np.ldexp(rng.uniform(*signs, exponents.shape), exponents).astype(np.float32)
    z[:2, :3] = (0.0, -0.0, np.nan) if signs == (-2, 2) else np.nan
    mask, total, count = reference.kruskal(z, weight, None, 8)
    tree = minimum_spanning_tree(z, weight=weight, backend="cpu")
    assert np.array_equal(tree._forward, mask)
    assert (tree.total_weight, tree.edge_count) == (total, count)
