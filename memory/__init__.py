"""Long-term memory for robots: store observations and search them by similarity, text, place and time."""

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
        # Load on first use, because torch takes seconds to import.
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "MemoryStore":
            import torch  # noqa: F401  # Converts vectors faster than numpy.
        return getattr(importlib.import_module(_MODULES[name]), name)
