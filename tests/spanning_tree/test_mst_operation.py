"""The contract of operations for spanning trees."""

from __future__ import annotations

import numpy as np
import reference
from contract import OperationContract
from hypothesis import strategies as st
from strategies import DTYPES, rasters, shapes
from test_mst import has_no_largest

from terrain_gpu.grid.lengths import step_lengths
from terrain_gpu.spanning_tree.operation import SpanningForest
from terrain_gpu.spanning_tree.weights import weights_of


class TestSpanningForest(OperationContract):
    representative = True
    command = "compute-mst s.zarr --weight absdiff"
    rasters = rasters(shape=shapes(200, 9000)).filter(has_no_largest)
    weight, connectivity = "absdiff", 8

    def make(self, store):
        return SpanningForest(
            str(store), weight=self.weight, connectivity=self.connectivity, method="frozen"
        )

    def expected(self, data, nodata, grid):
        return [reference.kruskal(data, self.weight, nodata, self.connectivity)[0]]


class TestSpanningForestOfFlow(TestSpanningForest):
    command = "compute-mst s.zarr --weight flow"
    rasters = rasters(
        st.sampled_from([dtype for dtype in map(np.dtype, DTYPES) if "flow" in weights_of(dtype)]),
        shapes(200, 9000),
    )
    weight = "flow"

    def expected(self, data, nodata, grid):
        lengths = step_lengths(grid)
        return [reference.kruskal(data, "flow", nodata, 8, lengths)[0]]


class TestSpanningForestOfPasses(TestSpanningForest):
    command = "compute-mst s.zarr --connectivity 4"
    weight, connectivity = "max", 4
