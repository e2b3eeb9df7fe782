"""Sums along the spanning forest: `accumulate`."""
