"""Benchmarks: every case is listed, is imported without a GPU, and says what its options are."""

from __future__ import annotations

import pytest

from bench.__main__ import cases, main


def test_the_list(capsys):
    main([])
    printed = capsys.readouterr().out
    for name, question in cases().items():
        assert f"{name} " in printed
        assert "?" in question, name


def test_every_case_has_help(capsys):
    for name, question in cases().items():
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        printed = capsys.readouterr().out
        assert question in printed
        assert f"python -m bench {name}" in printed


def test_no_case(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["nothing"])
    assert ended.value.code == 2
    assert "no case 'nothing'" in capsys.readouterr().err


def test_a_case(capsys, tmp_path):
    main(["neighbours", "--work", str(tmp_path)])
    printed = capsys.readouterr().out
    assert printed.startswith("neighbours: 20")
    assert "| 8 | 8.24 | 5.48 |" in printed
