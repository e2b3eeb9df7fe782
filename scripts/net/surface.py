"""What users see of the program without running it: help, signatures, messages, plans."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import terrain_gpu
import terrain_gpu.xarray
from terrain_gpu.cli.main import group

from . import cases, rows


def helps() -> Iterator[tuple[str, str]]:
    """The help of the program and of every command."""
    yield "terrain-gpu", _text(rows.run("--help"))
    for name in group.list_commands(click.Context(group)):
        yield name, _text(rows.run(f"{name} --help"))


def _text(found: rows.Row) -> str:
    return "\n".join(found["said"]) + "\n"


def signatures() -> Iterator[str]:
    """Lines with each public name, its parameters, and the first line of its documentation."""
    for name in sorted([*terrain_gpu.__all__, "open"]):
        yield from _signature(name, getattr(terrain_gpu, name))
    yield from _signature("TerrainAccessor", terrain_gpu.xarray.TerrainAccessor)


def _signature(name: str, found: Any) -> Iterator[str]:
    with contextlib.suppress(TypeError, ValueError):
        signature = inspect.signature(found)
        yield f"{name}{'' if inspect.isclass(found) else f' -> {signature.return_annotation}'}"
        for one in signature.parameters.values():
            kind = one.kind.description.replace("positional or keyword", "any")
            yield re.sub(" at 0x[0-9a-f]+", "", f"    {one} ({kind})")
    yield f"    : {(inspect.getdoc(found) or '').partition(chr(10))[0]}"
    if inspect.isclass(found):
        for member in sorted(dir(found)):
            if member.startswith("_") or hasattr(Exception, member):
                continue
            of_class = inspect.getattr_static(found, member)
            if isinstance(of_class, property):
                yield f"{name}.{member}: {(inspect.getdoc(of_class) or '').partition(chr(10))[0]}"
            elif callable(getattr(found, member)):
                yield from _signature(f"{name}.{member}", getattr(found, member))


def messages(net: rows.Net) -> Iterator[str]:
    """What the program says to wrong inputs, and its exit code; nothing may change."""
    before = net.start("inputs")
    for line in cases.lines_of(cases.WRONG):
        with contextlib.chdir(net.work):
            found = rows.run(line)
            left = rows.changes(before, Path())
        yield f"$ {line}\n{_text(found)}exit code {found['exit']}, left: {sorted(left)}\n"
        if left:
            before = net.start("inputs")


def plans() -> Iterator[tuple[str, rows.Row]]:
    """What `plan` says and reports of every operation, for all sizes."""
    for line in cases.lines_of(cases.PLANS):
        found: rows.Row = {}
        for size in cases.SIZES:
            words = f"plan {size} {line} --memory-limit 4GB --threads 4"
            found[size] = rows.run(words)
            Path("plan.json").unlink(missing_ok=True)
            rows.run(f"{words} --json plan.json")
            if Path("plan.json").exists():
                report = json.loads(Path("plan.json").read_text())
                told = {key: report[key] for key in ("settings", "result")}
                found[size] |= rows.shared(told, {"seconds"})
        yield line, found


ACCESSOR = """
dem.terrain.accumulate(directions="paths")
dem.terrain.basins()
dem.terrain.breach(max_distance=20)
dem.terrain.burn(rivers, depth=9)
dem.terrain.calc("elevation * 2 + 1")
dem.terrain.components("elevation > 500")
dem.terrain.contours(interval=50)
dem.terrain.corridor(huts, towns, cost="tobler", within="5%")
dem.terrain.cost_distance(huts, cost="surface", backlink=True, allocation=True)
dem.terrain.cost_distance(huts, friction=friction)
dem.terrain.depressions(min_depth=2)
dem.terrain.fill()
dem.terrain.fill_spill_merge(rain=0.2)
dem.terrain.flow_accumulation(method="dinf")
dem.terrain.flow_direction(flats="gradient")
dem.terrain.hand(60, distance="far")
dem.terrain.indices(twi="twi", spi="spi")
dem.terrain.least_cost_network(huts, cost="surface")
dem.terrain.least_cost_paths(huts, towns, cost="surface")
dem.terrain.network(min_length=300)
dem.terrain.rasterize(rivers, value=3)
dem.terrain.slope(aspect="aspect")
dem.terrain.spanning_tree(weight="absdiff")
dem.terrain.streams(60)
dem.terrain.watershed(gauges, snap=200)
landcover.terrain.polygons()
"""
"""Calls of the accessor's methods, all of them."""


def accessor() -> Iterator[tuple[str, rows.Row]]:
    """What the accessor's methods return, for rasters of the current folder."""
    import geopandas
    import rioxarray

    given: dict[str, Any] = {
        name: rioxarray.open_rasterio(f"{name}.tif").squeeze("band", drop=True)
        for name in ("dem", "friction", "landcover")
    }
    for name in ("huts", "towns", "rivers", "gauges"):
        given[name] = geopandas.read_file(f"{name}.geojson")
    for line in cases.lines_of(ACCESSOR):
        yield line, of_object(eval(line, given))


def of_object(found: Any) -> rows.Row:
    """Digests of a Dataset, a DataArray or a GeoDataFrame."""
    if hasattr(found, "data_vars"):
        return {str(name): of_object(one) for name, one in found.data_vars.items()}
    if hasattr(found, "to_json"):
        text = found.to_json()
        return {
            "columns": list(map(str, found.columns)),
            "rows": len(found),
            "features": rows.digest(text.encode()),
        }
    facts = {str(k): rows.plain(str(v)) for k, v in sorted(found.attrs.items())}
    facts |= {"name": str(found.name), "type": str(found.dtype), "dims": list(found.dims)}
    return facts | {"cells": rows.digest(found.values.tobytes())}


def without_case() -> list[str]:
    """Commands of the program, and methods of the accessor, that no line runs."""
    methods = {name for name in vars(terrain_gpu.xarray.TerrainAccessor) if name[0] != "_"}
    called = set(re.findall(r"terrain\.(\w+)", ACCESSOR))
    names = set(group.list_commands(click.Context(group)))
    return sorted((names - cases.commands()) | (methods - called))
