"""Long-term memory for robots: keeps what matters and finds it by likeness, words, place and time."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.config import StoreConfig
    from memory.query import Filter, Query
    from memory.store import Consolidated, Kept, MemoryStore
    from memory.types import Explanation, Hit, Memory, Visit

__all__ = [
    "Consolidated",
    "Explanation",
    "Filter",
    "Hit",
    "Kept",
    "Memory",
    "MemoryStore",
    "Query",
    "StoreConfig",
    "Visit",
]

_MODULES = {
    "StoreConfig": "memory.config",
    "Filter": "memory.query",
    "Query": "memory.query",
    "Consolidated": "memory.store",
    "Kept": "memory.store",
    "MemoryStore": "memory.store",
    "Explanation": "memory.types",
    "Hit": "memory.types",
    "Memory": "memory.types",
    "Visit": "memory.types",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # Loaded with the first use: the commands import only what they need, and torch takes seconds.
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "MemoryStore":
            import torch  # noqa: F401  # Who keeps a store open asks often: vectors are converted faster by it.
        return getattr(importlib.import_module(_MODULES[name]), name)
