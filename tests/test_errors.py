"""Errors: what they do not repeat."""

from __future__ import annotations

import pickle

import pytest

from terrain_gpu.errors import InputError, OutsideError, StoreError, without_secrets

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
