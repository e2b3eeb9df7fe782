"""The proof of distances, backlinks and ids by a GPU's kernels: the verdicts of the CPU."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress

import emulation
import numpy as np
import pytest
from test_paths_verify import Case, case_for

from terrain_gpu.cuda import device
from terrain_gpu.cuda.backend import find_gpu
from terrain_gpu.errors import VerificationError

SOURCES = [(0, 0), (69, 139, 3), (30, 70)]
FREE_ONE_WAY = {"cost": "langmuir", "parameters": {"a": 0.0, "c": 1.0}}


@pytest.fixture(
    params=[
        pytest.param(
            False,
            marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler"),
            id="stand-in",
        ),
        pytest.param(True, marks=pytest.mark.gpu, id="real"),
    ]
)
def gpu(request, monkeypatch, kernels):
    """Proofs are also made by a GPU or a stand-in, in one region and in many."""
    if not request.param:
        if device.why_not() is None:
            pytest.skip("there is a GPU")
        emulation.use(monkeypatch, kernels)
    monkeypatch.setattr(Case, "gpu", find_gpu("cuda", 0, None, None, 64))
    yield
    emulation.forget()


def cells():
    """Steps up to 3, and flats across blocks."""
    found = np.random.default_rng(7).integers(0, 4, (70, 140)).astype(np.int16)
    found[20:66, 40:130] = 2
    found[40:44, 3:60] = -9
    return found


@pytest.mark.parametrize("how", [{}, FREE_ONE_WAY, {"source_edge": True}], ids=str)
def test_the_same_verdicts(gpu, how):
    case = case_for(cells(), SOURCES, nodata=-9, **how)
    case.proof()
    case.proof(ids=False)
    places = [(0, 0), (69, 139), (30, 70), (41, 30), (50, 64), (63, 63), (64, 127)]
    for array in (case.distance, case.codes, case.ids):
        right = array.copy()
        for place in places:
            for value in [n for n in (0, 1, 16, 129, 255) if n != right[place]]:
                array[place] = value
                # There may be another forest on a flat.
                with suppress(VerificationError) if array is case.codes else refused():
                    case.proof()
                array[place] = right[place]


def test_cycles_and_whole_trees(gpu):
    """On a flat; and ids that only the sources betray."""
    case = case_for(np.zeros((70, 140)), [(0, 0), (69, 139)])
    for col in (62, 63, 127):
        right = case.codes[69, col : col + 2].copy()
        case.codes[69, col : col + 2] = 1, 16
        with refused("acyclic"):
            case.proof()
        case.codes[69, col : col + 2] = right
    case.ids[case.ids == 2] = 5
    with refused("allocation"):
        case.proof()


@contextmanager
def refused(*checks):
    with pytest.raises(VerificationError) as caught:
        yield
    assert not checks or caught.value.check in checks
