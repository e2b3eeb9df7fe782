"""Proofs of spanning forests, which share no code with what finds them."""
