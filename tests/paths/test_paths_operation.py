"""The contract of operations for shortest paths."""

from __future__ import annotations

import numpy as np
import reference
from contract import OperationContract
from strategies import rasters, shapes

from terrain_gpu.errors import StoreError
from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.io.places import as_places
from terrain_gpu.paths.cost.steps import unreached
from terrain_gpu.paths.cost_distance.operation import CostDistance
from terrain_gpu.store import TileStore


def ends(valid):
    """The first and the last cell with a value."""
    cells = reference.listed(valid)
    return [(*cell, None, k + 1) for k, cell in enumerate(cells[:: max(len(cells) - 1, 1)])]


class TestCostDistance(OperationContract):
    representative = True
    command = (
        "compute-sssp s.zarr --source-rowcol 3,5 --cost surface --backlink b.tif --allocation a.tif"
    )
    rasters = rasters(shape=shapes(200, 6000))
    cost, dtype, into = "surface", np.dtype(np.float64), "distance"
    model = "surface"
    """What the reference computes."""
    wrap = False
    connectivity = 8

    def make(self, store):
        layer = TileStore.open(store).layer("elevation")
        try:
            sources = ends(reference.vertices(layer.read_window(*layer.grid.window), layer.nodata))
        except StoreError:  # a damaged layer, which the operation must find
            sources = [(0, 0)]
        places = as_places(layer.grid, [cell[:2] for cell in sources], "sources")
        names = "distance", "backlink", "allocation"
        how = {
            "cost": self.cost,
            "sources": places,
            "names": names,
            "into": self.into,
            "wrap": self.wrap,
            "connectivity": self.connectivity,
        }
        return CostDistance(str(store), "elevation", **how)

    def expected(self, data, nodata, grid):
        valid = reference.vertices(data, nodata)
        lengths = step_lengths(grid, self.connectivity)
        graph = {"valid": valid, "lengths": lengths, "connectivity": self.connectivity}
        graph["wrap"] = self.wrap
        problem = data, self.model, ends(valid)
        found = reference.dijkstra(*problem, **graph)
        codes, _ = reference.backlinks(found, *problem, **graph)
        distance = np.full(data.shape, unreached(self.dtype), self.dtype)
        reached = found < np.inf
        distance[reached] = found[reached]
        return [distance, codes, reference.allocation(codes, *problem).astype(np.uint32)]


class TestCostDistanceOfIntegers(TestCostDistance):
    command = (
        "compute-sssp s.zarr --source-rowcol 3,5 --into near --backlink b.tif --allocation a.tif"
    )
    rasters = rasters(shape=shapes(200, 6000)).filter(lambda raster: raster.dtype.itemsize < 4)
    cost, dtype, into = "absdiff", np.dtype(np.uint32), "near"
    model = "absdiff"


class TestCostDistanceByFormula(TestCostDistance):
    cost = "sqrt(length*length+dz*dz)"
    command = f"compute-sssp s.zarr --source-rowcol 3,5 --cost {cost} --backlink b.tif --verify"


class TestCostDistanceOfKnights(TestCostDistance):
    command = (
        "compute-sssp s.zarr --source-rowcol 3,5 --cost surface --connectivity 16 --backlink b.tif "
        "--allocation a.tif"
    )
    connectivity = 16
