"""Errors: what they do not repeat."""

from __future__ import annotations

import pickle

import pytest

from terrain_gpu import errors
from terrain_gpu.cli.places import naming
from terrain_gpu.errors import (
    ArgumentError,
    FormulaError,
    InputError,
    OutputError,
    OutsideError,
    ReprojectionError,
    StoreError,
    TerrainError,
    VerificationError,
    without_secrets,
)

KEPT = [
    "http://host:9000/a@b.tif: not a raster",
    "http://[::1]:80/a@b.tif",
    "s3://bucket/a@2x.zarr: what?",
    "https://host/a.tif?: no",
    "a@b?c.tif: me:you@there",
    "s3://bucket/x?.tif: no",
]


@pytest.mark.parametrize("text", KEPT)
def test_other_text_is_kept(text):
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http://me:hid@h/a.tif?key=hid: no", "http://...@h/a.tif?...: no"),
        ("'HTTPS:/me:hid/@h:80/a.tif'", "'HTTPS:/...@h:80/a.tif'"),
        ("/vsicurl/https://me:h@id@h/a.tif?key=hid, x", "/vsicurl/https://...@h/a.tif?..., x"),
        ("/vsicurl?header.A=hid&url=https%3A//h", "/vsicurl?..."),
    ],
)
def test_credentials_are_left_out(text, told):
    assert without_secrets(text) == told
    for error in (InputError(text), StoreError(text), OutsideError(text, (1, 2))):
        assert str(error) == str(pickle.loads(pickle.dumps(error))) == told
        assert "hid" not in repr(error.args)


def every_kind():
    """An error of each kind."""
    kinds = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type)
        if issubclass(kind, TerrainError)
    }
    known = {
        FormulaError: ("no", ("a +", "   ^")),
        OutsideError: ("no", (1, 2)),
        ReprojectionError: ("no", 3),
        VerificationError: ("no", "cells", 3, 4),
    }
    return [
        kind(*known.get(kind, ("no",))) for kind in sorted(kinds, key=lambda kind: kind.__name__)
    ]


@pytest.mark.parametrize("error", every_kind(), ids=lambda error: type(error).__name__)
def test_commands_reword_messages(error):
    """As where an option is named, or the temporary store of a raster."""
    more = {name: value for name, value in vars(error).items() if name != "__notes__"}
    with pytest.raises(type(error)) as caught, naming("--sources"):
        raise error
    assert str(caught.value) == "--sources: no" or not isinstance(error, InputError | OutputError)
    error.reword(lambda text: "http://me:hid@h/a.tif: else")
    again = pickle.loads(pickle.dumps(error))
    for one in (error, again):
        assert str(one) == "http://...@h/a.tif: else"
        assert {name: vars(one)[name] for name in more} == more


def test_an_argument_is_spelled_as_the_caller_spells_it():
    """Its name is known whatever the words around it; values are no names."""
    error = ArgumentError("{min_slope} {value}: give {less}", value="{9}", less="{twi}")
    error.reword(lambda text: f"{{b}}.tif: {text}")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert str(one) == "{b}.tif: min_slope {9}: give {twi}"
        assert one.names == ("min_slope",)
        assert one.spelled("--{}".format) == "{b}.tif: --min_slope {9}: give {twi}"
