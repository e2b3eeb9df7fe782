"""The store: a Zarr v3 group whose layers are Z-ordered tiles in shards, one shard per block.

Metadata is written and read with zarr-python; cells are read from and written to the shard files
directly. ``docs/format.md`` specifies every byte.
"""

from .layer import Layer
from .metadata import TileStore
from .run import DEFAULT_BLOCK, create_layer, unfinished_block_size
from .writer import LayerWriter

__all__ = [
    "DEFAULT_BLOCK",
    "Layer",
    "LayerWriter",
    "TileStore",
    "create_layer",
    "unfinished_block_size",
]
