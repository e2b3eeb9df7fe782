"""terrain-gpu info: describe a store."""

from __future__ import annotations

import click

from ..arguments import is_raster
from ..engine.plan import format_size
from ..errors import without_secrets
from ..facts import JsonObject
from ..grid import wkt_name
from ..plurals import counted
from . import options
from .sections import program_command
from .working import Given, store_option


@program_command("info", short_help="Describe a store")
@click.argument("store", metavar="STORE|RASTER")
@store_option
@options.scratch_option
@options.progress_option
@options.json_option
@options.verbosity_options
def command(store: str, kept: str | None, json_target: str | None) -> None:
    """Describe the grid and the layers of STORE, or of what RASTER becomes in one.

    \b
    terrain-gpu info dem.zarr
    terrain-gpu info dem.tif
    """
    from ..report import Report

    report = Report("info")
    with report.measured(), Given.read_only(store, {"kept": kept}) as opened:
        found = report.result = opened.describe()
        if is_raster(store):
            found["store"] = without_secrets(store)
    report.cells = found["cells"]
    report.valid_cells = max(
        (layer["valid_cells"] or 0 for layer in found["layers"].values()), default=0
    )
    options.write_json(report.to_json(), json_target)
    if json_target != "-":
        options.say(_text(found))


def _range(layer: JsonObject) -> str:
    """The least and the greatest value of a layer, in words."""
    if layer["valid_cells"] == 0:
        return "none"
    return "unknown" if layer["min"] is None else f"{layer['min']} .. {layer['max']}"


def _text(found: JsonObject) -> str:
    a, _, _, _, e, _ = found["transform"]
    west, south, east, north = found["bounds"]
    lines = [
        f"{found['store']}",
        f"  grid      {found['rows']} x {found['cols']} = {counted(found['cells'], 'cell')} of "
        f"{abs(a):.10g} x {abs(e):.10g}",
        f"  crs       {found['crs_code'] or wkt_name(found['crs_wkt']) or 'unknown'}",
        f"  bounds    west {west:.10g}, south {south:.10g}, east {east:.10g}, north {north:.10g}",
    ]
    for name, layer in found["layers"].items():
        factor, offset = layer["scale_factor"], layer["add_offset"]
        scaled = (factor, offset) != (1, 0)
        share = 1 - layer["valid_cells"] / found["cells"] if layer["valid_cells"] is not None else 0
        lines += [
            f"  layer     {name}: {layer['dtype']}"
            + (f" ({layer['units']})" if layer["units"] else "")
            + (f", weight {layer['weight']}" if layer["weight"] else ""),
            f"    values  {_range(layer)}, nodata {layer['nodata']}, "
            f"{share:.1%} of the cells" + (f", stored: x {factor} + {offset}" if scaled else ""),
            f"    blocks  {layer['blocks'][0]} x {layer['blocks'][1]} of {layer['block_size']} "
            f"cells, tiles of {layer['tile']}, {layer['compress'] or 'uncompressed'}",
            f"    disk    {format_size(layer['stored_bytes'] or 0)}, "
            f"{(layer['stored_bytes'] or 0) / layer['raw_bytes']:.3f} x raw",
        ]
        levels = ", ".join(f"1:{factor}" for factor in layer["overviews"])
        if layer["stale_overviews"]:
            levels += f"{'; ' if levels else ''}others are STALE; build them again"
        if levels:
            lines.append(f"    levels  {levels}")
        if layer["stale"]:
            lines.append(
                f"    STALE   {' and '.join(layer['stale'])} changed since; compute it again"
            )
    lines += [f"  other     {name}: {why}" for name, why in found["unreadable"].items()]
    return "\n".join(lines)
