"""Connected components of a condition over the layers of a store: `label_components`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arguments import Connectivity, LayerCompression, checked
from ...engine.run import Here, run
from ...errors import InputError
from ...io.labelled import StoreLike, opened_store, takes_dataarrays
from ...progress import Progress, silent
from ...report import Report
from ...store import Layer
from ...store.labels import Layered
from ...tokens import named_store
from .expression import Expression
from .operation import LAYER, LabelComponents

if TYPE_CHECKING:
    pass


@dataclass(repr=False)
class Components(Layered):
    """Connected components of a condition.

    Attributes
    ----------
    layer
        The store's layer of labels: 1, 2, ... in row-major order of the components' first cells;
        0 outside.
    count
        Number of components.
    cells
        Number of cells inside.
    report
        The run's `Report`.
    """

    layer: Layer
    count: int
    cells: int
    report: Report

    @property
    def layers(self) -> dict[str, Layer]:
        """The layer by its name."""
        return {self.layer.path.name: self.layer}

    def labels(self) -> np.ndarray:
        """Return all labels in memory."""
        return self.layer.read_window(*self.layer.grid.window)


@takes_dataarrays
@checked()
def label_components(
    store: StoreLike,
    where: str,
    *,
    connectivity: Connectivity = 8,
    into: str = LAYER,
    table: str | os.PathLike[str] | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    client: Any = None,
    verify: bool = False,
    compress: LayerCompression | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Components:
    """Label the connected components of the cells that meet a condition.

    Labels are consecutive, in the order of the components' first cells, so they do not depend on
    blocks, memory limit or threads.

    Parameters
    ----------
    store
        A store or a raster (a path), or a DataArray.
    where
        A condition on its layers, such as ``"0 < elevation <= 100"``; see `expression`.
    connectivity
        8 or 4.
    into
        The layer to write the labels to: uint32, or int64 if the raster is large enough for 2**32
        components; nodata is 0.
    table
        Also write label, cells, area and bounding box of each component, to .csv, .parquet,
        .geojson, .gpkg or .fgb. Areas are in square metres on the ellipsoid for a geographic CRS,
        else in square map units.
    memory_limit
        Limit on the peak resident set of the process in bytes; a quarter of RAM when None.
    threads
        Number of threads; all processors when None.
    client
        A ``distributed.Client`` whose workers solve the blocks, each within `memory_limit`. None
        for this process.
    verify
        Verify the labels in another pass over the cells; the table is not verified.
    compress
        Compression of the layers, as `convert_dataset` has it; none when None.
    resume
        Continue an unfinished run.
    overwrite
        Replace an existing layer and table once the new ones are complete.
    progress
        Called with the cells just done and the cells of both passes.

    Raises
    ------
    InputError
        when the condition, the connectivity or a name cannot be used.
    PlanError
        when the memory limit is too small.
    StoreError
        when the store is damaged, or already has such a layer.
    OutputError
        when the disk is full. Finished blocks are kept for `resume`.
    VerificationError
        when the proof fails; there is no layer then.

    Notes
    -----
    Union-find in each block, then over the lines between blocks; docs/design/components.md.
    """
    opened = opened_store(store)
    with named_store(opened.path):
        condition = Expression(where, opened.layers)
    if into in condition.layers:
        raise InputError(f"{opened.path}: layer {into!r} is read; give the labels another name")
    if table is not None:
        from ...io.tables import checked_table  # brings GDAL

        target = checked_table(table, overwrite=overwrite)
    operation = LabelComponents(
        str(opened.path), where, connectivity, into, None if table is None else str(target)
    )
    result = run(
        operation,
        memory_limit=memory_limit,
        threads=threads,
        compress=compress,
        resume=resume,
        overwrite=overwrite,
        verify=verify,
        place=Here(progress),
        client=client,
    )
    report, found = result.report, result.found
    report.valid_cells = found["cells"]
    del report.result["layers"]
    report.result["layer"] = into
    if table is not None:
        report.result["table"] = os.fspath(table)
    return Components(result.layers[into], found["components"], found["cells"], report)
