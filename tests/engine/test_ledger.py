"""The ledger: any message comes back as it was, and damage only loses what follows."""

from __future__ import annotations

from dataclasses import dataclass
from shutil import rmtree
from typing import Any, NamedTuple

import numpy as np
import pytest
from contract import Stop, make_store, stop_at
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from terrain_gpu import label_components
from terrain_gpu.engine import ledger
from terrain_gpu.engine.ledger import Ledger
from terrain_gpu.errors import StoreError
from terrain_gpu.store.checksums import crc32c, sealed_line


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Part:
    cells: np.ndarray
    rest: Any = ()


KINDS = (Pair, Part)
PADDED = np.dtype([("a", "u1"), ("b", "<f8", (2,))], align=True)

DTYPES = st.one_of(
    arrays.scalar_dtypes().filter(lambda kind: kind.kind not in "OMmUS"), st.just(PADDED)
)
ARRAYS = DTYPES.flatmap(
    lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), ARRAYS,
    st.floats().map(np.float64), st.integers(0, 99).map(np.int64),
)  # fmt: skip
MESSAGES = st.recursive(
    PLAIN,
    lambda each: st.one_of(
        st.lists(each, max_size=3),
        st.lists(each, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), each, max_size=3),
        st.builds(Pair, each, each),
        st.builds(Part, ARRAYS, each),
    ),
    max_leaves=6,
)


def same(one, other) -> bool:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray | np.generic):
        assert one.dtype == other.dtype
        assert np.asarray(one).dtype.isalignedstruct == np.asarray(other).dtype.isalignedstruct
        return one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, Part):
        return same((one.cells, one.rest), (other.cells, other.rest))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return np.array_equal([one], [other], equal_nan=isinstance(one, float))


def written(path, passes) -> None:
    made = Ledger(path, KINDS)
    for name, messages in passes:
        assert list(made.replay(name)) == []
        for k, message in enumerate(messages):
            made.record((k, k + 1), message)
    made.close()


@given(st.lists(MESSAGES, max_size=4), st.lists(MESSAGES, max_size=4))
def test_messages_come_back(tmp_path_factory, first, second):
    path = tmp_path_factory.mktemp("ledger") / "log"
    written(path, [("first", first), ("second", second)])
    found = Ledger(path, KINDS)
    for name, messages in (("first", first), ("second", second)):
        replayed = list(found.replay(name))
        assert [at for at, _ in replayed] == [(k, k + 1) for k in range(len(messages))]
        assert same([message for _, message in replayed], messages)
    found.close()


@given(st.data())
def test_damage_loses_only_what_follows(tmp_path_factory, data):
    """Cut short or changed anywhere; what is recorded again completes it."""
    path = tmp_path_factory.mktemp("ledger") / "log"
    messages = [(k, np.arange(k)) for k in range(5)]
    written(path, [("pass", messages)])
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    broken = data.draw(st.sampled_from([b"", bytes([whole[at] ^ 1]) + whole[at + 1 :]]))
    path.write_bytes(whole[:at] + broken)
    again = Ledger(path, KINDS)
    kept = list(again.replay("pass"))
    assert len(kept) < 5
    assert same([message for _, message in kept], messages[: len(kept)])
    for k in range(len(kept), 5):
        again.record((k, k + 1), messages[k])
    again.close()
    assert path.read_bytes() == whole


@pytest.mark.parametrize("change", ["version", "settings", "pass"])
def test_another_version_run_or_pass_is_not_replayed(tmp_path, monkeypatch, change):
    path = tmp_path / "log"
    written(path, [("first", [1]), ("second", [2])])
    found = Ledger(path, KINDS, {"rain": 3} if change == "settings" else None)
    if change == "version":
        monkeypatch.setattr(ledger, "__version__", "0")
    if change != "pass":
        assert list(found.replay("first")) == []
    else:
        assert len(list(found.replay("first"))) == 1
        assert list(found.replay("other")) == []
    found.record((0, 0), 3)
    found.rewind()
    replayed = [list(found.replay(name)) for name in ("first", "other")]
    assert replayed == ([[((0, 1), 1)], [((0, 0), 3)]] if change == "pass" else [[((0, 0), 3)], []])
    found.close()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each),
    max_leaves=8,
)
FORGED = st.fixed_dictionaries(
    {
        "at": st.just([0, 0]) | JSON,
        "message": st.sampled_from([{"array": 0}, {"Pair": [1]}, {"Part": []}, {"os": [1]}]) | JSON,
        "arrays": st.tuples(
            st.sampled_from(["|O", "<f8", "|V0", "<U0", "<M8[s]", {"names": ["a"]}]) | JSON,
            st.sampled_from([[1], [], [-1], [2**62], [2**31, 2**33], [0] * 70]) | JSON,
        ).map(lambda one: [one])
        | JSON,
        "checksums": st.lists(st.integers(0, 2**32), max_size=2) | JSON,
    }
)


@given(st.one_of(JSON, FORGED))
@example([])
@example({"at": [-1, 0], "message": 1, "arrays": [], "checksums": []})
def test_whatever_a_line_says_is_a_record_or_ignored(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("ledger") / "log"
    written(path, [("pass", [1])])
    with open(path, "ab") as file:
        file.write(sealed_line(value) + bytes(64))
    found = Ledger(path, KINDS)
    kept = list(found.replay("pass"))
    assert kept[0] == ((0, 1), 1)
    assert all(min(at) >= 0 for at, _ in kept)
    found.close()


def test_nesting_without_end_is_ignored(tmp_path):
    path = tmp_path / "log"
    written(path, [("pass", [1])])
    deep = b"[" * 200_000 + b"]" * 200_000
    with open(path, "ab") as file:
        file.write(deep + b"\t%08x\n" % crc32c(deep))
    assert list(Ledger(path, KINDS).replay("pass")) == [((0, 1), 1)]


def test_what_comes_after_the_end_is_not_written(tmp_path):
    """Threads that a second Ctrl-C leaves behind neither cut the file nor make its folder again."""
    path = tmp_path / "spill" / "log"
    made = Ledger(path, KINDS)
    list(made.replay("pass"))
    made.record((0, 0), 1)
    made.close()
    before = path.read_bytes()
    made.record((0, 1), 2)
    assert path.read_bytes() == before
    rmtree(path.parent)
    made.record((0, 1), 2)
    assert not path.parent.exists()


def test_without_records_there_is_no_file(tmp_path):
    path = tmp_path / "log"
    written(path, [("first", []), ("second", [])])
    assert not path.exists()


def test_a_message_that_no_block_tells_is_a_clear_error(tmp_path, no_fsync):
    data = np.random.default_rng(1).integers(0, 9, (100, 150)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", data, -1, 64)
    asked = {"threads": 1, "progress": stop_at(0.4)}
    with pytest.raises(Stop):
        label_components(store, "elevation > 3", **asked)
    (path,) = store.glob(".incomplete/*.spill/ledger")
    lines = path.read_bytes().split(b"\n")
    forged = {"at": [0, 0], "message": {"tuple": ["?", 1]}, "arrays": [], "checksums": []}
    path.write_bytes(lines[0] + b"\n" + sealed_line(forged))
    with pytest.raises(StoreError, match=r"ledger: was not written by this run, and is rem"):
        label_components(store, "elevation > 3", resume=True)
    assert label_components(store, "elevation > 3", resume=True).cells == (data > 3).sum()


def test_a_run_that_is_stopped_twice_keeps_what_it_replayed(tmp_path, no_fsync):
    data = np.random.default_rng(1).integers(0, 9, (100, 150)).astype(np.int16)
    store = make_store(tmp_path / "s.zarr", data, -1, 64)
    for share, resume in (0.4, False), (0.0, True):
        asked = {"threads": 1, "progress": stop_at(share), "resume": resume}
        with pytest.raises(Stop):
            label_components(store, "elevation > 3", **asked)
        assert list(store.glob(".incomplete/*.spill/ledger"))


def test_unknown_messages_are_refused(tmp_path):
    with pytest.raises(TypeError, match="Pair is not among the messages"):
        Ledger(tmp_path / "log", ()).record((0, 0), Pair(1, 2))
