"""Proof that labels are the connected components of a condition, numbered: `verify_labels`.

It shares nothing with the program that labels except the condition. Labels are right exactly when

1. the cells with a label are those where the condition holds;
2. neighbouring ones have the same label, so that each component has one;
3. read row by row, a label that was not seen before is the next after all that were: 1, 2, ...;
4. there are as many components as labels, so that no two components share one.

By 2, a label belongs to whole components, by 4 to one of them, and by 3 to the one whose first cell
has the rank that it says. For 4 components are counted as trees are: cells less the neighbours that
could be joined without closing a cycle, in blocks and then over the lines between them (a plain
union-find over cells, where the program that labels goes from run to run). For 3, each row of a
block reports only its largest label, and the label from which it met all labels up to that one in
order: a smaller label that it lacks was either met earlier or is missing.

Every cell is read once. Memory is O(rim). Tables of components are not checked.
"""

from .checker import plan_labels, verify_labels, verify_stored_labels

__all__ = ["plan_labels", "verify_labels", "verify_stored_labels"]
