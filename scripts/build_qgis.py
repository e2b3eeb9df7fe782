"""Describe the commands for the QGIS plugin, and build its zip.

`python scripts/build_qgis.py` writes `qgis/terrain_gpu/algorithms.json` from the click commands,
and `dist/terrain_gpu_processing.zip`, which QGIS installs with "Install from ZIP".
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from terrain_gpu import __version__
from terrain_gpu.cli.main import group
from terrain_gpu.cli.sections import commands_by_group
from terrain_gpu.paths.cost.formula.presets import PRESETS
from terrain_gpu.paths.cost.models import MODELS
from terrain_gpu.tool import as_option, described, spelled
from terrain_gpu.tools import TOOLS, tool_of

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "qgis" / "terrain_gpu"
DESCRIPTION = PLUGIN / "algorithms.json"
FOLDER = "terrain_gpu_processing"
"""Of the plugin in QGIS: not the name of the library, which the same Python may have, too."""

LEFT_OUT = {
    "convert-dataset": "writes a store; algorithms take the raster itself",
    "build-index": "for many runs over one store",
    "query-index": "for many runs over one store",
    "info": "tells about a store",
    "layers": "manages the layers of a store",
    "overviews": "builds overviews of a store; QGIS builds its own of rasters",
    "export": "writes a layer of a store; algorithms write rasters themselves",
    "verify": "checks a store; algorithms verify their results themselves",
    "plan": "tells what a run takes, and runs nothing",
    "map": "shows a store in the browser; QGIS is a map itself",
    "compile": "for whoever installs the program",
    "demo": "for a terminal",
    "help": "for a terminal",
}
"""Commands that are no algorithms, and why."""
GROUPS = {
    title: [name for name in names if name not in LEFT_OUT]
    for title, names in commands_by_group().items()
}

NO_PARAMETERS = {
    "--workers", "--scheduler", "--json", "--verbose", "--quiet", "--version", "--overwrite",
    "--progress", "--resume", "--build-index", "--statistic",
}  # fmt: skip
"""Options for terminals, programs and stores."""

LAYERS = "NAME", "LAYER", "[DISTANCE DISTANCE...]"
"""What names layers of stores."""

ALWAYS = ["--overwrite", "--progress", "json"]
"""Options of every run: QGIS itself asks whether a file may be replaced."""

ADVANCED = {
    "--connectivity", "--wrap", "--method", "--dtype", "--outside", "--on-nodata", "--snap",
    "--target-id-field", "--cost-field", "--max-cost-field", "--store", "--scratch",
    "--memory-limit", "--threads",
    "--backend", "--device", "--gpu-memory-limit", "--verify", "--inner-voids", "--parameter",
    "--vertical-factor", "--no-corner-cutting", "--exponent", "--base", "--cog", "--compress",
    "--compress-layers",
}  # fmt: skip
BASIC = {("flow-accumulation", "--method"), ("hand", "--method"), ("watershed", "--snap")}
FEATURES = {
    "--sources", "--targets", "--outlets", "--pour-points", "--burn", "--streams", "--features",
    "--keep", "--names", "--barriers",
}  # fmt: skip
"""Options that name a vector file to read."""

TEXTS = {
    "N|AREA", "AREA|N", "N|AREA|FIELD", "CONDITION", "EXPRESSION", "SIZE", "VALUE|nodata",
    "A,B,...", "DISTANCE", "LENGTH", "N[,N...]|all", "NAME=VALUE", "COST|PERCENT%",
    "delaunay|all|TABLE.csv",
}  # fmt: skip
EXPRESSION = "Of the cells, which are called elevation, such as where(elevation > 500, 1, 0)."
REPLACED = {
    "a layer from others": "a raster from another",
    r'It becomes the layer "mst"\.': "",
    r"Directions to other outlets need another name[^.]*\.": "",
    r"Backlinks and allocation go to the layers of these names\.": "",
    r'The cells of a raster are the layer "elevation"\.': "",
    r"Names with a minus sign are in double quotes\.": "",
    "A raster of it holds": "The raster holds",
    "The layer (has|holds)": r"The raster \1",
    r" \((?:terrain-gpu breach|flow-direction --outlets|compute-mst[^)]*|fill)\)": "",
    "; or (?:sum a layer of weights, such as rain|weights times areas)": "",
    r", the cells of another layer \(--streams\),": "",
    ", or from layers of distances": "",
    r"Of two or more layers of distances.*": "",
    "An expression has layers": "Expressions have the name elevation",
    "Condition on layers of the store": "Condition on the cells, which are called elevation",
    r"not \(slope > 30\)": "not (elevation == 50)",
    "units of the layer": "units of the raster",
    "Cell type of the layer": "Cell type of the raster",
    "as in the store": "as computed",
    "a number, a layer, or a raster on the same grid": "a number, or an aligned raster",
    "Layer of frictions, 0 or more, or an aligned raster": "Aligned raster of frictions, 0 or more",
    r" \(name --layer itself if that holds them\)": "",
    ", or by the name of a layer without this option": "",
    "Layer whose non-zero cells are impassable; or an aligned raster, or a vector file,":
        "Non-zero cells of an aligned raster, or a vector file:",
    r", with this (?:start )?cost \(default 0\)": "",
    r"Also write the first layer as a raster\.": "",
    r" \(FILE:LAYER for one layer of several\)": "",
    r" Repeatable\.": "",
    "; --distance is the downstream flow length then": "",
    "Keep the store that RASTER is converted to, with all results; the next run finds it there":
        "Keep what was computed in this folder, as NAME.zarr, also when the run is cancelled: the "
        "next run finds it there",
    "a temporary one, in --scratch or beside the output": "nothing is kept",
    "of a run over object storage, and for the temporary store of a raster": "of the run",
    "TERRAIN_GPU_SCRATCH; or the system's folder for temporary files, and the folder of the output":
        "that of the output",
}  # fmt: skip
"""Patterns in helps, and what the plugin says instead."""

STYLES = {
    ("compute-sssp", "BACKLINK"): "directions",
    ("compute-sssp", "ALLOCATION"): "labels",
    ("streams", "LINES"): "streams",
}
"""The .qml of an output."""


def description() -> dict[str, Any]:
    """All that the plugin knows about the commands."""
    grouped = {name: title for title, names in GROUPS.items() for name in names}
    if group.commands.keys() != grouped.keys() | LEFT_OUT.keys():
        different = group.commands.keys() ^ (grouped.keys() | LEFT_OUT.keys())
        raise SystemExit(f"put these in GROUPS or in LEFT_OUT: {', '.join(sorted(different))}")
    used: set[str] = set()
    algorithms = [algorithm(group.commands[name], title, used) for name, title in grouped.items()]
    if unused := REPLACED.keys() - used:
        raise SystemExit(f"no help has these any more: {', '.join(unused)}")
    return {
        "version": __version__,
        "always": ALWAYS,
        "algorithms": algorithms,
        "left_out": LEFT_OUT,
    }


def algorithm(command: click.Command, title: str, used: set[str]) -> dict[str, Any]:
    """One command of a group with this title."""
    name = str(command.name)
    paragraphs = re.split(r"\n\n", command.help or "")
    texts = [" ".join(p.split()) for p in paragraphs if not p.lstrip().startswith("\b")]
    usual = name.replace("-", " ").capitalize()
    called = (tool_of(name).title if name in TOOLS else None) or usual
    parameters = [one for param in command.params for one in parameters_of(param, name, called)]
    if name in TOOLS:
        tool = tool_of(name)
        told = spelled(described(tool)[""], as_option)
        texts = [" ".join(text.split()) for text in told.split("\n\n")]
    if name == "terrain-indices":  # -o writes one of three layers
        parameters.insert(1, {
            "name": "INDEX", "label": "Index", "kind": "choice", "default": "twi",
            "choices": ["twi", "spi", "ls"], "prefix": "--",
            "help": "Wetness ln(a / tan b), stream power a tan b, or the length-slope factor.",
        })  # fmt: skip
    if any("--resume" in param.opts for param in command.params):
        (store,) = (one for one in parameters if one["name"] == "STORE")
        store["more"] = ["--resume"]  # with --overwrite: finished work is kept, files are replaced
    outputs = [one for one in parameters if "_out" in one["kind"]]
    for one in outputs:
        if one["kind"] == "raster_out" and len(outputs) == 1:
            one.pop("optional")
        one["usual"] = one["name"] == "OUTPUT"
        style = STYLES.get((name, one["name"]))
        if name in TOOLS and one["name"] == "OUTPUT":
            style = tool_of(name).style
        if style:
            one["style"] = style
    usual_last = sorted(parameters, key=lambda one: not one.get("advanced"))
    labels = {one["option"]: one["label"] for one in usual_last if "option" in one}
    for one in parameters:
        if "help" in one:
            one["help"] = for_qgis(one["help"], labels, used)
    order = sorted(parameters, key=lambda one: ("_out" in one["kind"], one.get("advanced", False)))
    return {
        "command": name,
        "title": called,
        "group": title,
        "help": [told for text in texts if (told := for_qgis(text, labels, used))],
        "parameters": order,
    }


def for_qgis(text: str, labels: dict[str, str], used: set[str]) -> str:
    """A text of the command line without stores; it names parameters as QGIS does.

    Parameters
    ----------
    labels
        What the parameter of an option is called.
    used
        Gets the patterns of REPLACED that are found.
    """
    for pattern, replacement in REPLACED.items():
        text, count = re.subn(pattern, replacement, text)
        used |= {pattern} if count else set()
    sentences = re.split(r"(?<=[.\]]) +(?=[A-Z\[])", text)
    options = r"--[a-z]+(?:-[a-z]+)*"
    kept = [s for s in sentences if set(re.findall(options, s)) <= labels.keys()]
    text = re.sub(options, lambda found: f'"{labels[found[0]]}"', " ".join(kept).strip())
    return re.sub(r"^Also (\w)", lambda found: found[1].upper(), text)


def name_in_qgis(option: str) -> str:
    """The name of an option's parameter."""
    return option.lstrip("-").replace("-", "_").upper()


def parameters_of(param: click.Parameter, command: str, title: str) -> Iterator[dict[str, Any]]:
    """What QGIS asks for an option or argument: none, one, or alternatives."""
    option = max(param.opts, key=len)
    argument = isinstance(param, click.Argument)
    metavar = param.metavar or param.type.name
    if option in NO_PARAMETERS or metavar in LAYERS or option.endswith("-rowcol"):
        return
    if getattr(param, "hidden", False):
        return
    made: dict[str, Any] = {"name": name_in_qgis(option), "label": ""}
    if argument and option == "path":
        made["name"] = "OUTPUT"
    made["label"] = made["name"].replace("_", " ").capitalize()
    if not argument:
        made["option"] = option
        made["help"] = getattr(param, "help", None) or ""
    elif option == "expression":
        made["help"] = EXPRESSION
    if not param.required:
        made["optional"] = True
    if former := getattr(param, "formerly", None):
        made["formerly"] = name_in_qgis(former)
    if option in ADVANCED and (command, option) not in BASIC:
        made["advanced"] = True
    if isinstance(param.default, int | float | str) and not getattr(param, "is_flag", False):
        made["default"] = param.default
    if argument and option == "store":
        yield made | {"name": "INPUT", "label": "Raster", "kind": "raster_in"}
    elif option == "--cost":
        models = [*MODELS, *PRESETS]
        found = {"choices": ["default", *models], "default": "default"}
        yield made | {"kind": "choice", **found}
        formula = {"name": "COST_FORMULA", "label": "Cost as a formula", "kind": "text"}
        yield {**made, **formula, "default": None, "advanced": True}
    elif metavar.startswith("DEPTH|"):
        made["optional"] = True
        yield made | {"kind": "number", "min": 0}
        as_raster = {"name": f"{made['name']}_RASTER", "label": f"{made['label']}, as a raster"}
        yield made | as_raster | {"kind": "raster_in"}
    elif option in FEATURES:
        if "raster" in made["help"]:
            made["optional"] = True
            more = {"kind": "raster_in", "advanced": True}
            more |= {"name": f"{made['name']}_RASTER", "label": f"{made['label']}, as a raster"}
            yield made | more
        yield made | {"kind": "vector_in"}
    else:
        yield made | kind_of(param, option, metavar, title)


def kind_of(param: click.Parameter, option: str, metavar: str, title: str) -> dict[str, Any]:
    """The kind of parameter, with what belongs to it."""
    kind, text = param.type, str(getattr(param, "help", ""))
    if metavar.endswith((".tif", ".tif|.zarr")):
        called = title if metavar.startswith("RASTER") else "Distance"
        return {"kind": "raster_out"} | ({"label": called} if option == "--output" else {})
    if metavar in ("TABLE", "TABLE.csv"):
        return {"kind": "file_in"}
    if metavar.startswith("TABLE."):
        return {"kind": "table_out", "label": "Table"}
    if ".gpkg" in metavar or (metavar == "FILE" and ".gpkg" in text):
        own = "" if option in ("--output", "path") else f" ({option.lstrip('-')})"
        return {"kind": "vector_out", "label": f"{title}{own}"}
    if getattr(param, "is_flag", False):
        return {"kind": "flag"}
    if isinstance(kind, click.Choice):
        choices = [str(choice) for choice in kind.choices]
        if isinstance(param.default, int | str):
            return {"kind": "choice", "choices": choices, "default": str(param.default)}
        return {"kind": "choice", "choices": ["default", *choices], "default": "default"}
    if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        number = "integer" if isinstance(kind, click.types.IntParamType) else "number"
        bounds = {"min": getattr(kind, "min", None), "max": getattr(kind, "max", None)}
        return {"kind": number} | {k: bound for k, bound in bounds.items() if bound is not None}
    if metavar.startswith("X,Y"):
        return {"kind": "point"}
    if metavar == "LAYER|RASTER":
        return {"kind": "raster_in"}
    if metavar in ("STORE", "FOLDER"):
        return {"kind": metavar.lower()}
    if metavar == "FIELD":
        return {"kind": "field"}
    if metavar in TEXTS:
        return {"kind": "text"} | ({"repeated": True} if getattr(param, "multiple", 0) else {})
    raise SystemExit(f"{option} {metavar}: say in parameters_of what QGIS should ask for it")


def text() -> str:
    """The description as it is stored."""
    return json.dumps(description(), indent=1, ensure_ascii=False) + "\n"


def build(target: Path) -> None:
    """Write the zip, the same bytes from the same files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as made:
        for file in [*sorted(PLUGIN.rglob("*")), ROOT / "LICENSE"]:
            if file.is_file() and "__pycache__" not in file.parts:
                name = file.relative_to(PLUGIN) if PLUGIN in file.parents else file.name
                made.writestr(
                    zipfile.ZipInfo(f"{FOLDER}/{name}"), file.read_bytes(), zipfile.ZIP_DEFLATED
                )


@click.command()
@click.option("--zip", "target", type=Path, default=ROOT / "dist" / f"{FOLDER}.zip")
def main(target: Path) -> None:
    """Write the description of the commands, and the plugin as a zip."""
    DESCRIPTION.write_text(text(), encoding="utf-8")
    build(target)
    click.echo(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
