"""What `terrain-gpu plan` plans: its purposes, and their commands."""

from __future__ import annotations

from ..tools import TOOLS

COMMANDS = {
    "convert": "convert-dataset",
    "mst": "compute-mst",
    "sssp": "compute-sssp",
    "index": "build-index",
    "components": "label-components",
}
"""The commands of purposes that are not called like these."""

_PURPOSES = {command: purpose for purpose, command in COMMANDS.items()}
PURPOSES = (
    "convert",
    "export",
    *(_PURPOSES.get(command, command) for command in TOOLS),
)

UNPLANNED = {
    "overviews": "it reads each layer once, and writes a third of its cells",
    "query-index": "it reads as much of the index as --memory-limit allows",
}
"""Commands without a plan, and why."""
