"""Kinds of cells, for breaching."""

NO_VALUE, PLAIN, OUTLET, PIT = range(4)
