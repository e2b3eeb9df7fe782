"""Stream burning: the tool `Burn`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import height
from ...facts import Findings, Settings
from ...plurals import counted
from ...tool import InputLayer, PlacesLike, Tool, option, places, reads, tool, writes

if TYPE_CHECKING:
    from ...engine.run import Result

LAYER = "burned"


@tool
class Burn(Tool):
    """Burn streams into a DEM: lower every cell that a stream touches by a depth.

    Other cells keep their elevations. Water then flows along known streams where the DEM hides
    them, under bridges or in plains. The result is a layer of elevations like any other.

    Returns
    -------
    Result
        Its `layers` are named {into}: of the type of the elevations, with their nodata value.
        `found` has the number of cells "burned".

    Raises
    ------
    InputError
        when a name, the cells or the depth cannot be used, or the type of the elevations does not
        hold a lowered one, which is named by row and column.

    Notes
    -----
    W. Saunders (1999), Preparation of DEMs for use in environmental modeling analysis; Esri User
    Conference. Elevations next to streams stay as they are, unlike in AGREE.

    Examples
    --------
    >>> from terrain_gpu.io.places import from_vector
    >>> grid = TileStore.open("dem.zarr").grid
    >>> burn("dem.zarr", from_vector(grid, "streams.gpkg", all_touched=True), depth=10)
    >>> minimum_spanning_tree("dem.zarr", weight="flow", layer="burned")
    """

    streams: PlacesLike = places(
        form="features",
        help="Lines, polygons and points of a vector file (FILE:LAYER for one layer of several), "
        "or the cells of an aligned raster that are neither 0 nor nodata.",
        python="Cells, in the forms that `shortest_paths` accepts as sources; "
        "``io.places.from_vector`` with `all_touched` finds those of lines and polygons. Nodata "
        "cells stay nodata.",
    )
    depth: float = option(
        metavar="HEIGHT",
        check=height,
        help="By how much cells are lowered, in the unit of the elevations: a whole number where "
        "these are integers. Floats are rounded to their type.",
    )
    layer: str = reads(default="elevation", help="Layer of elevations.")
    into: str = writes(default=LAYER, help="Layer to write the burned elevations to.")

    command = function = accessor = "burn"
    group = "Hydrology"
    short = "Lower the cells of streams before routing"
    examples = """
    terrain-gpu burn dem.tif --streams rivers.gpkg --depth 10 -o burned.tif
    terrain-gpu flow-direction dem.zarr --burn rivers.gpkg --burn-depth 10
    """
    operation = ".operation:burned"
    mark = "burn_of"
    proof = ".proof:verify_stored_burn"

    def inputs(self) -> tuple[InputLayer, ...]:
        return (InputLayer(self.layer),)

    @classmethod
    def planned(cls, options: Settings) -> Burn:
        return cls((), 1.0)

    @staticmethod
    def summary(result: Result) -> str:
        return f"{counted(result.found['burned'], 'cell')} lowered"

    @staticmethod
    def proven(totals: Findings) -> str:
        return f"{counted(totals['burned'], 'cell')} lowered"
