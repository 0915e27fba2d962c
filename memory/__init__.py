"""Long-term memory for robots: keeps what matters and finds it by likeness, words, place and time."""

from memory.config import StoreConfig
from memory.persistence.filters import Filter
from memory.store import Consolidated, Kept, MemoryStore
from memory.types import Explanation, Hit, Memory, Query, Visit

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
