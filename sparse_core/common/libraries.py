"""Optional libraries."""

from __future__ import annotations

import importlib.util
from functools import cache


@cache
def module_available(name: str) -> bool:
    """True if ``name`` can be imported; does not import it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def missing(name: str, hint: str) -> str:
    """Return why an implementation needs the missing library ``name``."""
    return f"needs {name}, which is not installed: {hint}"
