"""Connected components of a condition over layers, out of core.

- `pipeline`: `label_components`
- `problem`: the operation, blocks streamed twice, and its plan
- `block`: components of one block, measured and numbered
- `joins`: components across blocks, and the order of all
- `table`: sizes, areas and boxes, as CSV, Parquet or GeoJSON
"""

from .pipeline import Components, label_components
from .problem import LAYER, plan_components

__all__ = [
    "LAYER",
    "Components",
    "label_components",
    "plan_components",
]
