"""Proofs of conversions and exports; they share no code with the programs that they check."""
