"""The campaign itself (tests/campaign): it plays cases, finds planted faults, and shrinks them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from campaign import Case, Failure, Fault, Step, Terrain, check, draw, oracles, shrink, world
from campaign import processes as campaign_processes
from campaign.cases import LINKS, MATRICES

SMALL = Terrain(rows=30, cols=70, terrain="hills", seed=5)
CONVERT = Step("convert", {"into": "elevation", "input": "plain", "variant": 0, "block-size": 64})
TREE = Step("mst", {"weight": "max", "connectivity": 8, "method": "frozen", "overwrite": True})
COUNT = Step("components", {"where": "above", "bound": 0.5, "connectivity": 4})


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """However busy the machine is."""
    monkeypatch.setattr(campaign_processes, "PATIENCE", 1800)
    monkeypatch.setattr(shrink, "SECONDS", 1800)


def test_a_seed_is_a_case():
    assert draw(7) == draw(7)
    assert len({repr(draw(seed)) for seed in range(20)}) == 20
    case = draw(7)
    assert eval(repr(case), vars(world) | {"Terrain": Terrain}) == case


def test_a_case_that_ends_well():
    counts = check(Case(SMALL, (CONVERT, TREE, COUNT)))
    assert counts == {
        ("convert", "none", "done"): 1,
        ("mst", "none", "done"): 1,
        ("components", "none", "done"): 1,
    }


@pytest.mark.parametrize("tree", [TREE, Step("network", {"min-length": 50, "to": "n.gpkg"})])
def test_a_case_of_drainage(tree):
    areas = {"areas": True, "from": [0.4]} if tree is TREE else {"directions": "direction"}
    drain = Step("accumulate", {**areas, "overwrite": True})
    counts = check(Case(SMALL, (CONVERT, tree, drain)))
    assert counts[tree.do, "none", "done"] == counts["accumulate", "none", "done"] == 1


def test_a_killed_run_goes_on():
    kill = replace(TREE, faults=(Fault("kill", "SIGKILL", at=9),), again=True)
    counts = check(Case(SMALL, (CONVERT, kill)))
    assert counts["mst", "kill", "killed"] == 1
    assert counts["mst", "none", "done"] == 1


@pytest.mark.parametrize("by", ["rowcol", "edge"])
@pytest.mark.parametrize("wrap", [{}, {"wrap": "no"}])
def test_a_case_around_the_earth(by, wrap):
    earth = replace(SMALL, crs="EPSG:4326", around=True)
    how = {"cost": "surface", "connectivity": 8, "method": "relax", "from": [0.0], "by": by}
    paths = Step("sssp", {**how, **wrap, "allocation": "a.tif", "verify": True})
    counts = check(Case(earth, (CONVERT, paths)))
    assert counts["sssp", "none", "done"] == 1


PLACES = {"cost": "surface", "connectivity": 8, "from": [0.1, 0.5, 0.7, 0.9], "by": "rowcol"}


@pytest.mark.parametrize("of", MATRICES + LINKS)
@pytest.mark.parametrize("more", [{}, {"cost": "tobler"}])
def test_a_case_of_many_places(of, more):
    do = "links" if of in LINKS else "matrix"
    if do == "links" and more:
        return  # refused: such costs differ by direction
    step = Step(do, {"of": of, **PLACES, **more, "overwrite": True, "verify": True})
    counts = check(Case(SMALL, (CONVERT, step, step)))
    assert counts[do, "none", "done"] == 2


def test_a_killed_matrix_goes_on():
    kill = Fault("kill", "SIGKILL", at=30)
    step = Step("matrix", {"of": MATRICES[1], **PLACES, "overwrite": True}, (kill,), again=True)
    counts = check(Case(SMALL, (CONVERT, step)))
    assert counts["matrix", "none", "done"] == 1


def test_a_case_of_knights_moves():
    step = Step("sssp", {**PLACES, "connectivity": 16, "method": "relax", "wrap": "no"})
    more = {"overwrite": True, "verify": True, "backlink": "b.tif", "allocation": "a.tif"}
    counts = check(Case(SMALL, (CONVERT, replace(step, options={**step.options, **more}))))
    assert counts["sssp", "none", "done"] == 1


@pytest.fixture
def wrong_components(monkeypatch):
    """An oracle that disagrees with the program in one cell."""
    right = oracles.components

    def wrong(where: np.ndarray, connectivity: int) -> oracles.Truth:
        truth = right(where, connectivity)
        truth.cells[-1, -1] += 1
        return truth

    monkeypatch.setattr(oracles, "components", wrong)


def test_a_wrong_cell_is_found_and_the_case_made_small(wrong_components):
    case = Case(replace(SMALL, rows=2, cols=3), (CONVERT, TREE, COUNT), seed=1)
    with pytest.raises(Failure, match="wrong: layer components") as caught:
        check(case)
    small, failure = shrink.minimise(case, caught.value)
    assert [step.do for step in small.steps] == ["convert", "components"]
    assert small.terrain.rows * small.terrain.cols == 1
    text = shrink.script(small, failure)
    compile(text, "test", "exec")
    assert "label-components s.zarr" in text
