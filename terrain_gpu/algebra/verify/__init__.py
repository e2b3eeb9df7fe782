"""Proofs of layers computed from others: `results` for `calc`, `features` for `rasterize`."""
