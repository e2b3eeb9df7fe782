"""Components of a mask on the CPU: join the runs of each row to those of the row above.

Run-based union-find in two passes (L. He, Y. Chao and K. Suzuki, "A run-based two-scan labeling
algorithm", 2008). Labels are assigned row by row, and the least label is always the root, so the
roots are in the order of their components' first cells.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numba.extending import register_jitable

from ..compiled import jit
from ..engine.machine import available_threads

STRIP = 256
"""Fewest rows per thread."""

ALL, NONE = np.uint64(0x0101010101010101), np.uint64(0)
"""Eight cells of a mask: all set, or none."""


@jit
def label_block(mask, diagonal, labels):
    """Label the components of one block in one thread.

    Parameters
    ----------
    mask
        (rows, cols), contiguous: bool, or uint8 of 0 and 1.
    diagonal
        Whether diagonal neighbours are joined.
    labels
        (rows, cols) int32 or int64, receives 0 outside the mask and 1 to k inside. Components are
        numbered in row-major order of their first cells.

    Returns
    -------
    int
        k, the number of components.

    Notes
    -----
    The extra memory is a few rows, and an array with room for one label (of the type of `labels`)
    per provisional component: at most every second cell, every fourth with diagonal neighbours.
    Only the used part of that array is touched.
    """
    rows, cols = mask.shape
    parent = np.empty(1 + most_labels(rows, cols, diagonal), labels.dtype)
    stop = scan(mask, diagonal, labels, parent, None, 0, rows, 1)
    count = parent[0] = 0
    for label in range(1, stop):
        above = parent[label]
        if above == label:
            count += 1
            parent[label] = count
        else:
            parent[label] = parent[above]  # a lesser label, which already has its final number
    fill(mask, labels, parent, 0, rows)
    return count


def grid_components(mask: np.ndarray, diagonal: bool) -> np.ndarray:
    """Return the least cell of each cell's component, int64, -1 outside the mask; uses all threads.

    Strips of rows are scanned in parallel, each with its own labels, and joined at the seams.
    """
    rows, cols = mask.shape
    labels = np.empty((rows, cols), np.int64)
    strips = max(1, min(available_threads(), rows // STRIP))
    cuts = [rows * k // strips for k in range(strips + 1)]
    first = [1]  # first label of each strip; strips have room for all their possible labels
    for top, bottom in pairwise(cuts):
        first.append(first[-1] + most_labels(bottom - top, cols, diagonal))
    parent, cells = np.empty(first[-1], np.int64), np.empty(first[-1], np.int64)
    with ThreadPoolExecutor(strips) as pool:
        stop = pool.map(
            lambda top, bottom, label: scan(
                mask, diagonal, labels, parent, cells, top, bottom, label
            ),
            *(cuts[:-1], cuts[1:], first),
        )
        used = list(zip(first, stop, strict=False))
        for row in cuts[1:-1]:
            _join_seam(mask, diagonal, labels, parent, row)
        parent[0] = -1
        for start, end in used:
            _first_cells(parent, cells, start, end)
        list(pool.map(lambda *rows: fill(mask, labels, parent, *rows), cuts[:-1], cuts[1:]))
    return labels


@register_jitable
def most_labels(rows, cols, diagonal):
    """Return the most provisional labels: every second cell, with diagonals every second row."""
    return ((rows + 1) // 2 if diagonal else rows) * ((cols + 1) // 2)


@jit
def scan(mask, diagonal, labels, parent, cells, top, bottom, label):
    """First pass over rows `top` to `bottom`: assign provisional labels from `label` on.

    Writes the label of each run to its first cell in `labels`, joins labels in `parent`, and writes
    the first cell of each label to `cells` unless that is None. Returns the next unused label.
    """
    cols = mask.shape[1]
    reach = 1 if diagonal else 0
    both_edges = np.empty((2, cols + 2), np.int64)
    both_tags = np.empty((2, cols // 2 + 1), parent.dtype)
    above = 0
    for row in range(top, bottom):
        over, edges = both_edges[row & 1], both_edges[1 - (row & 1)]
        over_tags, tags = both_tags[row & 1], both_tags[1 - (row & 1)]
        count = find_runs(mask[row].view(np.uint8), edges)
        j = 0
        for run in range(count):
            start, end = edges[2 * run], edges[2 * run + 1]
            tag, j = _join_run(start - reach, end + reach, 0, over, over_tags, above, j, parent)
            if tag == 0:
                tag = label
                parent[tag] = tag
                if cells is not None:
                    cells[tag] = row * cols + start
                label += 1
            tags[run] = tag
            labels[row, start] = tag
        above = count
    return label


@register_jitable
def find_runs(line, edges):
    """Write the columns where runs of a row begin and end alternately to `edges`; count the runs.

    Eight cells equal to the one before are skipped at once. The others are processed without
    branches, which noise would mispredict. `edges` has two more places than the row.
    """
    cols = len(line)
    words = line[: cols // 8 * 8].view(np.uint64)
    count = before = 0
    for word in range(len(words)):
        if words[word] == (ALL if before else NONE):
            continue
        for col in range(8 * word, 8 * word + 8):
            here = np.int64(line[col])
            edges[count] = col
            count += here ^ before
            before = here
    for col in range(8 * len(words), cols):
        here = np.int64(line[col])
        edges[count] = col
        count += here ^ before
        before = here
    edges[count] = cols
    return (count + 1) // 2


@register_jitable
def _join_run(low, high, tag, over, over_tags, above, j, parent):
    """Join a run with label `tag` (0 if none yet) to the runs above that touch `low` to `high`.

    Returns its root, and the first run above to consider for the next run.
    """
    while j < above and over[2 * j + 1] <= low:
        j += 1
    k = j
    while k < above and over[2 * k] < high:
        root = over_tags[k]
        while parent[root] != root:
            parent[root] = parent[parent[root]]
            root = parent[root]
        if tag == 0:
            tag = root
        elif root < tag:
            parent[tag] = root
            tag = root
        elif root > tag:
            parent[root] = tag
        k += 1
    return tag, max(j, k - 1)  # the last run above may touch the next run, too


@jit
def _join_seam(mask, diagonal, labels, parent, row):
    """Join the runs of a row to those of the row above after both were scanned."""
    cols = mask.shape[1]
    reach = 1 if diagonal else 0
    over, edges = np.empty(cols + 2, np.int64), np.empty(cols + 2, np.int64)
    above = find_runs(mask[row - 1].view(np.uint8), over)
    over_tags = labels[row - 1][over[: 2 * above : 2]]
    j = 0
    for run in range(find_runs(mask[row].view(np.uint8), edges)):
        start, end = edges[2 * run], edges[2 * run + 1]
        tag = labels[row, start]
        while parent[tag] != tag:
            tag = parent[tag]
        tag, j = _join_run(start - reach, end + reach, tag, over, over_tags, above, j, parent)


@jit
def _first_cells(parent, cells, start, stop):
    """Replace labels by the first cells of their roots."""
    for label in range(start, stop):
        above = parent[label]
        parent[label] = cells[label] if above == label else parent[above]


@jit
def fill(mask, labels, values, top, bottom):
    """Second pass over rows `top` to `bottom`: set each run's cells to the value of its label.

    Cells outside the mask get ``values[0]``.
    """
    cols = mask.shape[1]
    for row in range(top, bottom):
        line, out = mask[row].view(np.uint8), labels[row]
        words = line[: cols // 8 * 8].view(np.uint64)
        before, value = 0, np.int64(values[0])
        for word in range(len(words)):
            if words[word] == (ALL if before else NONE):
                out[8 * word : 8 * word + 8] = value
                continue
            for col in range(8 * word, 8 * word + 8):
                before, value = _next(line, out, values, col, before, value)
        for col in range(8 * len(words), cols):
            before, value = _next(line, out, values, col, before, value)


@register_jitable
def _next(line, out, values, col, before, value):
    here = np.int64(line[col])
    change = -(here ^ before)
    # Branch-free: the value of the label at a run's first cell, else values[0].
    other = np.int64(values[out[col] & change & -here])
    value ^= (value ^ other) & change
    out[col] = value
    return here, value
