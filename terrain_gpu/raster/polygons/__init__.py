"""Areas of equal labels as polygons: the tool `DrawPolygons`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...arguments import text, whole, wrong
from ...plurals import counted
from ...tool import InputLayer, PathLike, Tool, drawing, option, reads, tool

if TYPE_CHECKING:
    from .operation import Polygons


def _names(name: str, value: Any) -> dict[int, str]:
    """Texts by whole numbers."""
    if not isinstance(value, Mapping):
        raise wrong(name, value, "a dict from whole numbers to texts")
    return {
        whole(f"a key of {{{name}}}", key): text(f"{{{name}}} of {key}", one)
        for key, one in value.items()
    }


@tool
class DrawPolygons(Tool):
    """Write the areas of equal labels as polygons along the edges of their cells.

    Each label becomes one MultiPolygon, in ascending order: a polygon for every part that is
    connected by sides of cells, with its holes. All are valid, and share their edges exactly. The
    file does not depend on block size, memory limit or threads.

    The attributes are label (the value of the layer), name (with {names}; null where it is not
    known), cells (their number) and area (in square metres on the ellipsoid in a geographic CRS,
    else in square map units).

    Returns
    -------
    Polygons
        With the path of the file, and the numbers of labels, polygons, holes and cells.

    Raises
    ------
    InputError
        when the layer has no whole numbers, or the file cannot be written there.

    Examples
    --------
    >>> found = polygons("dem.zarr", "basins.gpkg", layer="basins")
    >>> found.labels, found.holes
    """

    path: PathLike | None = drawing(
        layer="polygons", metavar="POLYGONS.gpkg|.geojson|.parquet|.fgb"
    )
    layer: str | None = reads(
        default=None,
        help="Layer of labels: basins, watersheds, components, or any other whole numbers. Its "
        "nodata cells belong to no polygon. By default the only layer.",
    )
    names: Mapping[int, str] | None = option(
        default=None,
        form="names",
        check=_names,
        help="Also write the attribute name: what features of this vector file are called "
        "(FILE:LAYER for one layer of several), of which the labels are the ids. For layers of "
        "--sources FILE with --id-field.",
        python="What labels stand for, such as the ids in a layer of allocation: the `names` of "
        "`Places`.",
    )

    command = function = accessor = "polygons"
    positional = ("path",)
    group = "Cells and areas"
    short = "Write areas of equal labels as polygons"
    examples = """
    terrain-gpu polygons dem.zarr basins.gpkg --layer basins
    terrain-gpu polygons landcover.tif landcover.gpkg
    terrain-gpu polygons dem.zarr areas.gpkg --layer nearest_allocation \\
        --names towns.gpkg --id-field name
    """
    operation = ".operation:label_polygons"
    result = "Polygons"

    def inputs(self) -> tuple[InputLayer, ...]:
        return (InputLayer(self.layer or ""),)

    @staticmethod
    def summary(result: Polygons) -> str:
        return (
            f"{counted(result.labels, 'label')}, {counted(result.polygons, 'polygon')} of "
            f"{counted(result.cells, 'cell')}"
        )
