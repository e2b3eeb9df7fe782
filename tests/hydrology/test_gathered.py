"""What blocks tell a proof: kept, or refused with a limit that suffices."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terrain_gpu.engine.machine import MB, Machine
from terrain_gpu.engine.plan import fit_blocks
from terrain_gpu.errors import PlanError
from terrain_gpu.grid import BlockGrid
from terrain_gpu.hydrology.common.proof_gathered import GatheredParts

LAYER = SimpleNamespace(path="s.zarr/elevation")


def plan(limit: int):
    how = {"buffer": 2 * MB, "worker": 3 * MB, "machine": Machine.of(limit, 4)}
    return fit_blocks(BlockGrid(900, 700, 128), "int16", "to verify", **how)


def least() -> int:
    with pytest.raises(PlanError) as refused:
        plan(1)
    return int(re.search(r"at least (\d+) MB", str(refused.value))[1])


@given(
    items=st.lists(st.integers(0, 10**5), min_size=1, max_size=9),
    each=st.integers(1, 500),
    planned=st.integers(0, 10**5),
    more=st.integers(0, 60),
)
def test_the_limit_of_a_refusal_suffices(items, each, planned, more):
    def gathered(limit):
        found = GatheredParts(plan(limit), each, LAYER, "depressions", planned)
        for number, count in enumerate(items):
            found.add(number, count)
        return found.take()

    limit = (least() + more) * MB
    needed = plan(limit).memory + each * max(sum(items) - planned, 0)
    if needed <= limit:
        assert gathered(limit) == list(range(len(items)))
        return
    with pytest.raises(PlanError, match=r"elevation: .* to verify this many depressions") as no:
        gathered(limit)
    enough = int(re.search(r"at least (\d+) MB", str(no.value))[1]) * MB
    assert gathered(enough) == list(range(len(items)))
    with pytest.raises(PlanError):  # nor is it more than that
        gathered(enough - MB)
