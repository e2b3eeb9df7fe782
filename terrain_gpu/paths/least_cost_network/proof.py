"""Proof of a network of places: of its lines, and that no other step links places at less cost.

Distances, backlinks and allocation are assumed to be right; they have their own proof. The file is
read back. A line must follow backlinks from its two places to one step between their areas, which
determines its cost, length and climb. The costs of all steps of the raster between two areas are
computed again, and

- in a network of areas that touch, no step costs less than the link of its two places, and any two
  places with such a step have a link;
- in a tree, no step costs less than any link on the path between its two places (the cycle
  property), and any two places with such a step are connected. The links contain no cycle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...engine.plan import Excess
from ...engine.proof import Limits, Read, check_blocks, plan_proof
from ...errors import VerificationError
from ...facts import Settings
from ...grid import TILE, Block
from ...grid.neighbours import CODE_16, COL_STEP_16, EDGE_OF_16, ROW_STEP_16
from ...io.places import Places
from ...io.proof.line_files import (
    Batch,
    FileRoom,
    LineFile,
    check_attributes,
    read_lines,
    wrong_line,
)
from ...plurals import counted
from ...store.readable import Readable
from ..cost.knights import Options
from ..cost.proof import prices
from ..cost.terrain import Terrain
from ..proof.lines import values_at

_NO_STEP = 4
"""Direction of the step of a link between places that share a cell."""

_FORWARD = 0, 1, 2, 3, 8, 9, 10, 11
"""Neighbours of a cell that come after it, row by row."""

_CELL_BYTES = 150
"""Memory for a cell of a block while its steps are compared."""

_LINK_BYTES = 1000


class NetworkLayers(NamedTuple):
    """The layers of a network; elevations are None if the raster holds frictions."""

    distances: Readable
    backlinks: Any
    allocation: Any
    heights: Any


class LinkClaim(NamedTuple):
    """The content of a line: its places, lower id first, its cost, and the step between areas."""

    one: int
    other: int
    cost: float
    cell: int
    direction: int


@dataclass
class NetworkProof:
    """The data with which a network is checked.

    Attributes
    ----------
    file
        The file of lines.
    terrain, options
        The cells that paths cross, and the steps that exist; see `fill_weights`.
    places
        The places, including those that share a cell.
    tree
        Whether the links form a tree, instead of linking areas that touch.
    most
        The largest cost of a link; infinite without a limit.
    """

    file: LineFile
    layers: NetworkLayers
    terrain: Terrain
    options: Options
    places: Places
    tree: bool
    most: float

    def run(self, limits: Limits) -> dict[str, int]:
        """Check everything; return the number of links and of steps between areas.

        Raises
        ------
        VerificationError
            at the first violation found.
        PlanError
            when the memory limit is too small.
        """
        claims = self._claims(limits)
        bound = _Bounds(claims, tree=self.tree, path=self.file.path)
        self._shared(claims, bound)
        by_cell = {(c.cell, c.direction): c for c in claims if c.direction != _NO_STEP}
        seen, total = 0, 0
        blocks = self.terrain.blocks
        halo = self.terrain.halo
        reads = [Read(self.layers.allocation, halo), Read(self.layers.distances, halo)]
        worker, held = _CELL_BYTES * blocks.largest(TILE // 2), _LINK_BYTES * len(claims)
        plan = plan_proof(blocks, reads, limits, worker=worker, held=held)

        def check(at: Block, cells: list[np.ndarray]) -> tuple[int, int]:
            return self._check(at, cells[0], cells[1], by_cell, bound)

        def add(at: Block, found: tuple[int, int]) -> None:
            nonlocal seen, total
            seen, total = seen + found[0], total + found[1]

        check_blocks(plan, blocks, reads, check, add, limits)
        if seen != len(by_cell):
            raise VerificationError(
                f"{self.file.path}: {counted(len(by_cell) - seen, 'line crosses', 'lines cross')} "
                "between areas where there is no step; write it again with --overwrite",
                "line",
            )
        return {"links": len(claims), "steps": total}

    # -- the lines ------------------------------------------------------------------------------

    def _claims(self, limits: Limits) -> list[LinkClaim]:
        names = {name: k for k, name in self.places.names.items()}
        found: list[LinkClaim] = []

        room = FileRoom(Excess(0, limits.memory_limit), "to verify a line")
        for batch in read_lines(self.file, room):
            found += self._lines(batch.without_repeats(), names)
        pairs = [(claim.one, claim.other) for claim in found]
        if any(one >= two for one, two in pairwise(pairs)):
            raise VerificationError(
                f"{self.file.path}: lines are not sorted by their places; write it again with "
                "--overwrite",
                "line",
            )
        return found

    def _lines(self, batch: Batch, names: dict[str, int]) -> list[LinkClaim]:
        cols, path = self.terrain.blocks.cols, self.file.path
        how: Settings = {"wraps": self.file.wraps, "ways": 8 * self.terrain.halo}
        steps = batch.steps(path, cols, **how).astype(np.int64)
        all_codes = self._values(self.layers.backlinks, batch.cells)
        all_ids = self._values(self.layers.allocation, batch.cells)
        over = self.layers.heights
        rises = None if over is None else self._values(over, batch.cells)
        found = []
        for n, own in enumerate(batch.attributes):
            number, part = batch.number + n, slice(*batch.starts[n : n + 2].tolist())
            one, other = (
                names.get(str(own.get(k))) if names else own.get(k) for k in ("from", "to")
            )
            if type(one) is not int or type(other) is not int or not 0 < one < other:
                wrong_line(path, number, "does not go from a place to one with a greater id")
            if type(own.get("cost")) not in (int, float):
                wrong_line(path, number, "has no cost")
            cells, codes, ids = batch.cells[part], all_codes[part], all_ids[part]
            first = self._parted(number, cells, ids, codes, steps[part][:-1], one, other)
            heights = None if rises is None else rises[part]
            right = {"from": own["from"], "to": own["to"], "cost": own.get("cost")}
            right |= self._measured(cells, steps[part][:-1], heights)
            check_attributes(path, number, {k: v for k, v in own.items() if v is not None},
                             {k: v for k, v in right.items() if v is not None})  # fmt: skip
            step = int(cells[first - 1]), _NO_STEP
            if len(cells) > 1:  # a step is identified by its first cell in row-major order
                k = int(steps[part][first - 1])
                step = (int(cells[first - 1]), k) if k % 8 < 4 else (int(cells[first]), k - 4)
            found.append(LinkClaim(one, other, own["cost"], *step))
        return found

    def _parted(
        self,
        number: int,
        cells: np.ndarray,
        ids: np.ndarray,
        codes: np.ndarray,
        steps: np.ndarray,
        one: int,
        other: int,
    ) -> int:
        """Check that a line follows backlinks to both its places; return the number of cells in
        the area of the first one."""
        path = self.file.path
        if len(cells) == 1:
            row, col = divmod(int(cells[0]), self.terrain.blocks.cols)
            here = (self.places.rows == row) & (self.places.cols == col)
            if not {one, other} <= set(self.places.ids[here].tolist()):
                wrong_line(path, number, "its places do not share the cell")
            return 1
        first = int((ids == one).sum())
        right = np.full(len(ids), other)
        right[:first] = one
        if not 0 < first < len(ids) or (ids != right).any():
            wrong_line(path, number, "does not go from the area of one place to that of the other")
        back = np.zeros(len(cells), np.int64)
        back[1:first] = CODE_16[_opposite(steps[: first - 1])]
        back[first:-1] = CODE_16[steps[first:]]
        if (codes != back).any():
            wrong_line(path, number, "does not follow the backlinks to its places")
        return first

    def _measured(
        self, cells: np.ndarray, steps: np.ndarray, heights: np.ndarray | None
    ) -> dict[str, float | None]:
        row = cells // self.terrain.blocks.cols
        upper = np.minimum(row[1:], row[:-1])
        lengths = self.terrain.lengths[EDGE_OF_16[steps], upper + self.terrain.halo]
        climb = None
        if heights is not None:
            way = heights.tolist()[:: -1 if self.options[2] else 1]
            climb = math.fsum(max(b - a, 0) for a, b in pairwise(way))
        return {"length": math.fsum(lengths.tolist()), "climb": climb}

    def _values(self, layer: Readable, cells: np.ndarray) -> np.ndarray:
        return values_at(layer, self.terrain.blocks, cells)

    def _shared(self, claims: list[LinkClaim], bound: _Bounds) -> None:
        """Check links at cells that places share."""
        cols = self.terrain.blocks.cols
        at: dict[int, list[int]] = {}
        cells = self.places.rows * cols + self.places.cols
        for cell, name in zip(cells.tolist(), self.places.ids.tolist(), strict=True):
            at.setdefault(cell, []).append(name)
        costs = {}
        for cell, names in at.items():
            for name in names[1:]:
                bottleneck = self.terrain.model.kind.bottleneck
                cost = self._values(self.layers.distances, np.array([cell]))[0] if bottleneck else 0
                costs[min(names[0], name), max(names[0], name), cell] = cost
                one, other = (np.array([f(names[0], name)]) for f in (min, max))
                if bound.refuses(one, other, np.array([cost]), self.most)[0]:
                    self._wrong(*divmod(cell, cols), cost)
        for claim in claims:
            if claim.direction == _NO_STEP:
                right = costs.get((claim.one, claim.other, claim.cell))
                if right is None or right != claim.cost:
                    raise VerificationError(
                        f"{self.file.path}: the link of {claim.one} and {claim.other} costs "
                        f"{claim.cost} instead of {right}; write it again with --overwrite",
                        "line",
                    )

    # -- the steps between areas ----------------------------------------------------------------

    def _check(
        self,
        at: Block,
        ids: np.ndarray,
        distances: np.ndarray,
        claims: dict[tuple[int, int], LinkClaim],
        bound: _Bounds,
    ) -> tuple[int, int]:
        """Compare all steps of a block; return the numbers of steps of links and of all steps."""
        window = r0, r1, c0, c1 = self.terrain.blocks.window(*at)
        h, own = self.terrain.halo, (self.layers.allocation, self.layers.distances)
        for side, there in self.terrain.blocks.beyond_seam(window, h):
            beyond = (r0, r1, there, there + 1)
            for ring, layer in zip((ids, distances), own, strict=True):
                ring[:, side] = layer.read_ring(beyond, halo=h)[:, h]
        if len(np.unique(ids[ids > 0])) < 2:
            return 0, 0
        height, width, cols = r1 - r0, c1 - c0, self.terrain.blocks.cols
        dtype = np.dtype(np.float64 if distances.dtype.kind == "f" else np.uint64)
        weights = prices(self.terrain, at, self.options, distances.dtype)
        none = np.inf if dtype.kind == "f" else np.iinfo(distances.dtype).max >> 1
        inner = np.s_[h:-h, h:-h]
        here, seen, total = ids[inner], 0, 0
        for k in _FORWARD[: 4 * h]:
            dy, dx = int(ROW_STEP_16[k]), int(COL_STEP_16[k])
            near = np.s_[h + dy : h + dy + height, h + dx : h + dx + width]
            w = weights[k][:height, :width]
            rows, cells = np.nonzero(
                (here != ids[near]) & (here > 0) & (ids[near] > 0) & (w < none)
            )
            one, other = here[rows, cells], ids[near][rows, cells]
            a, b = distances[inner][rows, cells].astype(dtype), distances[near][rows, cells]
            step, b = w[rows, cells].astype(dtype), b.astype(dtype)
            if self.terrain.model.kind.bottleneck:
                cost = np.maximum(np.maximum(a, step), b)
            else:
                cost = (a + step) + b
            total += len(cost)
            ends = np.minimum(one, other), np.maximum(one, other)
            if (wrong := bound.refuses(*ends, cost, self.most)).any():
                n = int(wrong.argmax())
                self._wrong(r0 + int(rows[n]), c0 + int(cells[n]), cost[n])
            places = ((rows + r0) * cols + cells + c0).tolist()
            for n, cell in enumerate(places):
                claim = claims.get((cell, k))
                if claim is not None:
                    if (claim.one, claim.other, claim.cost) != (ends[0][n], ends[1][n], cost[n]):
                        raise VerificationError(
                            f"{self.file.path}: the link of {claim.one} and {claim.other} costs "
                            f"{claim.cost} instead of {cost[n]}; write it again with --overwrite",
                            "line",
                        )
                    seen += 1
        return seen, total

    def _wrong(self, row: int, col: int, cost: Any) -> None:
        raise VerificationError(
            f"{self.file.path}: row {row}, column {col}: a step between areas gives a link of cost "
            f"{cost}, less than the links between its places; write it again with --overwrite",
            "minimal",
            row,
            col,
        )


class _Bounds:
    """The largest cost of links between two places: of their own, or on the path in the tree."""

    def __init__(self, claims: list[LinkClaim], *, tree: bool, path: Any) -> None:
        self._own = {(c.one, c.other): c.cost for c in claims}
        self._tree = tree
        beside: dict[int, list[tuple[int, float]]] = {}
        for c in claims:
            beside.setdefault(c.one, []).append((c.other, c.cost))
            beside.setdefault(c.other, []).append((c.one, c.cost))
        self._up: dict[int, tuple[int, int, float]] = {}
        for root in beside if tree else ():
            if root in self._up:
                continue
            self._up[root] = (0, root, math.inf)  # depth, parent, cost of the link to it
            stack = [root]
            while stack:
                a = stack.pop()
                for b, cost in beside[a]:
                    if b == self._up[a][1] and self._up[a][0]:
                        continue
                    if b in self._up:
                        raise VerificationError(
                            f"{path}: the links of {a} and {b} are part of a cycle; write it "
                            "again with --overwrite",
                            "tree",
                        )
                    self._up[b] = (self._up[a][0] + 1, a, cost)
                    stack.append(b)

    def refuses(
        self, one: np.ndarray, other: np.ndarray, costs: np.ndarray, most: float
    ) -> np.ndarray:
        """Whether a link of this cost, at most `most`, would be better than the existing links."""
        pairs, which = np.unique(np.stack((one, other)), axis=1, return_inverse=True)
        least = np.full(pairs.shape[1], np.inf, object)
        np.minimum.at(least, which.ravel(), costs.astype(object))
        wrong = [
            cost <= most and ((bound := self._between(*pair)) is None or cost < bound)
            for pair, cost in zip(pairs.T.tolist(), least.tolist(), strict=True)
        ]
        return np.array(wrong, bool)[which.ravel()]

    def _between(self, a: int, b: int) -> float | None:
        """The greatest cost on the path between two places; None if they are not connected."""
        if not self._tree:
            return self._own.get((a, b))
        up, found = self._up, -math.inf
        if a not in up or b not in up:
            return None
        while a != b:
            if up[a][0] < up[b][0]:
                a, b = b, a
            if up[a][0] == 0:
                return None
            found = max(found, up[a][2])
            a = up[a][1]
        return found


def _opposite(steps: np.ndarray) -> np.ndarray:
    """The neighbours in the opposite direction."""
    return (steps + 4) % 8 + steps // 8 * 8
