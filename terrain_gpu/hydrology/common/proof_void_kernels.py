"""Kernels that label voids by flooding, for proofs."""

from __future__ import annotations

import numpy as np

from ...compiled import jit


@jit
def flood(absent, labels, stack):
    """Number the voids of a block in the order of their first cells."""
    rows, cols = absent.shape
    count = 0
    for start in range(rows * cols):
        if labels[start] or not absent[start // cols, start % cols]:
            continue
        count += 1
        labels[start] = count
        stack[0], depth = start, 1
        while depth:
            depth -= 1
            row, col = stack[depth] // cols, stack[depth] % cols
            for r in range(max(row - 1, 0), min(row + 2, rows)):
                for c in range(max(col - 1, 0), min(col + 2, cols)):
                    if absent[r, c] and not labels[r * cols + c]:
                        labels[r * cols + c] = count
                        stack[depth] = r * cols + c
                        depth += 1


@jit
def spread(outer, starts, lists):
    """Mark all voids that can be reached from marked ones."""
    stack = np.flatnonzero(outer)
    waiting = np.empty(len(outer), np.int64)
    depth = len(stack)
    for k in range(depth):
        waiting[k] = stack[k]
    while depth:
        depth -= 1
        at = waiting[depth]
        for k in range(starts[at], starts[at + 1]):
            if not outer[lists[k]]:
                outer[lists[k]] = True
                waiting[depth] = lists[k]
                depth += 1
