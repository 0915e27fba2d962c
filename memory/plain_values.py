"""Plain JSON values of answers, hits and memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np

from memory.types import Memory

#: Metadata of a field that the plain values omit.
OMITTED = {"omitted": True}
#: Fields of a memory: all except vectors.
MEMORY = (
    "id", "time_ns", "map_id", "position", "yaw", "covariance", "velocity", "kind", "label", "caption",
    "confidence", "reward", "payload", "evidence", "provenance", "marked", "count", "first_seen_ns",
    "last_seen_ns", "visits", "state", "importance",
)  # fmt: skip
#: Fields of a memory that may be lists, arrays or mappings.
_NESTED = ("position", "covariance", "payload", "visits")
_MEMORY_VALUES = itemgetter(*MEMORY)
#: Types of most values, checked first for speed.
_PLAIN = frozenset({str, int, float, bool, type(None)})


@cache
def _field_names(kind: Any) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass; ``None`` for other classes."""
    if not is_dataclass(kind):
        return None
    return tuple(entry.name for entry in fields(kind) if entry.metadata != OMITTED)


def to_plain(value: Any) -> Any:
    """Return the plain values of a record, list or mapping.

    Memories lose their vectors and always have the times of their first and last observation.
    """
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        return [each if type(each) in _PLAIN else to_plain(each) for each in value]
    if kind is dict:
        return value.copy()
    if kind is Memory:
        found = dict(zip(MEMORY, _MEMORY_VALUES(vars(value)), strict=True))
        for name in _NESTED:
            each = found[name]
            if each is not None:
                found[name] = to_plain(each)
        found["first_seen_ns"], found["last_seen_ns"] = value.first_sight_ns, value.last_sight_ns
        return found
    names = _field_names(kind)
    if names is not None:
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    return value
