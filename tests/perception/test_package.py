"""The package by itself: its version, and ``python -m perception``."""

from __future__ import annotations

import runpy
import sys

import pytest

import perception
import sparse_core


def test_version() -> None:
    assert perception.__version__ == sparse_core.__version__


def test_the_package_runs_as_a_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["perception", "--version"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("perception", run_name="__main__")
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"perceive (Sparsight) {perception.__version__}\n"
