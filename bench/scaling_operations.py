"""What the case `scaling` runs: every operation that runs on workers, and what it reads."""

from __future__ import annotations

import json
import shlex
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.terrain import EPSG, TRANSFORM

BLOCKS = 1024, 1024, 512, 512
"""Sides of blocks of the large, the middle, the small and the least raster."""
LARGE, MIDDLE, SMALL, LEAST = range(4)
FRICTION = "--cost friction --friction friction"
PLACES, ENDS, POINTS = 384, 60, 100
"""Sources of a matrix, places of a network, sources and targets of others."""


class Operation(NamedTuple):
    """A command, without the words that all have.

    Attributes
    ----------
    words
        {store} is the store, {data} the folder of what all stores of a raster share, {run} that
        of the run, {middle} a cell.
    plan
        Words of `plan --for`; "" where there is no plan.
    makes
        What it writes into the store; "" for nothing.
    needs
        The operations whose layers it reads beside the heights.
    size
        Which raster: LARGE, or a smaller one where one worker would take too long.
    memory
        The limit of each process, where the usual one does not do.
    side_cells
        Bytes that it writes for each cell, until that is measured.
    timed
        Whether it is measured, or only makes what others need.
    """

    words: str
    plan: str = ""
    makes: str = ""
    needs: tuple[str, ...] = ()
    size: int = LARGE
    memory: str = ""
    side_cells: float = 4
    timed: bool = True


TREE, FLOW, UPSTREAM = "flow tree", "flow-direction", "flow-accumulation"
OPERATIONS = {
    "convert": Operation(
        "convert-dataset {data}/source.tif {store} --block-size {block}", "convert", "elevation"
    ),
    "friction": Operation(  # from 1 to 50
        "calc {store} '1 + 0.049 * elevation' --dtype float32 --into friction",
        makes="friction",
        timed=False,
    ),
    "flow tree": Operation("compute-mst {store} --weight flow", "mst --weight flow", "mst"),
    "flow-direction": Operation(
        "flow-direction {store}", "flow-direction", "flow_direction", (TREE,), side_cells=1
    ),
    "flow-accumulation": Operation(
        "flow-accumulation {store}", "flow-accumulation", "flow_accumulation", (FLOW,)
    ),
    "fill": Operation("fill {store}", "fill", "filled", (TREE, FLOW), side_cells=2),
    "slope": Operation("slope {store}", "slope", "slope"),
    "spanning tree": Operation("compute-mst {store}", "mst", "mst"),
    "accumulate": Operation("accumulate {store}", "accumulate", "accumulation", ("spanning tree",)),
    "cost distance": Operation(
        f"compute-sssp {{store}} {FRICTION} --source-rowcol {{middle}}",
        "sssp --cost friction --friction float32",
        "distance",
        ("friction",),
        side_cells=8,
    ),
    "far distance": Operation(
        f"compute-sssp {{store}} {FRICTION} --source-rowcol 0,0 --into far",
        makes="far",
        needs=("friction",),
        side_cells=8,
        timed=False,
    ),
    "components": Operation(
        "label-components {store} --where 'elevation > 500'", "components", "components"
    ),
    "hand": Operation(
        "hand {store} --threshold 1000 --distance flow_length",
        "hand",
        "hand",
        (FLOW, UPSTREAM),
        side_cells=12,
    ),
    "basins": Operation("basins {store}", "basins", "basins", (FLOW,)),
    "terrain-indices": Operation(
        "terrain-indices {store} --twi twi --spi spi --ls ls",
        "terrain-indices",
        "twi",
        ("slope", UPSTREAM),
        side_cells=12,
    ),
    "cost distance, allocation": Operation(
        "compute-sssp {store} --sources {data}/places.geojson --allocation {run}/ids.tif",
        "sssp --allocation",
        "distance",
        side_cells=16,
    ),
    "watershed": Operation(
        "watershed {store} --pour-points {data}/places.geojson", "watershed", "watershed", (FLOW,)
    ),
    "streams": Operation(
        "streams {store} --threshold 1000", "streams", "streams", (FLOW, UPSTREAM), side_cells=1
    ),
    "verify tree": Operation("verify {store}", needs=("spanning tree",)),
    "verify distances": Operation("verify {store}", needs=("friction", "cost distance")),
    "calc": Operation("calc {store} '0.3 * elevation'", "calc", "calc", side_cells=8),
    "corridor": Operation(
        "corridor {store} distance far",
        "corridor --layers 2 --dtype float32",
        "corridor",
        ("friction", "cost distance", "far distance"),
    ),
    "rasterize": Operation(
        "rasterize {store} --features {data}/rivers.geojson", "rasterize", "rasterized"
    ),
    "burn": Operation(
        "burn {store} --streams {data}/rivers.geojson --depth 10", "burn", "burned", side_cells=2
    ),
    "overviews": Operation("overviews {store} --layer elevation", side_cells=1),
    "depressions": Operation(
        "depressions {store}", "depressions", "depressions", (TREE, FLOW), MIDDLE
    ),
    "fill-spill-merge": Operation(
        "fill-spill-merge {store} --rain 0.02", "", "water", (TREE, FLOW), MIDDLE, side_cells=8
    ),
    "breach": Operation("breach {store}", "breach", "breached", (), MIDDLE, side_cells=2),
    "flow-accumulation, dinf": Operation(
        "flow-accumulation {store} --method dinf --into divided",
        "",
        "divided",
        (TREE, FLOW, "fill"),
        MIDDLE,
        side_cells=8,
    ),
    "least-cost-network": Operation(
        f"least-cost-network {{store}} {FRICTION} --sources {{data}}/ends.geojson "
        "-o {run}/ways.gpkg",
        f"least-cost-network --cost friction --friction float32 --points {ENDS}",
        "",
        ("friction",),
        MIDDLE,
        "8GB",
        side_cells=16,
    ),
    "polygons": Operation(
        "polygons {store} {run}/areas.gpkg --layer components",
        "polygons",
        "",
        ("components",),
        MIDDLE,
    ),
    "contours": Operation(
        "contours {store} {run}/contours.gpkg --interval 50", "contours", "", (), MIDDLE
    ),
    "network": Operation(
        "network {store} {run}/lines.gpkg --min-length 5000",
        "network",
        "",
        ("spanning tree",),
        SMALL,
    ),
    "build-index": Operation("build-index {store}", "index", "index", (), SMALL, side_cells=8),
    "cost-matrix": Operation(
        f"cost-matrix {{store}} {FRICTION} --sources {{data}}/ends.geojson "
        "--targets {data}/places.geojson -o {run}/costs.csv",
        f"cost-matrix --cost friction --friction float32 --points {PLACES} --targets {POINTS}",
        "",
        ("friction",),
        LEAST,
    ),
}
"""In the order in which they run with the most workers: what many need comes first."""


def needed(names: list[str], there: Container[str] = ()) -> list[str]:
    """Return these and what they need, but what is there, in the order of OPERATIONS."""
    found, left = set(), list(names)
    while left:
        name = left.pop()
        if name not in found and name not in there:
            found.add(name)
            left += OPERATIONS[name].needs
    return [name for name in OPERATIONS if name in found]


def words(name: str, store: Path, data: Path, run: Path, side: int, size: int) -> list[str]:
    """Return the words of an operation over a store of a raster of this size."""
    block = BLOCKS[size] if size < len(BLOCKS) else BLOCKS[-1]
    of = {"store": store, "data": data, "run": run, "middle": f"{side // 2},{side // 2}"}
    return [word.format(**of, block=block) for word in shlex.split(OPERATIONS[name].words)]


def features(folder: Path, side: int, size: int) -> None:
    """Write places, the ends of networks or of a matrix, and rivers, as GeoJSON."""
    random = np.random.default_rng(side)
    cell, left, top = TRANSFORM[0], TRANSFORM[2], TRANSFORM[5]
    ends = PLACES if size == LEAST else ENDS

    def place(at: np.ndarray) -> list[list[float]]:
        """Coordinates of the centres of cells."""
        inside = (np.clip(at, 0, side - 1).astype(int) + 0.5) * cell
        return [[left + x, top - y] for x, y in inside.tolist()]

    rivers = []
    for _ in range(200):
        turns = random.normal(0.0, 0.3, 100).cumsum() + random.uniform(0, 2 * np.pi)
        steps = side / 300 * np.stack([np.cos(turns), np.sin(turns)], axis=1)
        rivers.append(place(random.uniform(0, side, 2) + steps.cumsum(axis=0)))
    points = [place(random.uniform(0, side, (count, 2))) for count in (POINTS, ends)]
    for name, kind, all_of in (
        ("places", "Point", points[0]),
        ("ends", "Point", points[1]),
        ("rivers", "LineString", rivers),
    ):
        found = {
            "type": "FeatureCollection",
            "crs": {"type": "name", "properties": {"name": EPSG}},
            "features": [
                {
                    "type": "Feature",
                    "properties": {},
                    "geometry": {"type": kind, "coordinates": one},
                }
                for one in all_of
            ],
        }
        (folder / f"{name}.geojson").write_text(json.dumps(found), encoding="utf-8")
