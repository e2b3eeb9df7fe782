"""Accept cells that another program has changed on purpose."""

from __future__ import annotations

from ..progress import Progress, silent
from .layer import KEY, Layer
from .metadata import TileStore
from .run import create_layer


def accept_changes(store: TileStore, name: str, progress: Progress = silent) -> Layer:
    """Write a layer again from its current files, with new checksums and statistics.

    Records of the origin of the cells are dropped, and results computed from the old cells become
    stale.

    Raises
    ------
    StoreError
        when there is no such layer, or its files cannot be read.
    OutputError
        when the disk is full.
    """
    layer = store.layer(name)
    attributes = {key: value for key, value in layer.attributes.items() if key != KEY}
    layer.attributes = attributes  # without recorded digests, reading does not compare checksums
    with create_layer(
        store.path,
        name,
        layer.grid,
        layer.dtype,
        nodata=layer.nodata,
        block_size=layer.block_size,
        compress=layer.compress,
        attributes=attributes,
        overwrite=True,
    ) as writer:
        for block in layer.blocks.ids():
            cells = layer.read_block(*block)
            writer.write_block(*block, cells)
            progress(cells.size, layer.grid.cells)
        return writer.commit()
