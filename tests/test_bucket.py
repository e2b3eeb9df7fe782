"""Stores in object storage: the same bytes as on a disk, whoever writes, whatever fails."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("obstore", reason="object storage needs obstore")
pytest.importorskip("moto", reason="the bucket is moto's")

from bucket import bucket, request, server  # noqa: E402, F401 - fixtures
from contract import Stop, make_store, same, stop_at, whole  # noqa: E402

import terrain_gpu  # noqa: E402
from terrain_gpu.store import TileStore  # noqa: E402
from terrain_gpu.store.objects import ObjectPath  # noqa: E402


def test_x(bucket, tmp_path):
    data = np.random.default_rng(3).integers(0, 50, (150, 210)).astype(np.int16)
    make_store(tmp_path / "s.zarr", data, -1, 64)
    make_store(f"{bucket}/s.zarr", data, -1, 64)
    there = {
        n: (ObjectPath(f"{bucket}/s.zarr") / n).read()[0]
        for n, _ in ObjectPath(f"{bucket}/s.zarr").walk()
    }
    here = {
        str(p.relative_to(tmp_path / "s.zarr")): p.read_bytes()
        for p in (tmp_path / "s.zarr").rglob("*")
        if p.is_file()
    }
    assert there == here
    terrain_gpu.minimum_spanning_tree(tmp_path / "s.zarr")
    terrain_gpu.minimum_spanning_tree(f"{bucket}/s.zarr", verify=True)
    terrain_gpu.minimum_spanning_tree(f"{bucket}/s.zarr", verify=True, overwrite=True)
    print(sorted(there), sorted(n for n, _ in ObjectPath(bucket).walk()))
