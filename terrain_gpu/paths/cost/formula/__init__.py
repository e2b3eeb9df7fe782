"""Costs of steps as formulas that users write: parsed, checked, compiled to a small program."""
