"""A DEM as a raster."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio


@pytest.fixture
def dem(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = np.random.default_rng(8).integers(0, 99, (100, 150)).astype(np.int16)
    transform = rasterio.transform.from_origin(5e5, 5e6, 30, 30)
    how = {"width": 150, "height": 100, "count": 1, "dtype": "int16", "crs": "EPSG:32633"}
    with rasterio.open("dem.tif", "w", driver="GTiff", transform=transform, **how) as file:
        file.write(data, 1)
    return data
