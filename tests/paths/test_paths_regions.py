"""Shortest paths by regions: what needs no GPU. The rest is in `test_cuda_paths.py`."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrain_gpu.cuda.device import source
from terrain_gpu.errors import StoreError
from terrain_gpu.grid import BlockGrid
from terrain_gpu.paths.cuda.regions import RegionSpill, ResidentBlocks, Rims, _beside
from terrain_gpu.paths.cuda.relaxing import AWAY, CHANGED
from terrain_gpu.paths.cuda.variants import SIDE


def test_flags_are_those_of_the_kernels():
    text = source("paths")
    for name, value in (("AWAY", AWAY), ("CHANGED", CHANGED), ("SIDE", SIDE)):
        assert re.search(rf"#define {name} (\d+)", text)[1] == str(value)


masks = st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(
    lambda shape: st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=81).map(
        lambda bits: np.array(bits[: shape[0] * shape[1]]).reshape(shape)
    )
)


@given(masks)
def test_tiles_beside(mask):
    padded = np.pad(mask, 1)
    down, across = mask.shape
    expected = [[padded[i : i + 3, j : j + 3].any() for j in range(across)] for i in range(down)]
    assert _beside(mask).tolist() == expected


@given(masks, st.sampled_from([64, 128]), st.integers(0, 2), st.integers(0, 2))
def test_blocks_of_tiles(waiting, block, row, col):
    """Those that hold a tile that waits, or one beside it, and have not come."""
    down, across = waiting.shape
    rows, cols, each = 32 * down, 32 * across, block // 32
    relaxing = SimpleNamespace(send_away=lambda: None, waiting=lambda: waiting)
    piece = SimpleNamespace(
        problem=SimpleNamespace(blocks=SimpleNamespace(block=block)),
        window=(row * block, row * block + rows, col * block, col * block + cols),
        shape=SimpleNamespace(rows=rows, cols=cols, tiles=(down, across)),
        relaxing=relaxing,
    )
    resident = ResidentBlocks(piece, whole=False)
    needed = {(row + i // each, col + j // each) for i, j in np.argwhere(_beside(waiting)).tolist()}
    assert set(resident.wanted()) == needed
    assert ResidentBlocks(piece, whole=True).wanted() == []


@pytest.fixture
def blocks():
    return BlockGrid(100, 200, 64)


def test_a_spill_is_found_again(tmp_path, blocks):
    rng = np.random.default_rng(1)
    cells = {(0, 1): rng.random((64, 64)), (1, 3): rng.random((36, 8))}
    for resume in (False, True):
        spill = RegionSpill(tmp_path / "regions", blocks, np.dtype(float), resume=resume)
        assert spill.saved == (set(cells) if resume else set())
        for at, data in cells.items():
            if not resume:
                spill.save("", at, data)
            found = np.empty_like(data)
            spill.restore(at, found)
            assert np.array_equal(found, data)
        spill.close(keep=not resume)
    assert not list(tmp_path.iterdir())
    spill = RegionSpill(tmp_path / "regions", blocks, np.dtype(float), resume=True)
    assert spill.saved == set()
    with pytest.raises(
        StoreError, match=r"regions: damaged: slot 0 .*; compute again with --overwrite"
    ):
        spill.restore((0, 0), np.empty((64, 64)))
    spill.close(keep=False)


def test_rims_keep_what_is_away():
    """The largest distance stands for cells that were not read."""
    windows = {(0, 0): (0, 2, 0, 3), (0, 1): (0, 2, 3, 6), (1, 0): (2, 4, 0, 3)}
    rims = Rims(windows, np.dtype(np.uint32))
    infinity = rims.infinity

    def put(at, *cells):
        rims.put(at, np.array(cells, np.uint32))

    put((0, 0), 1, 2, 3, 4, 5, 6, 1, 4, 3, 6)
    assert rims.pending == {(0, 1): 3, (1, 0): 4}
    rims.pending.clear()
    put(
        (0, 0), infinity, infinity, 2, infinity, infinity, infinity, infinity, infinity, 2, infinity
    )
    assert rims.pending == {(0, 1): 2}  # the cell beside (1, 0) is unchanged
    assert rims.next(9) == (0, 1)
    ring, seen = rims.ring((0, 1))
    # Above, below: nothing; left: the right column of (0, 0); right: nothing.
    assert ring[-4:].tolist() == [2, 6, infinity, infinity]
    assert (seen == infinity).all()
    assert rims.ring((1, 0))[0][:5].tolist() == [infinity, 4, 5, 6, infinity]
    assert rims.ring((1, 0))[1].tolist() == rims.ring((1, 0))[0].tolist()
