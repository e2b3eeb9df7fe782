"""Fill depressions: `fill`; `epsilon` so that every flow path falls."""
