"""Proofs of conversions and exports; they share no code with what they check."""
