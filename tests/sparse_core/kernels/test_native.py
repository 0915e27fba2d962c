"""Libraries that are compiled beside their users."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

import pytest

from sparse_core.kernels import native
from sparse_core.kernels.native import BackgroundLibrary, int64_array

ADDS = 'extern "C" long long add(const long long* two) { return two[0] + two[1]; }'
FUNCTIONS = {"add": (ctypes.c_int64, [ctypes.c_void_p])}


@pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")
def test_it_is_there_once_it_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_folder", lambda: tmp_path)
    source = tmp_path / "adds.cpp"
    source.write_text(ADDS)
    beside = BackgroundLibrary(source, FUNCTIONS, "added by hand")
    assert beside.ready()
    library = beside.library()
    assert library is not None
    assert library.add(int64_array(1 << 40, 2)) == (1 << 40) + 2


def test_a_failed_compilation_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "_folder", lambda: tmp_path)
    source = tmp_path / "broken.cpp"
    source.write_text("no C++")
    beside = BackgroundLibrary(source, FUNCTIONS, "added by hand")
    with caplog.at_level(logging.INFO, logger=native.__name__):
        assert not beside.ready()
    assert beside.library() is None
    assert "added by hand: " in caplog.text
