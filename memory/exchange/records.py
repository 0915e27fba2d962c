"""Memories as plain values: the content of a JSONL line or a Parquet row.

A record has the fields of :class:`memory.types.Memory`. Only the time is required: ``time_ns``, or ``time``
in ISO 8601; ``first_seen`` and ``last_seen`` may replace ``first_seen_ns`` and ``last_seen_ns``. ``position``
is x, y, z or x, y in metres; ``x``, ``y``, ``z`` may be given instead. ``velocity`` is x, y, z or x, y in
metres per second. Vectors are lists of numbers. ``visits`` are rows of first time, last time and number of
observations. An ``id`` is ignored, because the store assigns its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from memory.exchange.times import format_time, parse_time
from memory.types import Memory

_FIELDS = {entry.name for entry in dataclasses.fields(Memory)}
_TIMES = {"time": "time_ns", "first_seen": "first_seen_ns", "last_seen": "last_seen_ns"}
_COORDINATES = ("x", "y", "z")
#: Fields that messages suggest for data of other programs.
_USUAL = ("time", "position", "label", "caption", "kind", "embedding", "confidence", "map_id", "yaw")


def memory_from_record(record: Mapping[str, Any], dims: dict[str, int] | None = None) -> Memory:
    """Return the memory of a record; fields with ``None`` count as missing.

    Args:
        dims: vector length by encoder, which is checked; unknown encoders are added to it.

    Raises:
        ValueError, TypeError: a field is unknown, missing or wrong.
    """
    values = {name: value for name, value in record.items() if value is not None and name != "id"}
    for name, target in _TIMES.items():
        if name in values:
            if target in values:
                raise ValueError(f"give {name} or {target}, not both")
            values[target] = parse_time(_text(name, values.pop(name)))
    coordinates = {name: values.pop(name) for name in _COORDINATES if name in values}
    if coordinates:
        if "position" in values:
            raise ValueError("give position or x, y, z, not both")
        if not {"x", "y"} <= coordinates.keys():
            raise ValueError("give both x and y")
        values["position"] = [coordinates["x"], coordinates["y"], coordinates.get("z", 0.0)]
    elif "position" in values:
        values["position"] = _coordinates("position", values["position"])
    if "velocity" in values:
        values["velocity"] = _coordinates("velocity", values["velocity"])
    if "visits" in values:
        values["visits"] = _visits(values["visits"])
    unknown = sorted(values.keys() - _FIELDS)
    if unknown:
        raise ValueError(
            f"unknown field {unknown[0]!r}. Use {', '.join(_USUAL)}, or put other values into payload"
        )
    if "time_ns" not in values:
        raise ValueError("the time is missing: give time_ns (nanoseconds) or time (ISO 8601)")
    if "marked" in values and not isinstance(values["marked"], bool):
        raise TypeError(f"marked must be true or false, got {values['marked']!r}")
    for name in ("payload", "embeddings"):
        if name in values and not isinstance(values[name], Mapping):
            raise TypeError(f"{name} must be an object, got {type(values[name]).__name__}")
    memory = Memory(**values)
    if dims is not None:
        _check_dims(memory, dims)
    return memory


def record_of(memory: Memory, *, vectors: bool = True) -> dict[str, Any]:
    """Return a memory as plain values for JSON; empty and default fields are left out, but never the time."""
    record: dict[str, Any] = {} if memory.id is None else {"id": int(memory.id)}
    record |= {
        "time": format_time(memory.time_ns),
        "map_id": memory.map_id,
        "kind": memory.kind,
        "label": memory.label,
    }
    if memory.position is not None:
        record["position"] = list(memory.position)
    record |= {"yaw": memory.yaw, "confidence": memory.confidence}
    for name in ("caption", "evidence", "provenance", "payload", "reward", "marked"):
        if getattr(memory, name):
            record[name] = getattr(memory, name)
    if memory.covariance is not None:
        record["covariance"] = memory.covariance.tolist()
    if memory.velocity is not None:
        record["velocity"] = list(memory.velocity)
    if memory.count != 1:
        record["count"] = int(memory.count)
    if memory.state != "present":
        record["state"] = memory.state
    if memory.importance is not None:
        record["importance"] = memory.importance
    for name in ("first_seen", "last_seen"):
        moment = getattr(memory, f"{name}_ns")
        if moment is not None:
            record[name] = format_time(moment)
    if memory.visits:
        record["visits"] = [
            [format_time(visit.first_ns), format_time(visit.last_ns), visit.sights] for visit in memory.visits
        ]
    if vectors and memory.embedding is not None:
        record["embedding"] = memory.embedding.tolist()
    if vectors and memory.embeddings:
        record["embeddings"] = {name: value.tolist() for name, value in memory.embeddings.items()}
    return record


def _check_dims(memory: Memory, dims: dict[str, int]) -> None:
    vectors = dict(memory.embeddings)
    if memory.embedding is not None:
        vectors["default"] = memory.embedding
    for name, vector in vectors.items():
        known = dims.setdefault(name, len(vector))
        if len(vector) != known:
            field = "embedding" if name == "default" else f"embeddings[{name!r}]"
            raise ValueError(
                f"{field} has {len(vector)} numbers, but the store's vectors have {known}."
                " Use a new store, or put vectors of another encoder into embeddings"
            )


def _coordinates(name: str, value: Any) -> list[float]:
    if not isinstance(value, list | tuple) or len(value) not in (2, 3):
        raise ValueError(f"{name} must be [x, y, z] or [x, y], got {value!r}")
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in value):
        raise TypeError(f"{name} must be numbers, got {value!r}")
    if not all(math.isfinite(number) for number in value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return [float(number) for number in value] + [0.0] * (3 - len(value))


def _visits(value: Any) -> list[list[Any]]:
    """Convert the times of visits to nanoseconds; ``Memory`` checks the rest."""
    if not isinstance(value, list | tuple) or not all(isinstance(row, list | tuple) for row in value):
        raise TypeError(f"visits must be rows of first, last and sights, got {value!r}")
    return [[parse_time(part) if isinstance(part, str) else part for part in row] for row in value]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text in ISO 8601, got {value!r}. Give nanoseconds as {name}_ns")
    return value
