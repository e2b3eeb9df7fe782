"""Show a store as a map in the browser: `MapServer`."""

from .server import MapServer

__all__ = ["MapServer"]
