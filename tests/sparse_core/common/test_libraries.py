from __future__ import annotations

import sys

import pytest

from sparse_core.common.libraries import missing, module_available


def test_module_available_does_not_import() -> None:
    loaded = "wave" in sys.modules
    assert module_available("wave")
    assert ("wave" in sys.modules) == loaded
    assert not module_available("no_such_module_anywhere")
    assert not module_available("no_such_package.part")


def test_blocked_module_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    module_available.cache_clear()
    monkeypatch.setitem(sys.modules, "triton", None)
    try:
        assert not module_available("triton")
    finally:
        module_available.cache_clear()


def test_missing_library_says_how_to_get_it() -> None:
    assert missing("that", "pip install that") == "needs that, which is not installed: pip install that"
