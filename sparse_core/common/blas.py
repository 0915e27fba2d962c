"""Number of threads of numpy's matrix products.

These threads wait by spinning, which is costly if other programs use the cores. numpy cannot set their
number, but OpenBLAS can, which numpy's wheels and most distributions use.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

#: Modules that hold numpy's products, by version, and names of OpenBLAS's functions, in wheels and elsewhere.
_MODULES = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")
_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")


def set_threads(count: int) -> bool:
    """Limit the threads of numpy's products in the whole process; return False if the library cannot."""
    call = _call("set")
    if call is not None:
        call(count)
    return call is not None


def threads() -> int | None:
    """Return the maximum number of threads, or None if the library cannot report it."""
    call = _call("get")
    return None if call is None else int(call())


def _call(what: str) -> Any:
    """Return a function of the library, or None."""
    for module in _MODULES:
        try:
            # A lookup also searches the libraries that this module links to.
            library = ctypes.CDLL(str(importlib.import_module(module).__file__))
        except (ImportError, OSError):
            continue
        for name in _NAMES:
            call = getattr(library, name.format(what), None)
            if call is not None:
                return call
    return None
