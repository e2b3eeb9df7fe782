"""Does hydrology agree with other programs? Fill, D8, sums, basins, orders, HAND, D-infinity.

Needs any of the peers, in the same environment: pyflwdir, topotoolbox, pysheds, whitebox-workflows,
richdem-fork (pip install), GRASS (Debian: apt install grass-core), TauDEM on the path (cmake from
its sources, with MPI and GDAL). What is missing is named; distances of pyflwdir 0.5 need affine<3.
The middle of each raster, --side cells at most, becomes square cells of 10 m of a projected CRS,
so that all programs measure alike. Two rasters are made: a surface without flats or depressions,
and one with both. What follows directions is compared on those of each program. Tables tell cells
that both have a value for, those that are equal (sums of float32 within 1e-5, relative), those that
differ, and why.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import rasterio

import terrain_gpu as tg
from bench.peers import has_grass
from bench.stores import add_layer, cells_of, square_cells
from bench.table import Table
from bench.terrain import fractal
from terrain_gpu.engine.proof import around

CELL = 10.0
THRESHOLD = 200
STEPS = np.array([(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)])
"""From E clockwise, as the codes 1, 2, 4 .. 128 have it."""


class Row(NamedTuple):
    """A line of the table; `same` is of cells that both have a value for."""

    program: str
    what: str
    theirs: np.ndarray
    ours: np.ndarray
    where: np.ndarray
    tolerance: float = 0.0
    why: Callable[[np.ndarray], str] | str = ""


# -- ours ----------------------------------------------------------------------------------------


class Store:
    """Our results over one raster, NaN where it has no value."""

    def __init__(self, z: np.ndarray, folder: Path) -> None:
        self.z, self.path = z, folder / "ours.zarr"
        self.grid = square_cells(z.shape, CELL)
        self.put("elevation", z.astype(np.float32))
        tg.minimum_spanning_tree(self.path, weight="flow", backend="cpu")
        for outlets in ("edge", "border"):
            tg.flow_direction(self.path, outlets, into=f"tree_{outlets}")
            tg.fill(self.path, directions=f"tree_{outlets}", into=f"filled_{outlets}")
        tg.flow_direction(
            self.path, "border", flats="gradient", filled="filled_border", into="flow_direction"
        )

    def put(self, name: str, cells: np.ndarray, nodata: Any = None) -> str:
        """Write a layer of ours, or of another program."""
        how = {"nodata": nodata, "block_size": 256, "overwrite": True}
        add_layer(self.path, cells, layer=name, grid=self.grid, **how)
        return name

    def get(self, name: str) -> np.ndarray:
        """The cells of a layer."""
        return cells_of(self.path, name)

    def of(self, function: Callable[..., Any], *words: Any, **how: Any) -> list[np.ndarray]:
        """The layers that a function writes."""
        found = function(self.path, *words, overwrite=True, **how)
        return [self.get(name) for name in found.layers]


# -- what explains differences -------------------------------------------------------------------


LENGTHS = np.hypot(*STEPS.T)[:, None, None] * CELL


def drops(z: np.ndarray) -> np.ndarray:
    """Drops to the eight neighbours, -inf where there is none."""
    ringed = np.pad(z.astype(float), 1, constant_values=np.nan)
    rows, cols = z.shape
    beside = [ringed[1 + r : 1 + r + rows, 1 + c : 1 + c + cols] for r, c in STEPS]
    found = z - np.array(beside)
    return np.where(np.isnan(found), -np.inf, found)


def of_directions(z: np.ndarray, codes: np.ndarray) -> Callable[[np.ndarray], str]:
    """Tell what directions that differ lead to."""
    down = drops(z)
    number = np.log2(np.where(np.isin(codes, 1 << np.arange(8)), codes, 1)).astype(int)
    drop, own = (np.take_along_axis(one, number[None], 0)[0] for one in (down, down / LENGTHS))
    steepest, lowest = (down / LENGTHS).max(axis=0), down.max(axis=0)
    kinds = {
        "a tie": own >= steepest * (1 - 1e-6),
        "the lowest neighbour instead of the steepest": drop == lowest,
        "another lower neighbour": own > 0,
        "not down": own <= 0,
    }

    def tell(differing: np.ndarray) -> str:
        left, words = differing.copy(), []
        for name, cells in kinds.items():
            count = np.count_nonzero(left & cells)
            if count:
                words.append(f"{count:,} {name}")
            left &= ~cells
        return "; ".join(words)

    return tell


def matched(theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    """Labels in our numbers: each of theirs becomes ours at its first cell."""
    theirs = np.where(np.isfinite(theirs), theirs, -1)
    _, first, back = np.unique(theirs, return_index=True, return_inverse=True)
    return ours.ravel()[first][back].reshape(theirs.shape)


# -- the peers: each yields rows -----------------------------------------------------------------


def along(store: Store, program: str, codes: np.ndarray, theirs: dict[str, Any]) -> Iterator[Row]:
    """Compare what follows directions, on those of another program.

    Parameters
    ----------
    codes
        Theirs as ours: 0 at outlets, 255 where nothing drains.
    theirs
        By name, what the program makes of them.
    """
    name = store.put("theirs", codes.astype(np.uint8), 255)
    here = codes != 255
    (sums,) = store.of(tg.flow_accumulation, directions=name, into="sums")
    if "accumulation" in theirs:
        yield Row(program, "accumulation along its directions", theirs["accumulation"], sums, here)
    if "basins" in theirs:
        (ours,) = store.of(tg.basins, directions=name, into="basins_theirs")
        labels = theirs["basins"]
        there = here & np.isfinite(labels)
        yield Row(program, "basins", matched(labels, ours), ours, there)
    channels = here & (sums >= THRESHOLD)
    if "strahler" in theirs:
        how = {"directions": name, "accumulation": "sums", "into": "orders"}
        (ours,) = store.of(tg.streams, THRESHOLD, **how)
        yield Row(program, "Strahler orders", theirs["strahler"](channels), ours, channels)
    if "hand" in theirs or "distance" in theirs:
        how = {"accumulation": "sums", "into": "hand_theirs", "distance": "distance_theirs"}
        high, far = store.of(tg.hand, THRESHOLD, directions=name, **how)
        for key, what, ours in (("hand", "HAND", high), ("distance", "distance to stream", far)):
            if key in theirs:
                found = theirs[key](channels)
                yield Row(program, what, found, ours, here & (far >= 0), 1e-5)
    if "length" in theirs:
        how = {"to_outlets": True, "into": "relief_theirs", "distance": "length_theirs"}
        _, ours = store.of(tg.hand, directions=name, **how)
        yield Row(program, "flow length to the outlet", theirs["length"](), ours, here, 1e-5)


def lower(store: Store, theirs: np.ndarray) -> np.ndarray:
    """Cells outside of depressions that have a lower neighbour, and are no outlets.

    Programs that fill cells beside them otherwise (`theirs`) have other surfaces there.
    """
    z, filled = store.z, store.get("filled_border")
    other = np.pad(np.isfinite(z) & (theirs != filled), 1)
    no_outlet = np.isfinite(drops(z)).all(axis=0)
    return no_outlet & ~around(other) & (z == filled) & (drops(filled).max(axis=0) > 0)


def by_pyflwdir(store: Store, folder: Path) -> Iterator[Row]:
    """Fill, D8, and all that follows."""
    import pyflwdir

    z, good = store.z.astype(np.float32), np.isfinite(store.z)
    given = np.where(good, z, np.float32(-9999))
    filled, codes = pyflwdir.dem.fill_depressions(given, outlets="edge", nodata=-9999.0)
    codes = np.where(codes == 247, 255, codes)
    yield Row("pyflwdir", "fill", filled, store.get("filled_border"), good)
    ours = store.get("flow_direction")
    right = store.get("filled_border")
    where = lower(store, filled)
    yield Row("pyflwdir", "D8", codes, ours, where, why=of_directions(right, codes))
    flow = pyflwdir.from_array(
        np.where(codes == 255, 247, codes).astype(np.uint8),
        ftype="d8",
        transform=(CELL, 0, 0, 0, -CELL, 0),
    )
    theirs = {
        "accumulation": flow.upstream_area("cell"),
        "basins": flow.basins(),
        "strahler": lambda channels: flow.stream_order(mask=channels),
        "hand": lambda channels: flow.hand(channels, given),
        "distance": lambda channels: flow.stream_distance(channels, unit="m"),
        "length": lambda: flow.stream_distance(unit="m"),
    }
    yield from along(store, "pyflwdir", codes, theirs)


def by_topotoolbox(store: Store, folder: Path) -> Iterator[Row]:
    """Fill, D8, accumulation, distances."""
    import topotoolbox

    good = np.isfinite(store.z)
    dem = topotoolbox.read_tif(str(folder / "dem.tif"))
    filled, right = np.asarray(dem.fillsinks().z), store.get("filled_border")
    yield Row("TopoToolbox", "fill", filled, right, good)
    flow = topotoolbox.FlowObject(dem)
    codes = np.where(good, 0, 255)
    start, end = np.stack(flow.source_indices), np.stack(flow.target_indices)
    for k, step in enumerate(STEPS):
        cells = start[:, (end - start == step[:, None]).all(axis=0)]
        codes[tuple(cells)] = 1 << k
    where = lower(store, filled)
    ours = store.get("flow_direction")
    yield Row("TopoToolbox", "D8", codes, ours, where, why=of_directions(right, codes))
    labels = np.asarray(flow.drainagebasins().z)
    theirs = {
        "accumulation": np.asarray(flow.flow_accumulation().z),
        "basins": np.where(labels == 0, np.nan, labels),
    }
    yield from along(store, "TopoToolbox", codes, theirs)


def by_pysheds(store: Store, folder: Path) -> Iterator[Row]:
    """Fill, D8, accumulation, HAND, and D-infinity where there are no flats."""
    from pysheds.grid import Grid

    grid = Grid.from_raster(str(folder / "dem.tif"))
    dem, good = grid.read_raster(str(folder / "dem.tif")), np.isfinite(store.z)
    filled = grid.fill_depressions(grid.fill_pits(dem))
    right = store.get("filled_border")
    inside = store.get("filled_edge")  # voids are no outlets
    yield Row("pysheds", "fill", np.asarray(filled), inside, good)
    found = grid.flowdir(filled)
    codes, where = np.asarray(found), lower(store, np.asarray(filled))
    yield Row(
        "pysheds",
        "D8",
        codes,
        store.get("flow_direction"),
        where,
        why=of_directions(right, codes),
    )
    if where[1:-1, 1:-1].all():
        sums = grid.accumulation(grid.flowdir(dem, routing="dinf"), routing="dinf")
        yield divided(store, "pysheds", np.asarray(sums))


def divided(store: Store, program: str, theirs: np.ndarray, outlets: Any = "border") -> Row:
    """Compare D-infinity, where the programs agree on what lies at the edge."""
    tg.flow_direction(store.path, outlets, into="tree", overwrite=True)
    tg.fill(store.path, directions="tree", into="filled", overwrite=True)
    (ours,) = store.of(tg.flow_accumulation, method="dinf", directions="tree", into="dinf")
    return Row(program, "D-infinity accumulation, inner cells", theirs, ours, inner(ours), 1e-5)


def inner(cells: np.ndarray) -> np.ndarray:
    """All cells but those at the edge."""
    return np.pad(np.ones((cells.shape[0] - 2, cells.shape[1] - 2), bool), 1)


def by_whitebox(store: Store, folder: Path) -> Iterator[Row]:
    """Fill (Wang and Liu), D8, accumulation, orders, D-infinity."""
    from whitebox_workflows import WbEnvironment

    tools, good = WbEnvironment(), np.isfinite(store.z)
    groups, count = [tools.hydrology, tools.streams], iter(range(1000))

    def read(name: str, **how: Any) -> tuple[Any, np.ndarray]:
        """What a tool makes: its raster, and the cells, NaN where there is none."""
        tool = next(getattr(one, name) for one in groups if hasattr(one, name))
        path, made = str(folder / f"wbw{next(count)}.tif"), tool(**how)
        tools.write_raster(made, path)
        with rasterio.open(path) as file:
            return made, file.read(1, masked=True).astype(float).filled(np.nan)

    def of_mask(mask: np.ndarray) -> Any:
        path = folder / f"mask{next(count)}.tif"
        write(path, mask.astype(np.int16))
        return tools.read_raster(str(path))

    dem = tools.read_raster(str(folder / "dem.tif"))
    filled, cells = read("fill_depressions_wang_and_liu", dem=dem, fix_flats=False)
    right = store.get("filled_border")
    yield Row("Whitebox", "fill", cells, store.get("filled_edge"), good)
    pointer, codes = read("d8_pointer", dem=filled, esri_pntr=True)
    codes = np.where(np.isnan(codes) | ~good, 255, codes)
    where = lower(store, cells)
    yield Row(
        "Whitebox",
        "D8",
        codes,
        store.get("flow_direction"),
        where,
        why=of_directions(right, codes),
    )
    d8 = {"d8_pntr": pointer, "esri_pntr": True}
    how = {"input_is_pointer": True, "esri_pntr": True, "out_type": "cells"}
    theirs = {
        "accumulation": read("d8_flow_accum", input=pointer, **how)[1],
        "strahler": lambda on: read("strahler_stream_order", streams=of_mask(on), **d8)[1],
    }
    yield from along(store, "Whitebox", codes, theirs)
    if where[1:-1, 1:-1].all():
        # The edge drains along itself: to the only cell without a lower neighbour.
        sink = [tuple(map(int, np.unravel_index(np.argmin(store.z), store.z.shape)))]
        yield divided(
            store, "Whitebox", read("dinf_flow_accum", input=dem, out_type="cells")[1], sink
        )
        theirs = read("fd8_flow_accum", dem=dem, out_type="cells", exponent=1.1)[1]
        how = {"method": "mfd", "directions": "tree", "into": "mfd"}
        (ours,) = store.of(tg.flow_accumulation, **how)
        yield Row("Whitebox", "MFD accumulation (FD8, 1.1)", theirs, ours, inner(ours), 1e-5)
        (sums,) = store.of(tg.flow_accumulation, directions="tree", into="sums_tree")
        streams = (sums >= THRESHOLD).astype(np.uint8)
        how = {"streams": store.put("streams", streams), "directions": "tree", "into": "hand_dinf"}
        _, ours = store.of(tg.hand, method="dinf", distance="far", **how)
        pointer = read("dinf_pointer", dem=dem)[1]
        # Its tool takes the shortest way (TauDEM's minimum), so averages are found here.
        far = average_distances(store.z, pointer, streams == 1)
        what = "averages over its D-infinity directions"
        yield Row("Whitebox", what, far, ours, inner(ours) & (ours >= 0), 1e-5)


def average_distances(z: np.ndarray, azimuth: np.ndarray, streams: np.ndarray) -> np.ndarray:
    """Average distances to streams over D-infinity directions, clockwise from N; NaN without."""
    found = np.where(streams, 0.0, np.nan)
    for cell in map(
        tuple, np.stack(np.unravel_index(np.argsort(z, axis=None), z.shape)).T.tolist()
    ):
        if streams[cell] or not azimuth[cell] >= 0:
            continue
        first, part = divmod(azimuth[cell] / 45, 1)
        values = []
        for k, weight in ((int(first), 1 - part), (int(first) + 1, part)):
            step = STEPS[(k + 6) % 8]
            row, col = np.add(cell, step).tolist()
            if weight > 1e-7:  # of angles as float32
                inside = 0 <= row < z.shape[0] and 0 <= col < z.shape[1]
                there = found[row, col] if inside else np.nan
                values.append(weight * (there + CELL * np.hypot(*step)))
        found[cell] = sum(values)
    return found


GRASS = """
r.in.gdal -o input=dem.tif output=z --q
g.region raster=z
r.watershed -s elevation=z drainage=d accumulation=a --q
r.terraflow -s elevation=z filled=tf direction=td swatershed=tw accumulation=ta tci=tt \\
  directory=. --q
for map in d a tf td; do
  r.out.gdal -c input=$map output=grass_$map.tif type=Float64 nodata=-99999 --q
done
"""


def by_grass(store: Store, folder: Path) -> Iterator[Row]:
    """r.watershed and r.terraflow: D8, fill, accumulation along their directions."""
    if not has_grass():
        raise ImportError("GRASS is not installed")
    (folder / "run.sh").write_text(GRASS)
    command = ["grass", "--tmp-location", "XY", "--exec", "bash", "run.sh"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    good, right = np.isfinite(store.z), store.get("filled_border")

    def read(name: str) -> np.ndarray:
        path = folder / f"grass_{name}.tif"
        if not path.exists():
            told = [
                line for line in done.stderr.splitlines() if "Assertion" in line or "ERROR" in line
            ]
            raise RuntimeError(told[0] if told else "no output")
        with rasterio.open(path) as file:
            return np.asarray(file.read(1, masked=True).filled(np.nan))

    where, ours = lower(store, right), store.get("flow_direction")
    turned = np.array([0, 128, 64, 32, 16, 8, 4, 2, 1])
    drainage = read("d")
    codes = np.where(np.isnan(drainage), 255, turned[np.nan_to_num(drainage).clip(0).astype(int)])
    yield Row("r.watershed", "D8", codes, ours, where, why=of_directions(right, codes))
    inside = np.where(read("a") > 0, read("a"), np.nan)  # less than 0: it may lack inflow
    yield from along(store, "r.watershed", codes, {"accumulation": inside})
    filled = read("tf")
    yield Row("r.terraflow", "fill", filled, store.get("filled_edge"), good)
    codes = read("td")
    codes = np.where(np.isin(codes, 1 << np.arange(8)), codes, np.where(good, 0, 255))
    where = lower(store, filled)
    yield Row("r.terraflow", "D8", codes, ours, where, why=of_directions(right, codes))


TAUDEM_CODES = np.array([0, 1, 128, 64, 32, 16, 8, 4, 2])
"""Of 1 to 8, counterclockwise from E; 0 for none."""


def by_taudem(store: Store, folder: Path) -> Iterator[Row]:
    """Fill, D8, accumulation, D-infinity accumulation and averages down to streams.

    D-infinity is compared where nothing comes through a flat or lake, or goes through one: there
    both programs divide flow by the same heights.
    """
    if not shutil.which("dinfdistdown"):
        raise ImportError("TauDEM is not installed")

    def make(program: str, words: str) -> None:
        command = [program, *words.split()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{program}: {(done.stdout + done.stderr).splitlines()[-1]}")

    def read(name: str) -> np.ndarray:
        with rasterio.open(folder / f"{name}.tif") as file:
            return file.read(1, masked=True).astype(float).filled(np.nan)

    good, right = np.isfinite(store.z), store.get("filled_border")
    make("pitremove", "-z dem.tif -fel fel.tif")
    yield Row("TauDEM", "fill", read("fel"), right, good)
    make("d8flowdir", "-fel fel.tif -p p.tif -sd8 sd8.tif")
    make("aread8", "-p p.tif -ad8 ad8.tif -nc")
    found = TAUDEM_CODES[np.nan_to_num(read("p")).astype(int)]
    codes, where = np.where(good, found, 255), lower(store, read("fel"))
    ours = store.get("flow_direction")
    yield Row("TauDEM", "D8", codes, ours, where, why=of_directions(right, codes))
    yield from along(store, "TauDEM", codes, {"accumulation": read("ad8")})

    make("dinfflowdir", "-fel fel.tif -ang ang.tif -slp slp.tif")
    how = {"method": "dinf", "filled": "filled_border"}
    odd = np.pad(good[1:-1, 1:-1], 1) & ~where & np.isfinite(read("ang"))
    write(folder / "odd.tif", odd.astype(np.float32))
    make("areadinf", "-ang ang.tif -sca sca.tif -nc")
    make("areadinf", "-ang ang.tif -sca through.tif -wg odd.tif -nc")
    store.put("odd", odd.astype(np.float32))
    (sums,) = store.of(tg.flow_accumulation, into="dinf_tau", **how)
    (through,) = store.of(tg.flow_accumulation, weights="odd", into="dinf_odd", **how)
    clean = where & (read("through") == 0) & (through == 0)
    yield Row("TauDEM", "D-infinity accumulation", read("sca") / CELL, sums, clean, 1e-5)

    streams = store.of(tg.flow_accumulation, into="sums_tau")[0] >= THRESHOLD
    write(folder / "src.tif", streams.astype(np.int16))
    store.put("streams_tau", streams.astype(np.uint8))
    names = {"streams": "streams_tau", "layer": "filled_border", "into": "high_tau"}
    high, far = store.of(tg.hand, **names, distance="far_tau", **how)
    down = "-ang ang.tif -fel fel.tif -slp slp.tif -src src.tif"
    make("dinfdistdown", f"{down} -wg odd.tif -dd gone.tif -m ave h")
    for kind, what, ours in (("v", "height", high), ("h", "distance", far)):
        make("dinfdistdown", f"{down} -dd dd.tif -m ave {kind}")
        here = where & (read("gone") == 0) & (far >= 0)
        yield Row("TauDEM", f"average {what} down to streams", read("dd"), ours, here, 1e-4)


def by_richdem(store: Store, folder: Path) -> Iterator[Row]:
    """Fill, D-infinity, and MFD by Freeman and Quinn.

    Flow is divided by our filled heights, and compared where nothing comes through a flat or lake.
    """
    import richdem

    good, right = np.isfinite(store.z), store.get("filled_border")

    def raster(cells: np.ndarray) -> Any:
        kept = np.where(good, cells, -9999).astype(np.float64)
        return richdem.rdarray(kept, no_data=-9999, geotransform=(0, CELL, 0, 0, 0, -CELL))

    filled = np.asarray(richdem.FillDepressions(raster(store.z)))
    yield Row("RichDEM", "fill", filled, right, good)
    odd = np.pad(good[1:-1, 1:-1], 1) & ~lower(store, right)
    store.put("odd_rd", odd.astype(np.float32))
    for method, exponent, what, more in (
        ("Dinf", None, "D-infinity accumulation", {"method": "dinf"}),
        ("Freeman", 1.1, "MFD accumulation (Freeman, 1.1)", {"method": "mfd"}),
        ("Freeman", 4.0, "MFD accumulation (Freeman, 4)", {"method": "mfd", "exponent": 4}),
        ("Quinn", None, "MFD accumulation (Quinn)", {"method": "quinn"}),
    ):
        how = {**more, "filled": "filled_border", "into": "divided_rd"}
        parts = richdem.FlowProportions(raster(right), method=method, exponent=exponent)
        if method == "Dinf":  # its two neighbours have each other's part: they are exchanged
            two = (parts > 0) & (np.count_nonzero(parts > 0, axis=2) == 2)[..., None]
            parts[...] = np.where(two, 1 - parts, parts)
        theirs = np.asarray(richdem.FlowAccumFromProps(parts))
        through = np.asarray(richdem.FlowAccumFromProps(parts, weights=odd.astype(np.float64)))
        (sums,) = store.of(tg.flow_accumulation, **how)
        (ours,) = store.of(tg.flow_accumulation, weights="odd_rd", **how)
        clean = ~odd & good & (through <= 0) & (ours == 0)
        # Its contours across diagonals are 0.354 instead of 2^0.5 / 4.
        tolerance = 5e-3 if method == "Quinn" else 1e-5
        yield Row("RichDEM", what, theirs, sums, inner(sums) & clean, tolerance)


PEERS = {
    "RichDEM": by_richdem,
    "TauDEM": by_taudem,
    "pyflwdir": by_pyflwdir,
    "topotoolbox": by_topotoolbox,
    "pysheds": by_pysheds,
    "whitebox-workflows": by_whitebox,
    "GRASS": by_grass,
}


# -- the table -----------------------------------------------------------------------------------


def write(path: Path, cells: np.ndarray) -> None:
    """Write a GeoTIFF of square cells."""
    rows, cols = cells.shape
    how = {"nodata": -9999} if cells.dtype.kind == "f" else {}
    with rasterio.open(
        path, "w", driver="GTiff", crs="EPSG:32633", height=rows, width=cols, count=1,
        dtype=cells.dtype, transform=rasterio.Affine(CELL, 0, 0, 0, -CELL, CELL * rows), **how
    ) as file:  # fmt: skip
        file.write(np.where(np.isnan(cells), -9999, cells).astype(cells.dtype), 1)


def tell(row: Row) -> tuple[Any, ...]:
    """The cells of a row of the table."""
    theirs, ours = (np.asarray(one).astype(float) for one in (row.theirs, row.ours))
    both = row.where & np.isfinite(theirs) & np.isfinite(ours)
    equal = theirs == ours
    if row.tolerance:
        equal = np.isclose(theirs, ours, rtol=row.tolerance, atol=row.tolerance)
    differing = both & ~equal
    why = ""
    if differing.any():
        gap = np.abs(theirs[differing] - ours[differing]).max()
        why = row.why(differing) if callable(row.why) else f"by at most {gap:.4g}"
    counts = np.count_nonzero(both), np.count_nonzero(both & equal), np.count_nonzero(differing)
    return row.program, row.what, *counts, why


def rasters(paths: list[Path], side: int, generated: int) -> Iterator[tuple[str, np.ndarray]]:
    """Names and heights, NaN where there is none."""
    n = generated
    if n:
        row, col = np.mgrid[:n, :n].astype(float)
        noise = np.random.default_rng(1).random((n, n))
        slope = 3 * row + 2 * col + 40 * np.sin(row / 40) * np.sin(col / 29) / 2 + 1.5 * noise
        yield f"slope {n} x {n}, no flats or depressions", slope.astype(np.float32)
        yield f"fractal {n} x {n}, with lakes", fractal(n, lakes=True, feature_size=256)
    for path in paths:
        with rasterio.open(path) as file:
            cells = file.read(1, masked=True)
        r, c = ((n - min(n, side)) // 2 for n in cells.shape)
        cells = cells[r : r + side, c : c + side]
        yield (
            f"{path.stem} {cells.shape[0]} x {cells.shape[1]}",
            np.asarray(cells.astype(np.float32).filled(np.nan)),
        )


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("rasters", nargs="*", type=Path)
    parser.add_argument("--side", type=int, default=1000)
    parser.add_argument("--generated", type=int, default=500, help="side of what is made; 0: none")


def run(given: argparse.Namespace) -> None:
    """Print a table for each raster."""
    warnings.simplefilter("ignore")
    for name in ("pyflwdir", "topotoolbox", "pysheds", "whitebox-workflows", "richdem-fork"):
        try:
            print(f"{name} {metadata.version(name)}", flush=True)
        except metadata.PackageNotFoundError:
            print(f"{name} is not installed", flush=True)
    for name, z in rasters(given.rasters, given.side, given.generated):
        print(f"\n{name}, {np.isnan(z).sum():,} without a value\n")
        table = Table("program | result | cells | equal | differ | why")
        with tempfile.TemporaryDirectory(dir=given.work) as folder:
            write(Path(folder) / "dem.tif", z)
            store = Store(z, Path(folder))
            for peer, compare in PEERS.items():
                try:
                    for row in compare(store, Path(folder)):
                        table.row(*tell(row))
                except Exception as error:  # of a peer: the others are compared
                    what = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
                    table.row(peer, f"not compared: {what}", "", "", "", "")
