"""The threads of numpy's products.

They wait for each other by spinning, which costs most where other programs want the cores, and numpy has no
call that says how many there are to be. Its wheels and most distributions bring OpenBLAS, which has one.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

#: Where numpy's products are, by its version; and what OpenBLAS's calls are named, in wheels and elsewhere.
_MODULES = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")


def set_threads(count: int) -> bool:
    """Let products of numpy take at most so many threads from now on, in the whole process.

    Returns:
        Whether the library is one that can be told.
    """
    call = _call("set")
    if call is not None:
        call(count)
    return call is not None


def threads() -> int | None:
    """How many they take at most; ``None`` where the library does not tell."""
    call = _call("get")
    return None if call is None else int(call())


def _call(what: str) -> Any:
    """One of the library's calls, or ``None``."""
    for module in _MODULES:
        try:
            # The names of libraries that this one needs are found in it too.
            library = ctypes.CDLL(str(importlib.import_module(module).__file__))
        except (ImportError, OSError):
            continue
        for name in _NAMES:
            call = getattr(library, name.format(what), None)
            if call is not None:
                return call
    return None
