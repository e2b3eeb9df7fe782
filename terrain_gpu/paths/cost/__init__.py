"""The cost of a step: models, formulas, units, and the cells that paths run over."""
