"""Faults in files, made between steps. Those of processes are in `child.py`."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HOSTILE: list[Any] = [
    None, True, -1, 0, 1, 3, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**30, 1e308, -0.5, float("nan"),
    "", "NaN", "../../../etc/passwd", "/etc/passwd", "x" * 100_000, [], {}, [0], [2**40, 2**40],
    {"name": "zstd"}, [[[[[]]]]], "\ud800",
]  # fmt: skip
"""What a number, a word or a list in metadata may turn into."""


def files_of(folder: Path, kind: str) -> list[Path]:
    """Files of a kind in a folder of a case, sorted: the same in every replay."""
    if kind in ("input", "vector"):
        start = {"input": "in-", "vector": "from."}[kind]
        return sorted(path for path in folder.iterdir() if path.name.startswith(start))
    found = []
    for path in folder.glob("s.zarr*/**/*"):
        name = path.relative_to(folder)
        is_kind = {
            "shard": "c" in name.parts and ".incomplete" not in name.parts,
            "metadata": path.name == "zarr.json" and len(name.parts) > 2,
            "group": path.name == "zarr.json" and len(name.parts) == 2,
            "manifest": path.suffix == ".jsonl",
            "spill": ".incomplete" in name.parts and path.suffix != ".jsonl",
            "index": "distance_index" in name.parts,
            "coordinates": bool({"x", "y"} & {*name.parts}),
        }
        if is_kind[kind] and not path.is_dir():
            found.append(path)
    return sorted(found)


def damage(folder: Path, older: Path, kind: str, way: str, pick: float) -> str | None:
    """Damage one file; return what was done, or None where there is nothing to damage."""
    files = files_of(folder, kind)
    if not files:
        return None
    rng = random.Random(pick)
    path = rng.choice(files)
    name = path.relative_to(folder)
    if way == "link":
        return _link(folder, path, rng)
    if way == "delete":
        path.unlink()
        return f"deleted {name}"
    if way == "swap":
        other = rng.choice(files)
        if other == path or not path.is_file() or not other.is_file():
            return None
        a, b = path.read_bytes(), other.read_bytes()
        path.write_bytes(b)
        other.write_bytes(a)
        return f"swapped {name} and {other.relative_to(folder)}" if a != b else None
    if not path.is_file():
        return None
    data = path.read_bytes()
    if way == "older":
        before = older / name
        if not before.is_file() or before.read_bytes() == data:
            return None
        path.write_bytes(before.read_bytes())
        return f"{name} is as it was before the last step"
    new = _changed(data, way, rng, is_json=path.name.endswith("json"))
    if new == data:
        return None
    path.write_bytes(new)
    first = next((k for k, (a, b) in enumerate(zip(data, new, strict=False)) if a != b), len(new))
    return f"{way}: {name}, {len(data)} bytes, from byte {min(first, len(data))} on"


def _changed(data: bytes, way: str, rng: random.Random, *, is_json: bool) -> bytes:
    at = rng.randrange(len(data)) if data else 0
    if way == "hostile":
        if is_json:
            return hostile_json(data, rng)
        way = rng.choice(["flip", "zero", "cut"])
    if way == "flip" and data:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if way == "zero":
        start = at // 512 * 512
        end = min(start + 512, len(data))
        return data[:start] + bytes(end - start) + data[end:]
    if way == "cut":
        return data[:at]
    return data + rng.randbytes(rng.choice([1, 4, 512, 5000]))


def hostile_json(data: bytes, rng: random.Random) -> bytes:
    """The JSON with one of its values replaced, or nested very deeply."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if rng.random() < 0.05:
        return b"[" * 100_000 if rng.random() < 0.5 else b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    places = list(_places(tree))
    if not places:
        return data
    holder, key = rng.choice(places)
    if isinstance(holder, dict) and rng.random() < 0.15:
        del holder[key]
    else:
        holder[key] = rng.choice(HOSTILE)
    return json.dumps(tree).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(items):
        yield tree, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _link(folder: Path, path: Path, rng: random.Random) -> str | None:
    """Move a file, or a folder above it, out of the store and leave a link; see `outside`."""
    above = [p for p in path.parents if folder / "s.zarr" in p.parents]
    moved = rng.choice([path, *above])
    place = outside(folder) / f"{rng.randrange(10**6)}"
    if not moved.exists() or moved.is_symlink() or place.exists():
        return None
    place.parent.mkdir(exist_ok=True)
    shutil.move(moved, place)
    os.symlink(place, moved)
    return f"{moved.relative_to(folder)} is a link that leads out of the store"


def outside(folder: Path) -> Path:
    """What links lead to: no command may change a file there."""
    return folder.with_name(f"{folder.name}.outside")
