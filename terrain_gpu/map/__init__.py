"""A map of a store in the browser: `MapServer`."""

from .server import MapServer

__all__ = ["MapServer"]
