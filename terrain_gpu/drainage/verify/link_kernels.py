"""Orders and codes of links as proofs find them, see `link_graph`."""

from __future__ import annotations

import numpy as np

from ...compiled import jit


@jit
def climb(order, down, strahler, shreve):
    """Strahler and Shreve orders of links, which come after all that flow into them in `order`."""
    several = np.zeros(len(order), np.int64)
    strahler[:] = 0
    shreve[:] = 0
    for at in order:
        # So far, the greatest order that flows in.
        strahler[at] += several[at] != 1
        shreve[at] += several[at] == 0
        to = down[at]
        if to < 0:
            continue
        shreve[to] += shreve[at]
        if strahler[at] > strahler[to]:
            strahler[to], several[to] = strahler[at], 0
        several[to] += strahler[at] == strahler[to]


@jit
def build_parts(tributaries, into, along, root, chosen, parts):
    """Put tributaries, the largest first, into the tree of parts of the stems that they flow into.

    Parameters
    ----------
    into, along
        The stem that each flows into, and numbers that grow up every stem.
    root
        Receives the part that a stem is as a whole; -1 without tributaries.
    chosen, parts
        Shapes (n, 4) and (n, 5), filled with -1: receive the tributaries at which a part is
        divided, from the outlet up, and the parts below, between and above these.
    """
    count = 0
    for one in tributaries:
        at = root[into[one]]
        if at < 0:
            at = root[into[one]] = count
            count += 1
        while chosen[at, 3] >= 0:
            k = 0
            while k < 4 and along[chosen[at, k]] < along[one]:
                k += 1
            if parts[at, k] < 0:
                parts[at, k] = count
                count += 1
            at = parts[at, k]
        k = 3
        while k > 0 and (chosen[at, k - 1] < 0 or along[chosen[at, k - 1]] > along[one]):
            chosen[at, k] = chosen[at, k - 1]
            k -= 1
        chosen[at, k] = one


@jit
def spell(link, places, tree, chain, digits):
    """Write the code of a link to `digits`, as text; return its length.

    Parameters
    ----------
    places
        Of all links: the one that each flows into, the lowest of its stem, its place there, and, of
        tributaries, the place that they flow into, and `along`.
    tree
        `root`, `chosen` and `parts`, see `build_parts`.
    chain
        Work space.
    """
    down, stem, place, mouth, along = places
    root, chosen, parts = tree
    depth, at = 0, link
    while at >= 0:
        chain[depth] = at
        depth += 1
        at = down[stem[at]]
    count = 0
    while depth:
        # Up a stem from its lowest link, to the link itself or the next tributary's mouth.
        depth -= 1
        at = chain[depth]
        leave = stem[chain[depth - 1]] if depth else -1
        part = root[stem[at]]
        while part >= 0:
            k = 0
            while k < 4 and chosen[part, k] >= 0:
                one = chosen[part, k]
                if along[one] >= along[leave] if depth else mouth[one] >= place[at]:
                    break
                k += 1
            left = depth > 0 and k < 4 and chosen[part, k] == leave
            digits[count] = 49 + 2 * k + left
            count += 1
            part = -1 if left else parts[part, k]
    if count == 0:
        digits[0], count = 49, 1
    return count
