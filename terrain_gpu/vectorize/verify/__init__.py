"""Proofs of files that a layer was drawn to."""
