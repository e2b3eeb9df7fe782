"""Random pipelines of commands under random faults; see README.md in this folder."""

from .cases import Case, Fault, Step, Terrain, draw
from .processes import Failure
from .world import check

__all__ = ["Case", "Failure", "Fault", "Step", "Terrain", "check", "draw"]
