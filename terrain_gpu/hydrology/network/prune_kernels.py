"""Kernels that find the edges of a forest whose paths are long enough for the network."""

from __future__ import annotations

import numpy as np

from ...compiled import jit
from ...grid.neighbours import COL_STEP, ROW_STEP
from ..forest.block_kernels import step_length


@jit
def fold_lengths(metric, branches, code, least, hang, deep, order):
    """Fold the dead ends of branches; list the cells that are not folded, and return their number.

    Parameters
    ----------
    metric
        See `block.step_length`.
    least
        Dead ends shorter than this are folded.
    hang
        Receives the longest path folded into each cell.
    deep
        bool, False at first. Receives whether a cell has a child that is not folded.
    order
        Receives the cells that are not folded.
    """
    step = ROW_STEP * metric[1] + COL_STEP
    count = 0
    for v in branches:
        order[count] = v
        k = code[v]
        if k >= len(step):  # a root
            count += deep[v]
            continue
        p = v + step[k]
        far = hang[v] + step_length(metric, v, p, k)
        if deep[v] or far >= least:
            deep[p] = True
            count += 1
        else:
            hang[p] = max(hang[p], far)
    return count


@jit
def contract_lengths(order, parent, along, number, numbered, hang, chain, ends, paths):
    """Contract a forest as `tree.contract` does, for lengths.

    Parameters
    ----------
    hang
        Receives the longest path contracted into each numbered vertex.
    chain
        Work space: the vertex at the lower end of an open path, the length of the path, and the
        longest paths into its side branches, from its lower and from its upper end.
    ends, paths
        Receive the numbers at the ends of each contracted path, its length, and these two longest
        paths.
    """
    low, length, from_low, from_top = chain
    for v in order:
        low[v] = -1
    count = 0
    for v in order:
        p, step = parent[v], along[v]
        into = back = np.int64(0)
        if number[v] >= 0:
            start, far = v, step
        else:
            start, far = low[v], step
            if start >= 0:
                far = length[v] + step
                into = max(from_low[v], length[v] + hang[v])
                back = max(from_top[v], hang[v]) + step
        if p < 0:
            if number[v] < 0 and start >= 0:
                hang[start] = max(hang[start], into)
            continue
        if start < 0:
            hang[p] = max(hang[p], hang[v] + step)
            continue
        if number[p] < 0 and low[p] < 0:
            low[p], length[p], from_low[p], from_top[p] = start, far, into, back
            continue
        if number[p] < 0:
            number[p] = numbered
            numbered += 1
            ends[count, 0], ends[count, 1] = number[low[p]], number[p]
            paths[0, count], paths[1, count] = length[p], from_low[p]
            paths[2, count] = from_top[p]
            count += 1
        ends[count, 0], ends[count, 1] = number[start], number[p]
        paths[0, count], paths[1, count], paths[2, count] = far, into, back
        count += 1
    return numbered, count


@jit
def reach(order, parent, along, hang, from_parent, from_child, best, second, down, up):
    """Compute the longest path that begins with each edge, to either side.

    Parameters
    ----------
    along, hang
        Length of the edge to the parent, and the longest path contracted into each vertex.
    from_parent, from_child
        The longest path into the side branches of a contracted edge, from its upper and from its
        lower end; equal to `along` for an ordinary edge.
    best, second
        Work space: the two longest paths from a vertex downwards.
    down, up
        Receive the longest path that begins with the edge from the parent to the vertex, and with
        the edge from the vertex to the parent.
    """
    for v in order:
        best[v], second[v] = hang[v], 0
    for v in order:
        p = parent[v]
        if p >= 0:
            far = max(from_parent[v], along[v] + best[v])
            down[v] = far
            if far > best[p]:
                best[p], second[p] = far, best[p]
            else:
                second[p] = max(second[p], far)
    for k in range(len(order) - 1, -1, -1):
        v = order[k]
        p = parent[v]
        if p >= 0:
            rest = second[p] if down[v] == best[p] else best[p]
            if parent[p] >= 0:
                rest = max(rest, up[p])
            up[v] = max(from_child[v], along[v] + rest)


@jit
def keep_edges(order, parent, code, down, up, least, bits):
    """Mark edges with long enough paths on both sides, at both ends of each edge."""
    for v in order:
        p = parent[v]
        if p >= 0 and down[v] >= least and up[v] >= least:
            bits[v] |= 1 << code[v]
            bits[p] |= 1 << (code[v] + 4 & 7)


@jit
def extend_lines(metric, code, hang, up, least, stack, count, bits, end, out):
    """Extend line ends along the longest paths; return False if the edges are not a forest.

    If an edge outside the network has a long enough path on one side, the line is on that side.

    Parameters
    ----------
    metric
        See `block.step_length`.
    hang
        The longest path from each cell downwards.
    up
        As in `reach`; not read where lines come from the parent.
    stack, count
        int32, the line ends, and their number; `stack` is also work space.
    bits
        uint8, the edge by which a line comes to each end. Receives the edges of extensions, at both
        ends of each edge.
    end
        int64, a number at each line end. Receives that number at all cells of the extension.
    out
        int64, the longest path away from lines over edges to other blocks. Receives the longest
        over all edges where lines are extended.
    """
    step = ROW_STEP * metric[1] + COL_STEP
    away = np.empty(8, np.int64)
    while count:
        count -= 1
        v = stack[count]
        away[:] = least
        for k in range(8):
            u = v + step[k]
            if bits[v] >> k & 1 or not 0 <= u < len(bits):
                continue
            if code[v] == k:
                away[k] = up[v]
            elif code[u] == k + 4 & 7:
                away[k] = hang[u] + step_length(metric, v, u, k)
            if away[k] < least:
                out[v] = max(out[v], away[k])
        for k in range(8):
            if away[k] < least and away[k] == out[v]:
                if count == len(stack):
                    return False
                u = v + step[k]
                bits[v] |= 1 << k
                bits[u] |= 1 << (k + 4 & 7)
                end[u] = end[v]
                stack[count] = u
                count += 1
    return True
