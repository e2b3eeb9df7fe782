"""Drainage basins: the tool `Basins`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts import Findings
from ...plurals import counted
from ...tool import InputLayer, PathLike, Tool, file, made_by, reads, tool, writes

if TYPE_CHECKING:
    from ...engine.run import Result

LAYER = "basins"


@tool
class Basins(Tool):
    """Label drainage basins: every cell with the number of the outlet that it drains to.

    Outlets are the cells where flow paths end. They are numbered from 1, in row-major order. Cells
    that do not drain are 0, the nodata value. Flow directions that are computed first lead to the
    raster's edge and to the coasts of voids that reach it; for other outlets, compute flow
    directions to these first.

    Returns
    -------
    Result
        Its `layers` are named {into}: uint32, int64 for rasters of 2**32 or more cells. `found` has
        the number of "basins".

    Raises
    ------
    StoreError
        when the store is damaged, lacks a layer or already has one of the results, or the flow
        directions form a loop.

    Examples
    --------
    >>> labels = basins("dem.zarr").layers["basins"].read_window(0, 100, 0, 100)
    """

    directions: str = reads(default="flow_direction", help="Layer of flow directions.")
    into: str = writes(default=LAYER, help="Layer to write the labels to.")
    table: PathLike | None = file(
        default=None,
        kind="table",
        help="Also write a table of the basins: .csv, .parquet, .geojson, .gpkg or .fgb. Columns: "
        "basin, row, col, x and y of the outlet, cells, area (in square metres in a geographic "
        "CRS, else in square map units), and edge_cells, the cells on the edge of the data that "
        "drain inwards: if there are any, the basin may extend beyond the data.",
    )

    command = function = accessor = "basins"
    group = "Hydrology"
    short = "Label drainage basins"
    style = "labels"
    examples = """
    terrain-gpu basins dem.zarr --table basins.csv
    terrain-gpu basins dem.tif -o basins.tif
    """
    operation = ".operation:BasinLabels"
    needs = ("flow-direction",)
    mark = "basins_of"
    proof = ".proof:verify_stored_basins"

    def inputs(self) -> tuple[InputLayer, ...]:
        return (InputLayer(self.directions, "uint8", made_by=made_by("flow-direction")),)

    @staticmethod
    def summary(result: Result) -> str:
        basins, cells = result.found["basins"], result.report.valid_cells
        return f"{counted(basins, 'basin')} of {counted(cells, 'cell')} in all"

    @staticmethod
    def proven(totals: Findings) -> str:
        return f"{counted(totals['basins'], 'basin')} of {counted(totals['cells'], 'cell')} in all"
