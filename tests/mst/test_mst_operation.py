"""The contract of operations for spanning trees."""

from __future__ import annotations

import reference
from contract import OperationContract
from strategies import rasters, shapes
from test_mst import has_no_largest

from terrain_gpu.mst.problem import SpanningForest


class TestSpanningForest(OperationContract):
    command = "compute-mst s.zarr --weight absdiff"
    rasters = rasters(shape=shapes(200, 9000)).filter(has_no_largest)
    weight, connectivity = "absdiff", 8

    def make(self, store):
        return SpanningForest(
            str(store), weight=self.weight, connectivity=self.connectivity, method="frozen"
        )

    def expected(self, data, nodata, grid):
        return [reference.kruskal(data, self.weight, nodata, self.connectivity)[0]]


class TestSpanningForestOfPasses(TestSpanningForest):
    command = "compute-mst s.zarr --connectivity 4"
    weight, connectivity = "max", 4
