"""What a power cut may leave on a disk: the rules, and the states that they allow.

A recorded run is a list of operations on inodes: names (create, rename, unlink: entries of folders
that are set, all of one operation or none), data and sizes (write, truncate), and syncs. An fsync
of a file makes its data durable, an fsync of a folder its entries, and neither anything else. What
is not durable when the power goes may be there or not, one by one, but

- a rename is whole or not at all,
- operations on the same entry of a folder keep their order, so do truncations and later writes,
- of a write there may be all, nothing, its first sectors, or its size alone: zeros in a file that
  grew, what was there before in one that did not.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512
PAGE = 4096
HEADER = struct.Struct("<cqIIQ")
ROOT = 0

Entry = tuple[int, str]
Tree = dict[str, bytes | None]
"""Content of every file, None for folders."""


class Unmodelled(Exception):
    """The log holds what the model does not know, or misses what happened."""


@dataclass(frozen=True)
class Operation:
    """One step of a run.

    Attributes
    ----------
    kind
        "names", "write", "size", "sync" or "sync all".
    text
        For readers.
    names
        Entries that it sets: (folder, name, inode or None).
    inode
        Whose data or size it changes, or what it syncs.
    offset, data
        Of a write; the offset is the size for "size".
    """

    kind: str
    text: str
    names: tuple[tuple[int, str, int | None], ...] = ()
    inode: int = -1
    offset: int = 0
    data: bytes = b""

    @property
    def deletes(self) -> bool:
        """Whether it removes names and adds none."""
        return bool(self.names) and all(inode is None for _, _, inode in self.names)


class Trace:
    """A recorded run: what was there before, and every operation on it.

    Attributes
    ----------
    operations
        In the order of completion.
    pending
        For each number of operations done: those of them that are not durable.
    """

    def __init__(self, before: Path, log: Path) -> None:
        self.entries: dict[int, dict[str, int]] = {ROOT: {}}
        self.contents: dict[int, bytes] = {}
        self.times: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._scan(before, ROOT)
        self.operations: list[Operation] = []
        self._now = {folder: dict(names) for folder, names in self.entries.items()}
        self._data = {inode: bytearray(data) for inode, data in self.contents.items()}
        for record in _records(log):
            self._add(*record)
        self._needs = self._dependencies()
        self.pending = self._pending()

    # -- reading the log -------------------------------------------------------------------

    def _scan(self, path: Path, inode: int) -> None:
        for item in sorted(os.scandir(path), key=lambda item: item.name):
            new = self.entries[inode][item.name] = next(self._numbers)
            self.times[new] = item.stat().st_mtime_ns
            if item.is_dir():
                self.entries[new] = {}
                self._scan(Path(item.path), new)
            else:
                self.contents[new] = Path(item.path).read_bytes()

    def _entry(self, path: str) -> Entry:
        """Folder and name of a path as the log has it."""
        *folders, name = path.split("/")
        inode = ROOT
        for folder in folders:
            if folder not in self._now[inode]:
                raise Unmodelled(f"no folder for {path}")
            inode = self._now[inode][folder]
        return inode, name

    def _inode(self, path: str) -> int:
        if not path:
            return ROOT
        folder, name = self._entry(path)
        if name not in self._now[folder]:
            raise Unmodelled(f"{path} came into being without a record")
        return self._now[folder][name]

    def _add(self, op: str, path: str, other: str, number: int, data: bytes) -> None:
        if op == "S":
            self._set_content(path, data)
        elif op in "CM":
            folder, name = self._entry(path)
            if name in self._now[folder]:
                raise Unmodelled(f"{path} was there already")
            new = next(self._numbers)
            if op == "M":
                self.entries[new], self._now[new] = {}, {}
            else:
                self.contents[new], self._data[new] = b"", bytearray()
            self._names({"C": "create", "M": "mkdir"}[op] + f" {path}", (folder, name, new))
        elif op == "U":
            self._inode(path)
            self._names(f"unlink {path}", (*self._entry(path), None))
        elif op == "R":
            moved = self._inode(path)
            source, target = (*self._entry(path), None), (*self._entry(other), moved)
            if source[:2] != target[:2]:
                self._names(f"rename {path} -> {other}", source, target)
        elif op == "W":
            self._write(self._inode(path), number, data, path)
        elif op == "T":
            self._resize(self._inode(path), number, path)
        elif op == "F":
            self._append(Operation("sync", f"fsync {path or '.'}", inode=self._inode(path)))
        elif op == "Y":
            self._append(Operation("sync all", "sync"))
        else:
            raise Unmodelled(f"{op} {path} {other}")

    def _append(self, operation: Operation) -> None:
        self.operations.append(operation)

    def _names(self, text: str, *names: tuple[int, str, int | None]) -> None:
        for folder, name, inode in names:
            if inode is None:
                del self._now[folder][name]
            else:
                self._now[folder][name] = inode
        self._append(Operation("names", text, names))

    def _write(self, inode: int, offset: int, data: bytes, path: str) -> None:
        _put(self._data[inode], offset, data)
        text = f"write {path} {offset}+{len(data)}"
        self._append(Operation("write", text, inode=inode, offset=offset, data=data))

    def _resize(self, inode: int, size: int, path: str) -> None:
        if size != len(self._data[inode]):
            _resize(self._data[inode], size)
            text = f"truncate {path} to {size}"
            self._append(Operation("size", text, inode=inode, offset=size))

    def _set_content(self, path: str, data: bytes) -> None:
        """What was not recorded as writes becomes writes of pages."""
        inode = self._inode(path)
        if data == self._data[inode]:
            return
        if len(data) < len(self._data[inode]):
            self._resize(inode, len(data), path)
        old = bytes(self._data[inode])
        for start in range(0, len(data), PAGE):
            part = data[start : start + PAGE]
            if part != old[start : start + PAGE]:
                self._write(inode, start, part, path)

    # -- the rules -------------------------------------------------------------------------

    def _dependencies(self) -> list[tuple[int, ...]]:
        """For each operation, the earlier ones that it needs."""
        last: dict[Entry, int] = {}
        sizes: dict[int, int] = {}
        needs = []
        for number, operation in enumerate(self.operations):
            entries = [(folder, name) for folder, name, _ in operation.names]
            found = [last[entry] for entry in entries if entry in last]
            last.update(dict.fromkeys(entries, number))
            if operation.kind in ("write", "size") and operation.inode in sizes:
                found.append(sizes[operation.inode])
            if operation.kind == "size":
                sizes[operation.inode] = number
            needs.append(tuple(found))
        return needs

    def _with_needs(self, numbers: Iterable[int]) -> set[int]:
        """Operations and all that they need."""
        found: set[int] = set()
        left = list(numbers)
        while left:
            number = left.pop()
            if number not in found:
                found.add(number)
                left += self._needs[number]
        return found

    def _pending(self) -> list[list[int]]:
        pending: list[int] = []
        found = [[]]
        for number, operation in enumerate(self.operations):
            if operation.kind == "sync all":
                pending = []
            elif operation.kind == "sync":
                durable = self._with_needs(
                    k for k in pending if operation.inode in self._touched(k)
                )
                pending = [k for k in pending if k not in durable]
            else:
                pending = [*pending, number]
            found.append(pending)
        return found

    def _touched(self, number: int) -> set[int]:
        """Inodes whose fsync makes an operation durable."""
        operation = self.operations[number]
        return {folder for folder, _, _ in operation.names} or {operation.inode}

    def without(self, done: int, dropped: Iterable[int]) -> set[int]:
        """All pending operations except some, and those that need them."""
        gone = set(dropped)
        kept = set()
        for number in self.pending[done]:
            if number in gone or gone.intersection(self._needs[number]):
                gone.add(number)
            else:
                kept.add(number)
        return kept

    def only(self, done: int, wanted: Iterable[int]) -> set[int]:
        """Some pending operations, and what they need."""
        return self._with_needs(wanted).intersection(self.pending[done])

    def final(self) -> Tree:
        """What is there when all is written."""
        done = len(self.operations)
        return State(self, done, "all", dict.fromkeys(self.pending[done], -1)).tree()

    # -- the states ------------------------------------------------------------------------

    def states(self, seed: int, first: int = 0) -> Iterator[State]:
        """States after every operation from `first` on, the kinds in turn, each shuffled."""
        order = random.Random(seed)
        kinds: dict[str, list[tuple[int, int]]] = {}
        for done in range(first + 1, len(self.operations) + 1):
            if self.operations[done - 1].kind.startswith("sync"):
                continue
            pending = self.pending[done]
            data = [k for k in pending if self.operations[k].kind == "write"]
            folders = {f for k in pending for f, _, _ in self.operations[k].names}
            files = {self.operations[k].inode for k in data}
            for kind, which in (
                ("all", [0]),
                ("none", [0]),
                ("zeros", [0] if data else []),
                ("torn", data[-1:]),
                ("undeleted", [0] if any(self.operations[k].deletes for k in pending) else []),
                ("folder", sorted(folders)),
                ("only folder", sorted(folders)),
                ("file", sorted(files)),
                ("without", pending),
                ("only", pending),
                ("random", range(4)),
            ):
                kinds.setdefault(kind, []).extend((done, k) for k in which)
        for choices in kinds.values():
            order.shuffle(choices)
        left = {kind: iter(choices) for kind, choices in kinds.items()}
        while left:
            for kind in list(left):
                choice = next(left[kind], None)
                if choice is None:
                    del left[kind]
                else:
                    yield self._state(kind, *choice, order)

    def _state(self, kind: str, done: int, k: int, order: random.Random) -> State:
        pending = self.pending[done]
        sizes: set[int] = set()
        torn: dict[int, int] = {}
        label = kind
        if kind == "all":
            chosen = set(pending)
        elif kind == "none":
            chosen = set()
        elif kind == "zeros":
            chosen = sizes = set(pending)
        elif kind == "torn":
            chosen, torn = set(pending), {k: len(self.operations[k].data) // SECTOR // 2}
        elif kind == "undeleted":
            chosen = self.without(done, (n for n in pending if self.operations[n].deletes))
        elif kind in ("folder", "only folder"):
            of = [n for n in pending if k in {f for f, _, _ in self.operations[n].names}]
            chosen = self.without(done, of)
            if kind == "only folder":
                data = [n for n in pending if not self.operations[n].names]
                chosen = self.only(done, of + data)
        elif kind == "file":
            of = [n for n in pending if self.operations[n].inode == k]
            chosen = self.without(done, of)
            if order.random() < 0.5:
                chosen, sizes = set(pending), set(of)
                label = "file of zeros"
        elif kind == "without":
            chosen = self.without(done, [k])
        elif kind == "only":
            chosen = self.only(done, [k])
        else:
            share = order.random()
            chosen = self.without(done, [n for n in pending if order.random() < share])
            for n in chosen:
                how = order.random()
                if how < 0.15:
                    sizes.add(n)
                elif how < 0.3:
                    torn[n] = order.randrange(1 + len(self.operations[n].data) // SECTOR)
        data = {n for n in chosen if self.operations[n].kind == "write"}
        modes = {n: torn.get(n, 0 if n in sizes else -1) if n in data else -1 for n in chosen}
        return State(self, done, label, modes)


@dataclass(frozen=True)
class State:
    """What a power cut leaves.

    Attributes
    ----------
    done
        Operations that were done.
    kind
        How it was chosen.
    modes
        For each pending operation that is present: how many sectors of its data are, -1 for all.
    """

    trace: Trace
    done: int
    kind: str
    modes: dict[int, int]

    def tree(self) -> Tree:
        """Every file and folder."""
        return {path: data for path, data, _ in self._walk()}

    def _walk(self) -> Iterator[tuple[str, bytes | None, int | None]]:
        """Path, content, and time of change where it is the old one."""
        pending = set(self.trace.pending[self.done])
        entries = {folder: dict(names) for folder, names in self.trace.entries.items()}
        changes: dict[int, list[int]] = {}
        for number, operation in enumerate(self.trace.operations[: self.done]):
            if number in pending and number not in self.modes:
                continue
            for folder, name, inode in operation.names:
                if inode is None:
                    entries[folder].pop(name, None)
                else:
                    entries[folder][name] = inode
            if operation.kind in ("write", "size"):
                changes.setdefault(operation.inode, []).append(number)

        def content(inode: int) -> bytes:
            data = bytearray(self.trace.contents[inode])
            for number in changes.get(inode, ()):
                operation = self.trace.operations[number]
                if operation.kind == "size":
                    _resize(data, operation.offset)
                    continue
                sectors = self.modes.get(number, -1)
                end = operation.offset + len(operation.data)
                there = len(operation.data) if sectors < 0 else sectors * SECTOR
                if len(data) < end:
                    _resize(data, end)
                _put(data, operation.offset, operation.data[:there])
            return bytes(data)

        def walk(folder: int, path: str) -> Iterator[tuple[str, bytes | None, int | None]]:
            for name, inode in sorted(entries[folder].items()):
                here = f"{path}{name}"
                if inode in entries:
                    yield here, None, None
                    yield from walk(inode, f"{here}/")
                else:
                    time = None if inode in changes else self.trace.times.get(inode)
                    yield here, content(inode), time

        return walk(ROOT, "")

    def make(self, root: Path) -> None:
        """Write it to an empty or absent folder."""
        root.mkdir(exist_ok=True)
        for path, data, time in self._walk():
            if data is None:
                (root / path).mkdir()
                continue
            (root / path).write_bytes(data)
            if time is not None:
                os.utime(root / path, ns=(time, time))

    @property
    def digest(self) -> str:
        """Equal for equal trees."""
        found = hashlib.blake2b(digest_size=16)
        for path, data, _ in self._walk():
            found.update(f"{path}\0{-1 if data is None else len(data)}\0".encode() + (data or b""))
        return found.hexdigest()

    def missing(self) -> list[int]:
        """Pending operations that are not wholly present."""
        return [k for k in self.trace.pending[self.done] if self.modes.get(k, 0) >= 0]

    def with_all_but(self, missing: Iterable[int]) -> State:
        """The same moment with less missing: only some of it."""
        missing = set(missing)
        lost = self.trace.without(self.done, missing - self.modes.keys())
        modes = {k: self.modes[k] if k in missing and k in self.modes else -1 for k in lost}
        return State(self.trace, self.done, self.kind, modes)

    def describe(self, most: int = 40) -> str:
        """The moment, and what is missing."""
        operations = self.trace.operations
        lines = [f"power cut after operation {self.done}: {operations[self.done - 1].text}"]
        missing = self.missing()
        for k in missing[:most]:
            sectors = self.modes.get(k)
            how = (
                "lost" if sectors is None else "size only" if not sectors else f"{sectors} sectors"
            )
            lines.append(f"  {how}: operation {k + 1}: {operations[k].text}")
        if len(missing) > most:
            lines.append(f"  and {len(missing) - most} more")
        return "\n".join(lines)


def _records(log: Path) -> Iterator[tuple[str, str, str, int, bytes]]:
    data, at = log.read_bytes(), 0
    root: str | None = None
    while at < len(data):
        op, number, path, other, size = HEADER.unpack_from(data, at)
        at += HEADER.size
        names = data[at : at + path].decode(), data[at + path : at + path + other].decode()
        at += path + other
        if root is None:
            root = names[0]  # the first record names the folder
        else:
            here, there = (name[len(root) + 1 :] for name in names)
            yield op.decode(), here, there, number, data[at : at + size]
        at += size


def _put(data: bytearray, offset: int, part: bytes) -> None:
    if offset > len(data):
        _resize(data, offset)
    data[offset : offset + len(part)] = part


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def tree_of(root: Path) -> Tree:
    """Every file and folder below a folder."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }
