"""From a step to its command line: shares of 1 become cells, bounds and files of this raster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from terrain_gpu import cells as values

from . import inputs
from .cases import Step, Terrain
from .oracles import Truth

PROGRAMS = {
    "convert": "convert-dataset",
    "mst": "compute-mst",
    "sssp": "compute-sssp",
    "index": "terrain-gpu build-index",
    "components": "terrain-gpu label-components",
}
"""The others are commands of `terrain-gpu` by their own name."""


class Commands:
    """Command lines, as far as the layers are known."""

    def __init__(self, terrain: Terrain) -> None:
        self.terrain = terrain
        self.truth: dict[str, Truth] = {}
        """What every layer holds."""
        self.before: dict[str, Truth] = {}
        """The same before the step that runs."""
        self.crs: list[str | None] = ["", None]
        """WKT and code of the store."""
        grid = terrain.grid
        self.place: list[float] = [*grid.shape, *grid.transform]
        """Shape and transform of the store: text formats round the sizes of cells."""

    def words(self, step: Step, folder: Path) -> list[str] | None:
        """Write a step's files, return its command line; None where it has nothing to work on."""
        given = dict(step.options)
        there = "elevation" in self.truth
        if not there and step.do not in ("convert", "plan"):
            return None
        if step.do == "read":
            return ["read", given["by"], "s.zarr", "cells.npy"]
        if step.do == "create":
            more = {"resume": given["resume"]}
            return self.create(folder, "elevation", self.altered(step), given["block-size"], **more)
        words = PROGRAMS.get(step.do, f"terrain-gpu {given.pop('of', step.do)}").split()
        if step.do == "convert":
            how = [given.pop(name) for name in ("into", "input", "variant")]
            names, _ = inputs.write(folder, self.terrain, *how)
            words += names
            given["layer"] = how[0]
            if self.terrain.crs and not names[0].endswith(".tif"):
                given["crs"] = self.terrain.crs
        words.append("s.zarr" if there or step.do == "convert" else "100x200")
        if step.do == "network":
            words.append(given.pop("to"))
        elif step.do == "flow" and "by" in given:
            inputs.write_points(folder / "from.gpkg", self.terrain, self.points(step))
            words += ["--streams", "from.gpkg"]
            del given["from"], given["by"]
        elif step.do == "flow":
            for row, col in self.cells_at(given.pop("from", [])):
                words += ["--pour-point-rowcol", f"{row},{col}"]
        elif step.do == "export":
            given["layer"] = self.exported(step)
            words.append("out.tif")
        elif step.do == "components":
            given["where"], _ = self.condition(step)
            del given["bound"]
        elif step.do in ("sssp", "accumulate", "matrix", "links") and "from" in given:
            del given["from"]
            words += self._sources(step, folder, given.pop("by", "rowcol"))
            for row, col in self.cells_at(given.pop("to", [])):
                words += ["--target-rowcol", f"{row},{col}"]
        for name in ("friction", "barriers"):
            if name not in self.truth:
                given.pop(name, None)
        for name, value in given.items():
            words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
        return words

    def create(
        self, folder: Path, name: str, truth: Truth, block: int, *, resume: bool = False
    ) -> list[str]:
        """Arguments of `child.create` for a layer of these cells."""
        np.save(folder / f"new-{name}.npy", truth.cells)
        given = {
            "grid": self.place,
            "crs": self.crs,
            "nodata": values.to_json(truth.nodata),
            "block_size": block,
            "overwrite": True,
            "resume": resume,
        }
        return ["create", "s.zarr", name, f"new-{name}.npy", json.dumps(given)]

    def _sources(self, step: Step, folder: Path, by: str) -> list[str]:
        option = "--outlet" if step.do == "accumulate" else "--source"
        points = self.points(step)
        if by == "edge":
            return ["--source-edge"]
        if by in ("geojson", "gpkg"):
            inputs.write_points(folder / f"from.{by}", self.terrain, points)
            return [f"{option}s", f"from.{by}"]
        xs, ys = (
            at.tolist() for at in (self.terrain.grid.x_centres(), self.terrain.grid.y_centres())
        )
        words = []
        for row, col, cost, _ in points:
            place = f"{row},{col}" if by == "rowcol" else f"{xs[col]!r},{ys[row]!r}"
            more = f",{cost}" if cost else ""
            words += [f"{option}-rowcol" if by == "rowcol" else option, place + more]
        return words

    def exported(self, step: Step) -> str:
        """The layer to export: the one drawn, if it exists."""
        layer = step.options["layer"]
        return layer if layer in self.before else "elevation"

    def usable(self, options: dict[str, Any], truth: dict[str, Truth] | None = None) -> np.ndarray:
        """Cells with a value in all layers that a step reads, by default as they are now."""
        truth = self.truth if truth is None else truth
        good = truth["elevation"].good
        if "friction" in options and "friction" in truth:
            good = good & truth["friction"].good
        if "barriers" in options and "barriers" in truth:
            good = good & truth["barriers"].good & (truth["barriers"].cells == 0)
        return good

    def cells_at(self, picks: list[float], options: dict[str, Any] | None = None) -> list[Any]:
        """Cells usable before the step, as (row, column); the first cell where there are none."""
        there = np.argwhere(self.usable(options or {}, self.before))
        if not len(there):
            return [(0, 0) for _ in picks]
        return [tuple(there[int(pick * len(there))].tolist()) for pick in picks]

    def points(self, step: Step) -> list[inputs.Point]:
        """Sources or outlets, numbered from 1; some sources have a start cost."""
        found = self.cells_at(step.options.get("from", []), step.options)
        costs = [None, None, 7] if step.do == "sssp" else [None]
        return [(*cell, costs[k % len(costs)], k + 1) for k, cell in enumerate(found)]

    def condition(self, step: Step) -> tuple[str, np.ndarray]:
        """A --where, and the cells that satisfy it."""
        old, z = self.before["elevation"], self.truth["elevation"]
        some = np.sort(old.cells[old.good])
        low = some[int(step.options["bound"] * len(some))].item() if len(some) else 0
        high = low + 20
        above, below = z.good & (z.cells > low), z.good & (z.cells <= low)
        between = z.good & (z.cells >= low) & (z.cells < high)
        return {
            "above": (f"elevation > {low!r}", above),
            "below": (f"not elevation > {low!r}", below),
            "between": (f"{low!r} <= elevation < {high!r}", between),
            "void": ("nodata(elevation)", ~z.good),
            "value": ("not nodata(elevation)", z.good),
        }[step.options["where"]]

    def altered(self, step: Step) -> Truth:
        """The heights with one cell changed; count and range stay if possible."""
        old = self.before["elevation"]
        data = old.cells.copy()
        some = data[old.good]
        if some.size:
            ((row, col),) = self.cells_at([step.options["pick"]])
            data[row, col] = some[some.size // 2]
        return Truth(data, old.nodata)
