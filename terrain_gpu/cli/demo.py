"""terrain-gpu demo: the main job on the shipped sample."""

from __future__ import annotations

from pathlib import Path

import click

from . import options

SAMPLE = "jacksboro.tif"


@click.command("demo")
@click.argument("folder", default="demo-output", metavar="[FOLDER]")
@options.verbosity_options
@click.pass_context
def command(context: click.Context, folder: str) -> None:
    """Convert the shipped sample DEM, describe it, export it and compare cell for cell."""
    import numpy as np

    from ..raster import Mosaic, gdal_environment
    from . import convert_dataset, export, info

    sample, out = _sample(), Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    store, back = out / "jacksboro.zarr", out / "jacksboro.tif"
    steps = (
        (convert_dataset.command, [str(sample), str(store), "--overwrite"]),
        (info.command, [str(store)]),
        (export.command, [str(store), str(back), "--overwrite"]),
    )
    for step, arguments in steps:
        name = "" if step is convert_dataset.command else "terrain-gpu "
        options.say(f"\n$ {name}{step.name} {' '.join(arguments)}")
        step.main(arguments, standalone_mode=False, parent=context)
    with gdal_environment(), Mosaic([str(sample)]) as first, Mosaic([str(back)]) as second:
        cells = [np.empty(m.grid.shape, m.dtype) for m in (first, second)]
        for mosaic, data in zip((first, second), cells, strict=True):
            mosaic.read(mosaic.grid.window, data)
        same = first.grid == second.grid and np.array_equal(cells[0], cells[1])
    if not same:
        raise click.ClickException(f"{back} differs from {sample}")
    options.say(
        f"\n{back} equals the sample cell for cell ({cells[0].size:,} cells). "
        f"The store opens in Python too:\n  xarray.open_zarr({str(store)!r}, consolidated=False)"
    )


def _sample() -> Path:
    """The sample: inside the installed package, or in the repository."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "data", package.parent / "data"):
        if (folder / SAMPLE).exists():
            return folder / SAMPLE
    raise click.ClickException(f"the sample {SAMPLE} is missing from this installation")
