"""Libraries that are compiled beside their users."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path

import pytest

from sparse_core.errors import ImplementationError
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


def test_flags_and_processor_are_read_from_the_source() -> None:
    text = b"// Sums.\n//\n// flags: -mfma -ffp-contract=off\n// machine: x86_64\n\nint x;\n"
    assert native.flags_of(text) == (*native.FLAGS, "-mfma", "-ffp-contract=off")
    assert native.machine_of(text) == "x86_64"
    assert native.flags_of(b"int x;") == native.FLAGS
    assert native.machine_of(b"int x;") is None


def test_the_name_follows_source_flags_and_processor() -> None:
    names = {
        native.library_name(b"int x;", machine="x86_64"),
        native.library_name(b"int x;", machine="aarch64"),
        native.library_name(b"int y;", machine="x86_64"),
        native.library_name(b"// flags: -mfma\nint x;", machine="x86_64"),
    }
    assert len(names) == 4


@pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")
def test_a_library_of_the_wheel_needs_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "adds.cpp"
    source.write_text(ADDS)
    monkeypatch.setattr(native, "_folder", lambda: tmp_path)
    monkeypatch.setattr(native, "BUILT", tmp_path / "built")
    built = native._build(source)
    (tmp_path / "built").mkdir()
    built.rename(tmp_path / "built" / native.library_name(source.read_bytes()))
    monkeypatch.setattr(native, "compiler", lambda: None)
    assert native.available(source)
    assert native.load(source).add(int64_array(1, 2)) == 3
    source.write_text(ADDS + "\n")  # Another source, which the wheel does not have.
    native._in_wheel.cache_clear()
    native.load.cache_clear()
    assert not native.available(source)
    with pytest.raises(ImplementationError, match="needs a C\\+\\+ compiler"):
        native.load(source)


def test_a_free_threaded_python_gets_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stable interface reads counters of references elsewhere than such a Python keeps them."""
    monkeypatch.setattr(native.sysconfig, "get_config_var", lambda name: name == "Py_GIL_DISABLED")
    with pytest.raises(ImplementationError, match="global lock"):
        native.load_module(tmp_path / "any.cpp")
