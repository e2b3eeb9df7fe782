"""Connected components of a condition over layers, out of core.

- `pipeline`: `label_components`
- `operation`: the operation, blocks streamed twice, and its plan
- `block`: components of one block, measured and numbered
- `joins`: components across blocks, and the order of all
- `table`: sizes, areas and boxes, as CSV, Parquet or GeoJSON
"""

from .operation import LAYER, plan_components
from .pipeline import Components, label_components

__all__ = [
    "LAYER",
    "Components",
    "label_components",
    "plan_components",
]
