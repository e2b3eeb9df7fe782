"""16 neighbours, and rasters that go round the Earth, on a GPU: the same bits as on the CPU.

Runs without a GPU, too, in emulated lanes.
"""

from __future__ import annotations

import shutil

import emulation
import numpy as np
import pytest
from test_cuda_paths import both

from terrain_gpu.cuda import device
from terrain_gpu.paths.cuda import problem as gpu

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")


@pytest.fixture(scope="module")
def lanes(tmp_path_factory):
    """A GPU, or a stand-in for one until the end of the module."""
    if device.why_not() is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        emulation.in_lanes(patch, tmp_path_factory.mktemp("kernels"))
        yield
    emulation.forget()


COSTS = {
    "friction": {"cost": "friction", "friction": "friction"},
    "slope": {"cost": "tobler", "reverse": True},
    "absdiff": {"cost": "absdiff"},
    "minimax": {"cost": "minimax"},
    "formula": {"cost": "friction * length * exp(2 * abs(slope))", "friction": "friction"},
    "walls": {"cost": "absdiff", "barriers": "walls", "corner_cutting": False},
    "edge": {"cost": "surface", "source_edge": True},
}


def world(shape, seed=1):
    rng = np.random.default_rng(seed)
    z = rng.integers(0, 5, shape).astype(np.int16)
    z[shape[0] // 3 : shape[0] // 2, : shape[1] // 2] = -1
    friction = rng.integers(1, 9, z.shape).astype(np.uint8)
    walls = (rng.random(z.shape) < 0.2).astype(np.uint8)
    good = np.argwhere((z >= 0) & (walls == 0))
    places = good[rng.permutation(len(good))[:3]].tolist()
    return z, {"friction": friction, "walls": walls}, [tuple(p) for p in places]


def as_the_cpu(shape, mode, **how):
    z, layers, places = world(shape)
    more = {k: layers.get(v, v) if isinstance(v, str) else v for k, v in COSTS[mode].items()}
    more["cost"] = COSTS[mode]["cost"]
    how = {"threads": 1, "block_size": 64, **how}  # kernels cannot be emulated side by side
    return both(z, places, nodata=-1, **more, **how)


@pytest.fixture(params=[None, 1, 2])
def regions(request, monkeypatch):
    """The GPU uses regions of this many blocks on a side, or one for the whole raster."""
    if request.param is not None:
        usual = gpu.Problem.plan
        monkeypatch.setattr(gpu.Problem, "plan", lambda self: (usual(self)[0], request.param))


@pytest.mark.parametrize("mode", COSTS)
@pytest.mark.parametrize("shape", [(40, 33), (67, 131), (130, 64)])
def test_across_the_seam(lanes, regions, mode, shape):
    found = as_the_cpu(shape, mode, wrap="yes")
    assert found.report.result["wrap"] is True


@pytest.mark.parametrize("mode", COSTS)
@pytest.mark.parametrize("shape", [(40, 33), (65, 130), (129, 66)])
def test_16_neighbours(lanes, regions, mode, shape):
    as_the_cpu(shape, mode, connectivity=16)
