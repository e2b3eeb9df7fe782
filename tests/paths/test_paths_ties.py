"""All steps back on paths of the least cost, as bits."""

from __future__ import annotations

import json
from pathlib import Path

import contract
import numpy as np
import pytest
import rasterio
import reference
import test_paths_operation as of_paths
from contract import OperationContract, make_store, whole
from strategies import rasters, shapes

import terrain_gpu
from terrain_gpu.cli import options
from terrain_gpu.cli.main import group
from terrain_gpu.engine.run import run
from terrain_gpu.errors import StoreError, VerificationError
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.paths.ties.operation import TiedSteps
from terrain_gpu.store import TileStore


def ties(z, model, codes, distance, **graph):
    """Bits of every neighbour that is strictly nearer and on a path of least cost, plainly."""
    found = np.where((codes == 0) | (codes == 255), 0, codes).astype(np.uint8)
    for u, steps in reference.arcs(z, model, **graph).items():
        for v, cost, code in steps:
            near = distance[u] < distance[v]
            if near and found[v] and reference.extend(model, distance[u], cost) == distance[v]:
                found[v] |= code
    return found


class TestTiedSteps(OperationContract):
    command = "compute-sssp s.zarr --source-rowcol 3,5 --into near --all-ties t.tif"
    rasters = rasters(shape=shapes(200, 6000))
    base = of_paths.TestCostDistance

    def prepare(self, store):
        run(self.base().make(store))

    def make(self, store):
        return TiedSteps(str(store), self.base.into)

    def expected(self, data, nodata, grid):
        distance, codes, _ = self.base().expected(data, nodata, grid)
        reached = codes != 255
        far = np.full(data.shape, np.inf, object)
        far[reached] = [d.item() for d in distance[reached]]
        valid = reference.vertices(data, nodata)
        graph = {"valid": valid, "lengths": step_lengths(grid), "wrap": self.base.wrap}
        return [ties(data, self.base.cost, codes, far, **graph)]


class TestTiedStepsOfIntegers(TestTiedSteps):
    base = of_paths.TestCostDistanceOfIntegers
    rasters = base.rasters


MODES = {
    "friction": {"cost": "friction", "friction": "friction"},
    "walls": {"cost": "surface", "barriers": "walls", "corner_cutting": False},
    "four": {"cost": "absdiff", "connectivity": 4},
    "back": {"cost": "tobler", "reverse": True},
    "minimax": {"cost": "minimax"},
    "near": {"cost": "absdiff", "max_cost": 30},
}


@pytest.mark.parametrize("mode", MODES)
def test_ties_of_all_kinds_of_paths(tmp_path, no_fsync, mode):
    rng = np.random.default_rng(5)
    z = rng.integers(0, 4, (70, 80)).astype("int16")
    z[20:30, 20:60] = -1
    path = make_store(tmp_path / "s.zarr", z, -1, 64)
    friction = rng.integers(0, 3, z.shape).astype("uint8")
    walls = (rng.random(z.shape) < 0.2).astype("uint8")
    walls[0, 0] = 0
    for name, data in (("friction", friction), ("walls", walls)):
        with terrain_gpu.create_layer(
            path, name, TileStore.open(path).grid, "uint8", block_size=128
        ) as out:
            for i, j in out.blocks.ids():
                r0, r1, c0, c1 = out.block_window(i, j)
                out.write_block(i, j, np.ascontiguousarray(data[r0:r1, c0:c1]))
            out.commit()
    how = MODES[mode]
    terrain_gpu.shortest_paths(path, [(0, 0)], backlink=True, backend="cpu", **how)
    found = whole(terrain_gpu.tied_steps(path, verify=True).layers["ties"])
    store = TileStore.open(path)
    codes, cells = whole(store.layer("backlink")), whole(store.layer("distance"))
    distance = np.full(z.shape, np.inf, object)
    distance[codes != 255] = [d.item() for d in cells[codes != 255]]
    graph = {
        "valid": z != -1,
        "lengths": step_lengths(store.grid),
        "connectivity": how.get("connectivity", 8),
        "corner_cutting": how.get("corner_cutting", True),
        "reverse": how.get("reverse", False),
    }
    if "friction" in how:
        graph["f"] = friction
    if "barriers" in how:
        graph["barriers"] = walls != 0
    assert np.array_equal(found, ties(z, how["cost"], codes, distance, **graph))
    assert ((found & codes) == codes)[(codes != 0) & (codes != 255)].all()
    if how["cost"] == "absdiff":
        assert (np.bitwise_count(found) > 1).any()


def test_the_command(tmp_path, no_fsync, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    make_store(Path("s.zarr"), np.zeros((9, 9), np.uint8), None, 64)
    words = "compute-sssp s.zarr --source-rowcol 4,4 --cost friction --friction elevation"
    make_store(Path("t.zarr"), np.ones((9, 9), np.uint8), None, 64)
    words = words.replace("s.zarr", "t.zarr") + " --all-ties t.tif --into walk --json r.json"
    words += " --verify"
    code = options._guarded(lambda: group.main(words.split(), standalone_mode=False))
    assert code == 0
    assert "layers walk, walk_backlink, walk_ties, 81 cells" in capfd.readouterr().out
    result = json.loads(Path("r.json").read_text())["result"]
    assert result["layers"] == ["walk", "walk_backlink", "walk_ties"]
    assert result["all_ties"] == "t.tif"
    with rasterio.open("t.tif") as file:
        cells = file.read(1)
    assert cells[4, 4] == 0
    assert cells[4, 8] == 16
    assert contract.verify(Path("t.zarr").resolve()) == (0, set(result["layers"]))
    with pytest.raises(StoreError, match="no layer 'distance'"):
        terrain_gpu.tied_steps("t.zarr")
    with pytest.raises(StoreError, match="layer 'walk_ties' exists"):
        terrain_gpu.tied_steps("t.zarr", "walk")
    terrain_gpu.shortest_paths("s.zarr", [(0, 0)], backend="cpu")
    with pytest.raises(StoreError, match="no layer 'backlink'"):
        terrain_gpu.tied_steps("s.zarr")


def test_a_tie_too_many_or_too_few(tmp_path, no_fsync, monkeypatch):
    """Also a step from a cell at the same distance, which paths do not need."""
    path = make_store(tmp_path / "s.zarr", np.ones((70, 80), np.uint8), None, 64)
    how = {"cost": "friction", "friction": "elevation", "backlink": True, "backend": "cpu"}
    terrain_gpu.shortest_paths(path, [(10, 10)], **how)
    solve = TiedSteps.solve
    for cell, bit in (((60, 70), 16), ((60, 70), 32), ((10, 14), 64), ((10, 10), 1)):

        def wrong(*args, cell=cell, bit=bit):
            found = solve(*args)
            (ties,) = found.arrays
            r0, r1, c0, c1 = args[0].blocks.window(*args[2])
            if r0 <= cell[0] < r1 and c0 <= cell[1] < c1:
                ties[cell[0] - r0, cell[1] - c0] ^= bit
            return found

        monkeypatch.setattr(TiedSteps, "solve", wrong)
        with pytest.raises(VerificationError, match=f"row {cell[0]}, column {cell[1]}: steps"):
            terrain_gpu.tied_steps(path, verify=True)
