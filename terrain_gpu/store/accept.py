"""Cells that another program changed on purpose, recorded anew."""

from __future__ import annotations

from ..progress import Progress, silent
from .layer import KEY, Layer
from .metadata import TileStore
from .run import create_layer


def accept_changes(store: TileStore, name: str, progress: Progress = silent) -> Layer:
    """Write a layer again as its files are now, with new checksums and statistics.

    What is recorded of the origin of its cells is dropped, and results computed from the old cells
    are stale from now on.

    Raises
    ------
    StoreError
        when there is no such layer, or its files cannot be read.
    OutputError
        when the disk is full.
    """
    layer = store.layer(name)
    kept = {key: value for key, value in layer.attributes.items() if key != KEY}
    layer.attributes = kept  # nothing is recorded, so nothing is compared
    with create_layer(
        store.path,
        name,
        layer.grid,
        layer.dtype,
        nodata=layer.nodata,
        block_size=layer.block_size,
        compress=layer.compress,
        attributes=kept,
        overwrite=True,
    ) as writer:
        for at in layer.blocks.ids():
            cells = layer.read_block(*at)
            writer.write_block(*at, cells)
            progress(cells.size, layer.grid.cells)
        return writer.commit()
