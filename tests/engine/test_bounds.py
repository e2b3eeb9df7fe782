"""Bytes read and written for each cell, against the formulas in docs/design/bounds.md.

The kernel counts what the system calls of a process read and write: rchar and wchar in
/proc/self/io, bytes_read and bytes_written in reports. Both are exact, but for two things. Modules
and compiled kernels are counted; here every operation has run before. What does not depend on cells
is counted, such as metadata; here it cancels out between a raster of four blocks and one of 16.
"""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import rasterio

import terrain_gpu as tg
from bench import corridors
from bench.stores import add_layer
from terrain_gpu.engine import ledger
from terrain_gpu.grid import TILE
from terrain_gpu.paths.relax.relaxation import Relaxation
from terrain_gpu.report import process_io

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from make_terrain import terrain_window  # noqa: E402

pytestmark = pytest.mark.skipif(process_io() is None, reason="nothing counts bytes here")

PAGE = (ROOT / "docs/design/bounds.md").read_text(encoding="utf-8")
FORMULAS = {
    name: (reads, writes)
    for name, reads, writes in re.findall(r"^\| ([\w ]+) \| `(.+?)` \| `(.+?)` \|", PAGE, re.M)
}
"""Bytes read and written for each cell, by the rows of the page."""
BLOCK = 128
SIDES = 2 * BLOCK, 4 * BLOCK
PLACE = (1, 1)


def built(store, **how):
    shutil.rmtree(store / "distance_index", ignore_errors=True)
    return tg.build_index(store, backend="cpu", **how)


OPERATIONS = {
    "conversion": lambda store, **how: tg.convert_dataset(
        store.with_suffix(".tif"), store, layer="again", **how
    ),
    "spanning tree": partial(tg.minimum_spanning_tree, weight="flow", backend="cpu"),
    "distances": partial(
        tg.shortest_paths, sources=[PLACE], cost="friction", friction="elevation", backend="cpu"
    ),
    "distance index": built,
    "distances from the index": partial(
        tg.shortest_paths, sources=[PLACE], method="index", backend="cpu"
    ),
    "flow directions": partial(tg.flow_direction, backend="cpu"),
    "flow accumulation": partial(tg.flow_accumulation, backend="cpu"),
}


def value(formula, side, block, **letters):
    """Bytes for each cell of a square raster, by a formula of the page."""
    inside = (side - block) / side  # the share of the rims that have neighbours
    known = {"s": 4, "d": 8, "a": 4, "k": 8, "q": 4200 / block**2, "r": 4 / block * inside}
    known |= {"R": (1 + 2 * TILE / block * inside) ** 2, "p": ((block + TILE) / side) ** 2}
    times = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", formula)
    return eval(times, {}, {**known, **letters})


def files(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores of four blocks and of 16."""
    found = {}
    for side in SIDES:
        store = tmp_path_factory.mktemp("bounds") / f"{side}.zarr"
        cells = terrain_window(0, side, 0, side, seed=1).astype(np.float32)
        with rasterio.open(
            store.with_suffix(".tif"), "w", driver="GTiff", width=side, height=side, count=1,
            dtype="float32", transform=rasterio.Affine(10, 0, 0, 0, -10, 0),
        ) as target:  # fmt: skip
            target.write(cells, 1)
        tg.convert_dataset(store.with_suffix(".tif"), store, block_size=BLOCK)
        for name in ("spanning tree", "flow directions", "distance index"):
            OPERATIONS[name](store)
        found[side] = store
    return found


def test_rows_are_these_operations():
    proofs = {f"proof of {name}" for name in OPERATIONS if name != "distances from the index"}
    assert FORMULAS.keys() == OPERATIONS.keys() | proofs


@pytest.fixture
def ledger_bytes(monkeypatch):
    """A list of the bytes that ledgers write."""
    write, found = ledger.write_parts, [0]

    def counted(file, parts):
        found[0] += sum(len(part) for part in parts)
        write(file, parts)

    monkeypatch.setattr(ledger, "write_parts", counted)
    return found


@pytest.mark.parametrize("name", OPERATIONS)
def test_bytes_of_each_cell(stores, name, ledger_bytes):
    small, large = SIDES
    messages = {}

    def spent(side, *, verify):
        ledger_bytes[0] = 0
        found = OPERATIONS[name](stores[side], threads=1, overwrite=True, verify=verify)
        report = getattr(found, "report", found)
        messages[side] = ledger_bytes[0] / side**2
        return np.array([report.bytes_read, report.bytes_written])

    proof = FORMULAS.get(f"proof of {name}")
    spent(small, verify=proof is not None)
    plain = {side: spent(side, verify=False) for side in SIDES}
    measured = {FORMULAS[name]: plain[large] - plain[small]}
    if proof:
        proven = {side: spent(side, verify=True) - plain[side] for side in SIDES}
        measured[proof] = proven[large] - proven[small]
    for formulas, counted in measured.items():
        expected = {}
        for side, store in stores.items():
            letters = {"e": files(store / "distance_index") / side**2, "l": 0, "w": 0}
            letters["m"] = messages[side]
            assert messages[side] <= value("40 r", side, BLOCK)
            each = [value(formula, side, BLOCK, **letters) for formula in formulas]
            expected[side] = side**2 * np.array(each)
        cells = large**2 - small**2
        # A place and a checksum of 20 bytes for each tile, a hundred bytes or two for each block.
        for found, wanted in zip(counted, expected[large] - expected[small], strict=True):
            assert found / cells == pytest.approx(
                wanted / cells, rel=0.015, abs=0.025 * (wanted > 0)
            )


def test_the_index_and_a_search_in_it(stores):
    """An index has no more than all its entries; a search reads no more than it, and both ends."""
    side, store = SIDES[1], stores[SIDES[1]]
    size = files(store / "distance_index")
    assert size < (8 * 8 + 1) * side**2
    for _ in range(2):
        report = tg.query_index(store, [(1, 1)], [(side - 2, side - 2)]).report
    ends = 2 * 4 * TILE**2 * 4  # in the corners, three tiles lie around that of an end
    assert ends < report.bytes_read < size + ends + 10_000


@pytest.mark.parametrize("kind", ["spiral", "cascade"])
def test_distances_where_blocks_are_visited_often(tmp_path, monkeypatch, kind):
    """Blocks of one tile, of which none is mapped, and memory for some of them."""
    side, block, loads, load = 256, 64, Counter(), Relaxation._load
    monkeypatch.setattr(Relaxation, "_load", lambda self, at: loads.update([at]) or load(self, at))
    cells = corridors.spiral(side) if kind == "spiral" else corridors.cascade(side, block)
    store = add_layer(tmp_path / "s.zarr", cells, block_size=block)
    sources = corridors.sources_of(kind, side, block)
    report = tg.shortest_paths(
        store, sources, cost="friction", friction="elevation", backend="cpu", threads=1,
        memory_limit="281MB",
    ).report  # fmt: skip
    found, blocks = report.result, (side // block) ** 2
    l, w = (found[key] / 8 / side**2 for key in ("loaded_bytes", "spilled_bytes"))
    assert block / 8 < found["block_visits_per_block"] <= 4 * block + 5
    assert 0 < w <= l + 1 < 4 * block + 7
    # What lies around a block counts as often as it is loaded.
    tiles = sum(n * math.prod(3 - (k in (0, 3)) for k in at) for at, n in loads.items())
    letters = {"l": l, "w": w, "R": tiles / loads.total()}
    reads, writes = (side**2 * value(one, side, block, **letters) for one in FORMULAS["distances"])
    assert loads.total() == pytest.approx((1 + l) * blocks, rel=0.08)  # fields have halos
    assert report.bytes_read == pytest.approx(reads, rel=0.06)
    assert report.bytes_written == pytest.approx(writes, rel=0.06)
