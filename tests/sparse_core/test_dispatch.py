from __future__ import annotations

import sys

import pytest

from sparse_core.dispatch import check_impl, module_available, require_module
from sparse_core.errors import CapacityWarning, ImplementationError, SparseError


@pytest.mark.parametrize("impl", ["auto", "reference", "triton", "vendor"])
def test_known_implementations_pass(impl: str) -> None:
    check_impl(impl)


def test_unknown_implementation_names_the_choices() -> None:
    with pytest.raises(ValueError, match="auto, reference, triton, vendor; got 'fast'"):
        check_impl("fast")


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
    with pytest.raises(ImplementationError, match=r"impl='vendor' needs no_such_module.*pip install that"):
        require_module("no_such_module_anywhere", impl="vendor", hint="pip install that")


def test_exception_tree() -> None:
    assert issubclass(ImplementationError, SparseError)
    assert issubclass(ImplementationError, RuntimeError)
    assert issubclass(CapacityWarning, UserWarning)
    assert not issubclass(SparseError, ValueError)
