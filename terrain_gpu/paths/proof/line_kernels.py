"""The kernel that prices the steps of a path."""

from __future__ import annotations

from ...compiled import jit
from ..cost.edges import edge


@jit
def price_steps(cost, a, b, fa, fb, lengths, found):
    kind = found.dtype.type
    for n in range(len(found)):
        found[n] = kind(edge(cost, a[n], b[n], fa[n], fb[n], lengths[n]))
