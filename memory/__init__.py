"""Long-term memory for robots: keeps what matters and finds it by likeness, words, place and time."""

from sparse_core.waiting import load_torch

load_torch()  # Before anything below does: threads that wait shall not spin.

from memory.config import StoreConfig  # noqa: E402
from memory.query import Filter, Query  # noqa: E402
from memory.store import Consolidated, Kept, MemoryStore  # noqa: E402
from memory.types import Explanation, Hit, Memory, Visit  # noqa: E402

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
