"""Proof that sums and directions of drainage are right: `verify_drainage`.

Nothing is shared with the program that drains but the forest, the weights of its edges, and the
values of cells. Directions are right exactly when

1. every cell with a value is an outlet (code 0), drains along an edge of the forest, or reaches
   none (255); the outlets are those that were asked for; and no edge of the forest joins a cell
   that drains to one that does not, so that all trees with an outlet drain;
2. directions never lead round in a circle: then each leads to an outlet;
3. every edge of the forest between two cells of which neither drains into the other is heavier, in
   the total order of edges, than all edges on the ways from both to their outlets. By the cycle
   property the directions are then the minimum spanning forest relative to the outlets.

Sums are right when each is the value of its cell and the sums of those that drain into it. They are
added again, as whole numbers, and compared bit for bit.

A block knows the way from each of its cells until it leaves the block. What must be known beyond is
kept for cells at which ways leave or enter: the heaviest edge and the sum of what lies within the
block, and the lightest edge that must be heavier than the rest of the way. Between two passes over
the blocks these are followed from block to block. Memory is O(rim).

That the layer "mst" is the minimum spanning forest is another proof's, `mst.verify`.
"""

from .checker import verify_drainage, verify_stored_drainage

__all__ = ["verify_drainage", "verify_stored_drainage"]
