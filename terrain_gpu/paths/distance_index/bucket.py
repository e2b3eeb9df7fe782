"""The place in a bucket where a distance index is built: `IndexBucket`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...errors import InputError, StoreError
from ...facts import JsonObject
from ...grid import Block, GridSpec
from ...plurals import counted
from ...store.bucket import BucketTarget
from ...store.objects import LARGEST
from ...store.writer import Record
from .files import Index


class IndexBucket(BucketTarget):
    """Builds an index in the way `BucketTarget` builds layers: its zarr.json is written last."""

    what, again = "distance index", "run this again"

    def claim_index(
        self, index: Index, header: JsonObject, grid: GridSpec, *, resumed: bool
    ) -> None:
        """Begin or resume the build, as its only writer.

        Raises
        ------
        InputError
            when a file is too large to be written with one request.
        """
        if index.file_bytes > LARGEST:
            raise InputError(
                f"{self.place}: an object would have {index.file_bytes:,} bytes, but servers "
                f"accept at most {LARGEST:,} per request; convert with a smaller --block-size"
            )
        self._grid = grid
        index.separator = self.claim(header, resumed=resumed)

    def written(self, index: Index) -> Iterator[Block]:
        """Yield the blocks that an earlier run finished."""
        for found in self._blocks(index, checked=True):
            yield found.at

    def _blocks(self, index: Index, *, checked: bool) -> Iterator[Record]:
        """Yield the records of blocks whose objects exist, in the order of the manifest."""
        is_there = self.look(index, checked=checked)
        with open(self.manifest, "rb") as lines:
            for line in lines:
                if (found := Record.read(line)) and is_there(found):
                    yield found

    def stored_bytes(self, index: Index) -> int:
        """Total size of the objects."""
        with open(self.manifest, "rb") as lines:
            sizes = {found.at: found.size for found in map(Record.read, lines) if found}
        return sum(sizes.values())

    def publish_index(self, index: Index, own: JsonObject) -> None:
        """Make the index visible; it replaces any older one.

        Raises
        ------
        StoreError
            when blocks are missing, or another program wrote to the same place.
        """
        missing = np.ones(index.blocks.shape, bool)
        for found in self._blocks(index, checked=False):
            missing[found.at] = False
        if missing.any():
            gone = counted(missing.sum(), "block was", "blocks were")
            raise StoreError(
                f"{self.place}: {gone} never written, or replaced by another program; {self.again}"
            )
        self.complete_array(index.metadata(own), self._grid)
        self.publish_array()
