"""terrain-gpu demo: run the main commands on the bundled sample."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import InputError, OutputError, TerrainError
from ..tools import tool_of
from . import options
from .sections import program_command

SAMPLE = "jacksboro.tif"
FROM, TO = "-84.12,36.48", "-84.37,36.70"
"""The ends of the path, in the valley and in the mountains."""


@program_command("demo", short_help="Run the main commands on the bundled sample")
@click.argument("folder", default="demo-output", metavar="[FOLDER]")
@options.overwrite_option
@options.verbosity_options
@click.pass_context
def command(context: click.Context, folder: str, overwrite: bool) -> None:
    """Convert and export the bundled sample DEM; compute its spanning tree and a walk across it."""
    import numpy as np

    from ..io.gdal import gdal_environment
    from ..io.mosaic import Mosaic
    from ..store.swap import refuse_inside
    from . import compute_sssp, convert_dataset, export, info
    from .tools import command_of_tool

    sample, out = _sample(), Path(folder)
    store, back = out / "jacksboro.zarr", out / "jacksboro.tif"
    tree, picture = out / "jacksboro-mst.tif", out / "jacksboro-mst.png"
    walk, route = out / "jacksboro-walk.tif", out / "jacksboro-path.geojson"
    walk_picture = out / "jacksboro-walk.png"
    for path in (back, store, tree, picture, walk, route, walk_picture):
        if path.exists() and path.samefile(sample):
            raise InputError(f"{path}: is the sample itself; name another FOLDER")
        if path.exists() and not overwrite:
            raise InputError(f"{path}: exists; --overwrite replaces it, or name another FOLDER")
    refuse_inside(store)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{out}: is a file or inside one; name another FOLDER") from None
    except OSError as error:
        raise OutputError(f"{out}: cannot be created: {error.strerror}") from error
    steps = (
        (convert_dataset.command, [str(sample), str(store), "--overwrite"]),
        (info.command, [str(store)]),
        (export.command, [str(store), str(back), "--overwrite"]),
        (command_of_tool(tool_of("compute-mst")), [str(store), "-o", str(tree), "--overwrite"]),
        (
            compute_sssp.command,
            [
                *(str(store), f"--source={FROM}", "--cost", "tobler", "-o", str(walk)),
                *(f"--target={TO}", "--path", str(route), "--overwrite"),
            ],
        ),
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
        f"{tree} holds the edges of the spanning tree as D8 codes\n"
        f"{walk} holds walking times in seconds, {route} the path\n"
        + _draw(store, picture, walk_picture)
        + "\n"
        f"The store opens in Python too: xarray.open_zarr({str(store)!r}, consolidated=False)"
    )


def _draw(store: Path, tree: Path, walk: Path) -> str:
    """Draw the tree and the walk; return what to tell the user."""
    from ..grid import cell_centres
    from ..grid.neighbours import symmetric
    from ..io.places import from_xy
    from ..paths.relax.trace import trace_path
    from ..store import TileStore
    from .picture import draw_tree, draw_walk

    opened = TileStore.open(store)
    heights = opened.layer("elevation").read_window(*opened.grid.window)
    edges = symmetric(opened.layer("mst").read_ring(opened.grid.window))
    try:
        draw_tree(tree, heights, edges, opened.grid)
        links = opened.layer("backlink")
        end = from_xy(opened.grid, [tuple(map(float, TO.split(",")))])
        cells = trace_path(links.read_block, links.blocks, int(end.rows[0]), int(end.cols[0]))
        assert cells is not None
        seconds = opened.layer("distance").read_window(*opened.grid.window)
        draw_walk(walk, heights, seconds, cell_centres(opened.grid, cells), opened.grid)
    except ImportError:
        return "no pictures: they need matplotlib (the extra `plot`)"
    return f"{tree} and {walk} show them on a hillshade"


def _sample() -> Path:
    """Return the sample, from the installed package or from the repository."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "data", package.parent / "data"):
        if (folder / SAMPLE).exists():
            return folder / SAMPLE
    raise TerrainError(f"the sample {SAMPLE} is missing from this installation")
