"""Connected components of a condition over layers, out of core.

- `pipeline`: `label_components`, blocks streamed twice, and its plan
- `block`: components of one block, measured and numbered
- `joins`: components across blocks, and the order of all
- `table`: sizes, areas and boxes, as CSV, Parquet or GeoJSON
"""

from .pipeline import LAYER, Components, label_components, plan_components

__all__ = ["LAYER", "Components", "label_components", "plan_components"]
