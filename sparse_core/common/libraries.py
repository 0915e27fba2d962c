"""Optional libraries."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any


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


def load_pyarrow(user: str = "Parquet") -> Any:
    """Import pyarrow with its Parquet module.

    Args:
        user: what needs it, for the error.

    Raises:
        ImportError: pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{user} needs pyarrow: pip install 'sparsight[parquet]'") from error
    return pyarrow
