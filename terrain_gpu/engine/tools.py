"""The base of operations that are defined by a tool: `ToolOperation`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Self

from ..errors import StoreError
from ..store import TileStore
from ..tool import options_of
from .operation import Operation


@dataclass(frozen=True)
class ToolOperation(Operation):
    """An operation that is defined by a store and a tool."""

    store: str
    asked: Any

    @classmethod
    def of(cls, store: TileStore | None, asked: Any) -> Self:
        """Return the operation; `store` is None when only planning."""
        return cls("" if store is None else str(store.path), asked)

    @property
    def command(self) -> str:  # type: ignore[override]
        command: str = self.asked.command
        return command

    @property
    def mark(self) -> str:  # type: ignore[override]
        mark: str = self.asked.mark
        return mark

    def refuse_finished(self) -> None:
        for name, field in options_of(type(self.asked)).items():
            path = getattr(self.asked, name)
            if field.option.file == "table" and path is not None and not os.path.exists(path):
                raise StoreError(
                    f"{self.store}: layer {self.outputs[0].name!r} is complete but {path} is "
                    "missing; --overwrite without --resume computes both again"
                )

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(input_layer.layer for input_layer in self.asked.inputs())
