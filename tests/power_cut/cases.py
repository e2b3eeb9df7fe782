"""The commands that power cuts hit: what they start from, how they run, what they leave."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyogrio
import rasterio
from rasterio.transform import from_origin

from terrain_gpu import (
    TerrainError,
    TileStore,
    accumulate,
    breach,
    build_index,
    convert_dataset,
    create_layer,
    export_layer,
    extract_network,
    label_components,
    minimum_spanning_tree,
    shortest_paths,
)
from terrain_gpu.io.places import from_rowcol
from terrain_gpu.paths.cost_distance import operation as problem
from terrain_gpu.paths.cost_distance.output import write_paths
from terrain_gpu.paths.distance_index.files import Index
from terrain_gpu.paths.relax import relaxation as relax
from terrain_gpu.store import writer

SHAPE = 150, 200
BLOCK = 64
STORE = "s.zarr"
FOLDERS = {"index": "distance_index"}
SUFFIXES = (".aux.xml",)
"""Of files that GDAL leaves when they are read."""

Found = tuple[str, str]
"""("is", digests), ("absent", "") or ("refused", message)."""


@dataclass(frozen=True)
class Case:
    """A command.

    Attributes
    ----------
    run
        Called with the folder of the run, that of the inputs, and `resume` and `overwrite`.
    prepare
        Makes what exists before, in the folder of the run.
    layers, files
        What to look at: layers of the store, files and "index".
    results
        Those of them that the run makes; it must leave the others as they are.
    overwrite
        Whether the command replaces something.
    """

    run: Callable[..., None]
    prepare: Callable[[Path, Path], None]
    results: tuple[str, ...]
    others: tuple[str, ...] = ()
    overwrite: bool = False
    resumes: bool = True

    def look(self, root: Path) -> dict[str, Found]:
        """What is there under its name."""
        return {name: _look(root, name) for name in (*self.results, *self.others)}


def run(name: str, root: Path, inputs: Path, resume: bool = False, overwrite: bool = False) -> None:
    """Run the command of a case; at module level, so that other processes find it."""
    case = CASES[name]
    case.run(root, inputs, resume=resume, overwrite=overwrite or case.overwrite)


# -- what is there -------------------------------------------------------------------------


def _look(root: Path, name: str) -> Found:
    try:
        parts = _content(root, name)
        return "is", " ".join(hashlib.sha256(part).hexdigest()[:16] for part in parts)
    except FileNotFoundError as error:
        if isinstance(error, TerrainError):
            raise
        return "absent", ""
    except TerrainError as error:
        return "refused", str(error)


def _content(root: Path, name: str) -> tuple[bytes, ...]:
    """Cells, and what is recorded of them; for files, both in one."""
    path = root / name
    if path.suffix == ".gpkg":
        return (_features(path),)
    if path.suffix == ".tif":
        return (_cells_of_tif(path),)
    if path.suffix:
        return (path.read_bytes(),)
    store = TileStore.open(root / STORE)
    if name == "index":
        return (_content_of_index(store),)
    layer = store.layer(name)
    cells = layer.read_window(*layer.grid.window)
    facts = {key: value for key, value in layer.info.items() if key != "settings"}
    kind = f"{cells.dtype} {cells.shape} {layer.nodata} {json.dumps(facts, sort_keys=True)}"
    return cells.tobytes(), kind.encode()


def _content_of_index(store: TileStore) -> bytes:
    index = Index.open(store, store.layer("elevation").blocks)
    if index is None:
        raise FileNotFoundError
    entries = [row.tobytes() for at in index.blocks.ids() for row in index.rows(at)]
    return json.dumps(index.settings["cost"]).encode() + b"".join(entries)


def _features(path: Path) -> bytes:
    """Features of a GeoPackage; the file itself also holds the time it was written."""
    if not path.exists():
        raise FileNotFoundError
    meta, _, geometry, fields = pyogrio.raw.read(path)
    parts = [repr(meta["fields"].tolist()), *map(repr, (f.tolist() for f in fields))]
    return "".join(parts).encode() + b"".join(geometry)


def _cells_of_tif(path: Path) -> bytes:
    if not path.exists():
        raise FileNotFoundError
    with rasterio.open(path) as data:
        return repr(data.profile).encode() + data.read(1).tobytes()


# -- inputs --------------------------------------------------------------------------------


def make_inputs(folder: Path) -> None:
    """Rasters, and a store of heights and frictions."""
    _write_tif(folder / "heights.tif", _terrain(1))
    _write_tif(folder / "old.tif", _terrain(2))
    _write_tif(folder / "friction.tif", 1 + _terrain(3) % 7)
    _write_tif(folder / "small.tif", _terrain(4)[:100, :130])
    for layer, source in (("elevation", "heights"), ("friction", "friction")):
        convert(folder, folder, source, layer=layer)


def _terrain(seed: int) -> np.ndarray:
    rough = np.random.default_rng(seed).integers(0, 300, SHAPE)
    row, col = np.indices(SHAPE)
    data = (rough + 20 * np.abs(row - 70) + 10 * np.abs(col - 90)).astype("int16")
    data[BLOCK : 2 * BLOCK, BLOCK : 2 * BLOCK] = -32768  # a block without a shard
    data[20:40, 100:140] = -32768
    return data


def _write_tif(path: Path, data: np.ndarray) -> None:
    place = {"crs": "EPSG:32633", "transform": from_origin(500_000, 5_000_000, 10, 10)}
    rows, cols = data.shape
    how = {"driver": "GTiff", "count": 1, "dtype": data.dtype, "nodata": -32768, "tiled": True}
    with rasterio.open(path, "w", height=rows, width=cols, **how, **place) as out:
        out.write(data, 1)


def nothing(root: Path, inputs: Path) -> None:
    """Start from an empty folder."""


def heights(root: Path, inputs: Path) -> None:
    """Start from a store of heights and frictions."""
    shutil.copytree(inputs / STORE, root / STORE)


def after(*steps: Callable[..., Any], unfinished: int = 0) -> Callable[[Path, Path], None]:
    """Start from what runs leave; the last was interrupted after this many progress reports."""

    def prepare(root: Path, inputs: Path) -> None:
        heights(root, inputs)
        for step in steps:
            if unfinished and step is steps[-1]:
                with contextlib.suppress(KeyboardInterrupt):
                    step(root, inputs, progress=_stop_after(unfinished))
                assert list((root / STORE).glob(".incomplete/*")), "nothing was left unfinished"
            else:
                step(root, inputs)

    return prepare


def _stop_after(calls: int) -> Callable[[int, int], None]:
    left = [calls]

    def progress(cells: int, total: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return progress


# -- commands ------------------------------------------------------------------------------


def convert(root: Path, inputs: Path, source: str = "heights", **more: Any) -> None:
    convert_dataset(
        inputs / f"{source}.tif", root / STORE, **{"block_size": BLOCK, "threads": 1, **more}
    )


def convert_friction(root: Path, inputs: Path, **more: Any) -> None:
    convert(root, inputs, "friction", layer="second", compress="zstd", **more)


def convert_second(root: Path, inputs: Path, **more: Any) -> None:
    convert(root, inputs, "heights", layer="second", **more)


def convert_old_second(root: Path, inputs: Path, **more: Any) -> None:
    convert(root, inputs, "old", layer="second", **more)


def convert_small(root: Path, inputs: Path, **more: Any) -> None:
    """Another grid: the whole store is replaced."""
    convert(root, inputs, "small", **more)


def only_old(root: Path, inputs: Path) -> None:
    convert(root, inputs, "old")


def by_hand(root: Path, inputs: Path, salt: int = 1, **more: Any) -> None:
    """Blocks written twice, the second time otherwise; some of them all nodata."""
    grid = TileStore.open(root / STORE).grid
    data = np.random.default_rng(salt).random(SHAPE).astype("float32")
    data[:BLOCK, :BLOCK] = np.nan
    settings = {"salt": salt}
    nodata = float("nan")
    with create_layer(
        root / STORE, "noise", grid, "float32", nodata=nodata, block_size=BLOCK,
        settings=settings, **more,
    ) as writer:  # fmt: skip
        for at in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(*at)
            if not writer.done[at]:
                writer.write_block(*at, -data[r0:r1, c0:c1])
        for at in writer.blocks.ids():
            r0, r1, c0, c1 = writer.block_window(*at)
            if not writer.finished and sum(at) % 2:
                writer.write_block(*at, data[r0:r1, c0:c1])
        writer.commit({"result": {"salt": salt}})


def other_by_hand(root: Path, inputs: Path, **more: Any) -> None:
    by_hand(root, inputs, salt=2, **more)


def tree(root: Path, inputs: Path, **more: Any) -> None:
    minimum_spanning_tree(root / STORE, **{"threads": 1, "backend": "cpu", **more})


def contracted(root: Path, inputs: Path, **more: Any) -> None:
    tree(root, inputs, method="contract", **more)


def other_tree(root: Path, inputs: Path, **more: Any) -> None:
    tree(root, inputs, weight="absdiff", **more)


@contextlib.contextmanager
def little_memory(stop: bool = False) -> Iterator[None]:
    """Three fields fit, and all are saved after every fourth visit."""
    plan_paths, visit, count = problem.plan_paths, relax.Relaxation._visit, [0]

    def small(*arguments: Any, **more: Any) -> Any:
        return replace(plan_paths(*arguments, **more), buffers=3)

    def visit_and_save(self: Any, *arguments: Any) -> None:
        visit(self, *arguments)
        count[0] += 1
        if count[0] % 4 == 0:
            self.save_all()
        if stop and count[0] == 15:
            raise KeyboardInterrupt

    with (
        mock.patch.object(problem, "plan_paths", small),
        mock.patch.object(relax.Relaxation, "_visit", visit_and_save),
    ):
        yield


def distances(root: Path, inputs: Path, **more: Any) -> None:
    """Distances with backlinks and allocation; fields are spilled."""
    stop = more.pop("progress", None) is not None
    how = {"backlink": True, "allocation": True, "threads": 1, "backend": "cpu", **more}
    sources = how.pop("sources", [(10, 10), (140, 20), (70, 190)])
    with little_memory(stop):
        shortest_paths(root / STORE, sources, **how)


def other_distances(root: Path, inputs: Path, **more: Any) -> None:
    distances(root, inputs, sources=[(5, 150), (100, 10)], **more)


def real_distances(root: Path, inputs: Path, **more: Any) -> None:
    """Real distances alone: no backlinks that may happen not to fit them."""
    how = {"cost": "friction", "friction": "friction", "backlink": False, "allocation": False}
    distances(root, inputs, **how, **more)


def index(root: Path, inputs: Path, **more: Any) -> None:
    more.pop("resume", None)
    build_index(root / STORE, **{"threads": 1, "backend": "cpu", **more})


def other_index(root: Path, inputs: Path, **more: Any) -> None:
    index(root, inputs, connectivity=4, **more)


def by_index(root: Path, inputs: Path, **more: Any) -> None:
    shortest_paths(
        root / STORE, [(10, 10)], method="index", build_index=True, threads=1, backend="cpu", **more
    )


def components(root: Path, inputs: Path, level: int = 900, **more: Any) -> None:
    where, table = f"elevation > {level}", root / "table.csv"
    # The table, made before the layer, is no reason to stop.
    more["overwrite"] = more.get("overwrite") or (more.get("resume", False) and table.exists())
    label_components(root / STORE, where, table=table, **{"threads": 1, **more})


def other_components(root: Path, inputs: Path, **more: Any) -> None:
    components(root, inputs, level=600, **more)


def drainage(root: Path, inputs: Path, **more: Any) -> None:
    accumulate(root / STORE, directions="codes", **{"threads": 1, **more})


def other_drainage(root: Path, inputs: Path, **more: Any) -> None:
    outlets = from_rowcol(TileStore.open(root / STORE).grid, [(10, 10), (140, 190)])
    accumulate(root / STORE, outlets, directions="codes", **{"threads": 1, **more})


def breached(root: Path, inputs: Path, **more: Any) -> None:
    """The ledger says that files of a first pass are there, which are not synced."""
    breach(root / STORE, max_distance=5, into="breached", **{"threads": 1, **more})


def _network(suffix: str, length: float) -> Callable[..., None]:
    def command(root: Path, inputs: Path, *, overwrite: bool = False, **more: Any) -> None:
        target = root / f"lines{suffix}"
        extract_network(root / STORE, target, min_length=length, threads=1, overwrite=overwrite)

    return command


def _export(length: int = 0, **how: Any) -> Callable[..., None]:
    def command(root: Path, inputs: Path, *, overwrite: bool = False, **more: Any) -> None:
        layer = "friction" if length else "elevation"
        target = root / "out.tif"
        export_layer(root / STORE, target, layer=layer, threads=1, overwrite=overwrite, **how)

    return command


def _paths(suffix: str, row: int) -> Callable[..., None]:
    def command(root: Path, inputs: Path, *, overwrite: bool = False, **more: Any) -> None:
        grid = TileStore.open(root / STORE).grid
        sources, targets = from_rowcol(grid, [(10, 10)]), from_rowcol(grid, [(row, 190)])
        with rasterio.open(inputs / "heights.tif") as data:
            cells = data.read(1)
        found = shortest_paths(
            cells, sources, nodata=-32768, backlink=True, threads=1, backend="cpu"
        )
        lines = found.paths(targets, sources)
        write_paths(root / f"paths{suffix}", lines, grid, overwrite=overwrite)

    return command


def at_once(command: Callable[..., None]) -> Callable[..., None]:
    """Shards synced one by one, as those of blocks of ordinary size are."""

    def run(root: Path, inputs: Path, **more: Any) -> None:
        usual, writer.SMALL = writer.SMALL, 0
        try:
            command(root, inputs, **more)
        finally:
            writer.SMALL = usual

    return run


_OTHERS = ("elevation", "friction")
_PATHS = ("distance", "backlink", "allocation")
_FLOW = ("accumulation", "codes")

CASES = {
    "convert-new": Case(convert, nothing, ("elevation",)),
    "convert-further": Case(convert_friction, heights, ("second",), _OTHERS),
    "convert-replace": Case(
        convert_second, after(convert_old_second), ("second",), _OTHERS, overwrite=True
    ),
    "convert-restart": Case(
        convert_second,
        after(convert_old_second, unfinished=1),
        ("second",),
        _OTHERS,
        overwrite=True,
    ),
    "convert-store": Case(convert_small, only_old, ("elevation",), overwrite=True),
    "layer-new": Case(by_hand, heights, ("noise",), _OTHERS),
    "layer-replace": Case(by_hand, after(other_by_hand), ("noise",), _OTHERS, overwrite=True),
    "layer-large-blocks": Case(
        at_once(by_hand), after(at_once(other_by_hand)), ("noise",), _OTHERS, overwrite=True
    ),
    "mst-large-blocks": Case(
        at_once(tree), after(at_once(other_tree), unfinished=8), ("mst",), _OTHERS, overwrite=True
    ),
    "mst-new": Case(tree, heights, ("mst",), _OTHERS),
    "mst-contract": Case(contracted, heights, ("mst",), _OTHERS),
    "mst-replace": Case(tree, after(other_tree), ("mst",), _OTHERS, overwrite=True),
    "mst-restart": Case(tree, after(other_tree, unfinished=8), ("mst",), _OTHERS, overwrite=True),
    "sssp-new": Case(distances, heights, _PATHS, _OTHERS),
    "sssp-real": Case(real_distances, heights, ("distance",), _OTHERS),
    "sssp-replace": Case(distances, after(other_distances), _PATHS, _OTHERS, overwrite=True),
    "sssp-restart": Case(
        distances, after(other_distances, unfinished=8), _PATHS, _OTHERS, overwrite=True
    ),
    "index-new": Case(index, heights, ("index",), _OTHERS),
    "index-replace": Case(index, after(other_index), ("index",), _OTHERS, overwrite=True),
    "index-restart": Case(
        index, after(other_index, unfinished=8), ("index",), _OTHERS, overwrite=True
    ),
    "index-sssp": Case(by_index, heights, ("index", "distance"), _OTHERS),
    "components-new": Case(components, heights, ("components", "table.csv"), _OTHERS),
    "components-replace": Case(
        components, after(other_components), ("components", "table.csv"), _OTHERS, overwrite=True
    ),
    "components-restart": Case(
        components,
        after(other_components, unfinished=18),
        ("components", "table.csv"),
        _OTHERS,
        overwrite=True,
    ),
    "breach-new": Case(breached, heights, ("breached",), _OTHERS),
    "accumulate-new": Case(drainage, after(tree), _FLOW, (*_OTHERS, "mst")),
    "accumulate-replace": Case(
        drainage, after(tree, other_drainage), _FLOW, (*_OTHERS, "mst"), overwrite=True
    ),
    "network-geojson": Case(
        _network(".geojson", 200),
        after(tree, _network(".geojson", 500)),
        ("lines.geojson",),
        (*_OTHERS, "mst"),
        overwrite=True,
        resumes=False,
    ),
    "network-gpkg": Case(
        _network(".gpkg", 200),
        after(tree, _network(".gpkg", 500)),
        ("lines.gpkg",),
        (*_OTHERS, "mst"),
        overwrite=True,
        resumes=False,
    ),
    "export-tif": Case(
        _export(compress="deflate"),
        after(_export(1)),
        ("out.tif",),
        _OTHERS,
        overwrite=True,
        resumes=False,
    ),
    "export-cog": Case(
        _export(cog=True), after(_export(1)), ("out.tif",), _OTHERS, overwrite=True, resumes=False
    ),
    "paths-geojson": Case(
        _paths(".geojson", 140),
        after(_paths(".geojson", 60)),
        ("paths.geojson",),
        _OTHERS,
        overwrite=True,
        resumes=False,
    ),
    "paths-gpkg": Case(
        _paths(".gpkg", 140),
        after(_paths(".gpkg", 60)),
        ("paths.gpkg",),
        _OTHERS,
        overwrite=True,
        resumes=False,
    ),
}
