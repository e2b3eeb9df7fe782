"""Connected components of a condition over layers, out of core: the tool `LabelComponents`.

- `operation`: the operation, blocks streamed twice, and its plan
- `expression`: conditions
- `block`: components of one block, measured and numbered
- `joins`: components across blocks, and the order of all
- `rows`: sizes, areas and boxes, for a table
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arguments import Connectivity
from ...facts import Findings, Settings
from ...plurals import counted
from ...tool import InputLayer, PathLike, Tool, file, option, tool, writes

if TYPE_CHECKING:
    from .operation import Components

LAYER = "components"


@tool
class LabelComponents(Tool):
    """Label the connected components of the cells that meet a condition.

    Labels count from 1, in row-major order of each component's first cell; all other cells are 0,
    the nodata value. They are the same for every block size, memory limit and number of threads. A
    comparison with a nodata cell is never true. The cells of a raster are the layer "elevation".

    Returns
    -------
    Components
        With the `layer` of labels: uint32, or int64 if the raster is large enough for 2**32
        components.

    Raises
    ------
    InputError
        when the condition or a name cannot be used.

    Notes
    -----
    Union-find in each block, then over the lines between blocks.

    Examples
    --------
    >>> land = label_components("dem.zarr", "elevation > 0", table="land.csv")
    >>> land.count, land.cells
    """

    where: str = option(
        metavar="CONDITION",
        help='Condition on layers of the store, such as "elevation > 0", "0 < elevation <= 100 and '
        'not (slope > 30)" or "nodata(elevation)".',
    )
    connectivity: Connectivity = option(
        default=8, help="Neighbours per cell: 8 includes the diagonal ones."
    )
    into: str = writes(default=LAYER, help="Layer to write the labels to.")
    table: PathLike | None = file(
        default=None,
        kind="table",
        help="Also write a table of the components' cell counts, areas (in square metres in a "
        "geographic CRS, else in square map units) and bounding boxes: .csv, .parquet, .geojson, "
        ".gpkg or .fgb.",
    )

    command, function, accessor = "label-components", "label_components", "components"
    group = "Cells and areas"
    short = "Label connected cells that meet a condition"
    style = "labels"
    examples = """
    terrain-gpu label-components dem.zarr --where "elevation > 0" --table land.csv
    terrain-gpu label-components dem.tif --where "nodata(elevation)" -o voids.tif
    """
    operation = ".operation:ComponentLabels"
    result = "Components"
    mark = "where"
    proof = ".proof:verify_stored_labels"

    def inputs(self) -> tuple[InputLayer, ...]:
        """One layer, for `plan`; the operation itself parses the condition."""
        return (InputLayer("elevation"),)

    @classmethod
    def planned(cls, options: Settings) -> LabelComponents:
        return cls("elevation > 0", table="table")

    @staticmethod
    def summary(result: Components) -> str:
        return _counts(result.count, result.cells)

    @staticmethod
    def proven(totals: Findings) -> str:
        return _counts(totals["components"], totals["cells"])


def _counts(components: int, cells: int) -> str:
    return f"{counted(components, 'component')} of {counted(cells, 'cell')} in all"
