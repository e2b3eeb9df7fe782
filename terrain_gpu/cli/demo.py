"""terrain-gpu demo: the main job on the shipped sample."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import InputError, OutputError, TerrainError
from . import options

SAMPLE = "jacksboro.tif"


@click.command("demo")
@click.argument("folder", default="demo-output", metavar="[FOLDER]")
@options.overwrite_option
@options.verbosity_options
@click.pass_context
def command(context: click.Context, folder: str, overwrite: bool) -> None:
    """Convert the shipped sample DEM, export it again, compute and draw its spanning tree."""
    import numpy as np

    from ..raster import Mosaic, gdal_environment
    from . import compute_mst, convert_dataset, export, info

    sample, out = _sample(), Path(folder)
    store, back = out / "jacksboro.zarr", out / "jacksboro.tif"
    tree, picture = out / "jacksboro-mst.tif", out / "jacksboro-mst.png"
    for path in (back, store, tree, picture):
        if path.exists() and path.samefile(sample):
            raise InputError(f"{path}: is the sample itself; name another FOLDER")
        if path.exists() and not overwrite:
            raise InputError(f"{path}: exists; --overwrite replaces it, or name another FOLDER")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{out}: is or lies below a file; name another FOLDER") from None
    except OSError as error:
        raise OutputError(f"{out}: cannot be made: {error.strerror}") from error
    steps = (
        (convert_dataset.command, [str(sample), str(store), "--overwrite"]),
        (info.command, [str(store)]),
        (export.command, [str(store), str(back), "--overwrite"]),
        (compute_mst.command, [str(store), "-o", str(tree), "--overwrite"]),
    )
    for step, arguments in steps:
        name = "terrain-gpu " if step in (info.command, export.command) else ""
        options.say(f"\n$ {name}{step.name} {' '.join(arguments)}")
        step.main(arguments, standalone_mode=False, parent=context)
    with gdal_environment(), Mosaic([str(sample)]) as first, Mosaic([str(back)]) as second:
        cells = [np.empty(m.grid.shape, m.dtype) for m in (first, second)]
        for mosaic, data in zip((first, second), cells, strict=True):
            mosaic.read(mosaic.grid.window, data)
        same = first.grid == second.grid and np.array_equal(cells[0], cells[1])
    if not same:
        raise TerrainError(f"{back} differs from {sample}")
    options.say(
        f"\n{back} equals the sample cell for cell ({cells[0].size:,} cells)\n"
        f"{tree} holds the tree's edges, D8 codes\n" + _draw(store, picture) + "\n"
        f"The store opens in Python too: xarray.open_zarr({str(store)!r}, consolidated=False)"
    )


def _draw(store: Path, picture: Path) -> str:
    """Draw the tree; what to tell the user about it."""
    from ..d8 import symmetric
    from ..picture import draw_tree
    from ..store import TileStore

    opened = TileStore.open(store)
    heights = opened.layer("elevation").read_window(*opened.grid.window)
    edges = symmetric(opened.layer("mst").read_ring(opened.grid.window))
    try:
        draw_tree(picture, heights, edges, opened.grid)
    except ImportError:
        return "no picture: pip install matplotlib (the extra `plot`) first"
    return f"{picture} shows it over a hillshade"


def _sample() -> Path:
    """The sample: inside the installed package, or in the repository."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "data", package.parent / "data"):
        if (folder / SAMPLE).exists():
            return folder / SAMPLE
    raise TerrainError(f"the sample {SAMPLE} is missing from this installation")
