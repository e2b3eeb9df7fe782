"""The spanning tree that flow follows, as an input of tools."""

from __future__ import annotations

from ...tool import InputLayer, OfStore, made_by

_HEIGHTS = OfStore("hydrology.forest.source:heights_of_tree")

TREE = InputLayer("mst", "uint8", made_by=made_by("compute-mst", weight="flow", layer=_HEIGHTS))
