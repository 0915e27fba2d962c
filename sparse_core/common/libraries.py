"""Libraries that may be absent."""

from __future__ import annotations

import importlib.util
from functools import cache


@cache
def module_available(name: str) -> bool:
    """Whether ``name`` can be imported, without importing it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def missing(name: str, hint: str) -> str:
    """Why an implementation cannot run without the library ``name``."""
    return f"needs {name}, which is not installed: {hint}"
