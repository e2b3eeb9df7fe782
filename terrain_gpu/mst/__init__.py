"""The minimum spanning forest of a raster, block by block.

`tile` finds the forest of 64 x 64 cells in cache, `block` joins the tiles of a block, `merge` joins
blocks four at a time, `pipeline` streams it all from and to a store. Every level is Boruvka with
the vertices frozen that have edges elsewhere; see docs/design/spanning-trees.md.
"""

from .pipeline import LAYER, SpanningTree, minimum_spanning_tree, plan_spanning_tree

__all__ = ["LAYER", "SpanningTree", "minimum_spanning_tree", "plan_spanning_tree"]
