"""Batches and positions as plain values for JSON."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from memory.errors import DataError
from memory.exchange.records import memory_from_record, record_of
from memory.persistence.log.batches import Batch, PartialTransfer, Point, Position, ids_of, runs_of
from memory.types import Memory, check_integer, check_text

#: Longest run of ids, so that a short message cannot make a server allocate an unlimited list.
_MOST_GONE = 1_000_000


def position_json(position: Position) -> dict[str, Any]:
    """Return a receiver's position as plain values."""
    return {
        "store": position.store,
        "points": [list(point) for point in position.points],
        "partial": [[list(part.until), [list(run) for run in part.ids]] for part in position.partial],
        "robot": position.robot,
    }


def position_of(found: Mapping[str, Any]) -> Position:
    """Parse a receiver's position, or raise ``DataError``."""
    try:
        robot = found["robot"]
        return Position(
            store=check_text("store", found["store"]),
            points=tuple(_point("points", point) for point in found["points"]),
            partial=tuple(
                PartialTransfer(_point("partial", until), tuple(_run(run) for run in runs))
                for until, runs in found["partial"]
            ),
            robot=None if robot is None else check_text("robot", robot),
        )
    except KeyError as error:
        raise DataError(f"position: {error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"position: {error}") from error


def batch_json(batch: Batch) -> dict[str, Any]:
    """Return a batch as plain values; vectors are in half precision, as in the store."""
    return {
        "store": batch.store,
        "robot": batch.robot,
        "since": list(batch.since),
        "until": list(batch.until),
        "whole": None if batch.whole is None else [list(run) for run in batch.whole],
        "known": [list(run) for run in batch.known],
        "memories": [_record(memory) for memory in batch.memories],
        "gone": [list(run) for run in runs_of(batch.gone)],
        "sent_ns": batch.sent_ns,
        "forked": batch.forked,
        "shared": batch.shared,
    }


def batch_of(found: Mapping[str, Any]) -> Batch:
    """Parse a batch, or raise ``DataError``."""
    try:
        return Batch(
            store=check_text("store", found["store"]),
            robot=check_text("robot", found["robot"]),
            since=_point("since", found["since"]),
            until=_point("until", found["until"]),
            whole=None if found["whole"] is None else tuple(map(_run, found["whole"])),
            known=tuple(map(_run, found["known"])),
            memories=[_memory(row, record) for row, record in enumerate(found["memories"])],
            gone=ids_of([_run(run) for run in found["gone"]]).tolist(),
            sent_ns=check_integer("sent_ns", found["sent_ns"]),
            forked=_flag("forked", found["forked"]),
            shared=_flag("shared", found["shared"]),
        )
    except KeyError as error:
        raise DataError(f"batch: {error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"batch: {error}") from error


def _point(name: str, found: Any) -> Point:
    generation, identity = found
    return Point(check_integer(name, generation), check_text(name, identity))


def _run(found: Any) -> tuple[int, int]:
    first, last = (check_integer("ids", each) for each in found)
    if not 0 < first <= last < first + _MOST_GONE:
        raise ValueError(f"ids must be rising runs of at most {_MOST_GONE} ids, got {first} to {last}")
    return first, last


def _flag(name: str, found: Any) -> bool:
    if not isinstance(found, bool):
        raise TypeError(f"{name} must be true or false, got {found!r}")
    return found


def _record(memory: Memory) -> dict[str, Any]:
    record = record_of(memory, vectors=False)
    vectors = dict(memory.embeddings) | ({} if memory.embedding is None else {"": memory.embedding})
    if vectors:
        record["vectors"] = {
            name: base64.b64encode(np.asarray(vector, "<f2").tobytes()).decode()
            for name, vector in vectors.items()
        }
    return record


def _memory(row: int, record: Any) -> Memory:
    try:
        fields = dict(record)
        vectors = {
            str(name): np.frombuffer(base64.b64decode(text, validate=True), "<f2").astype(np.float32)
            for name, text in dict(fields.pop("vectors", {})).items()
        }
        memory = memory_from_record(fields)
        return dataclasses.replace(
            memory,
            id=check_integer("id", fields["id"]),
            embedding=vectors.pop("", None),
            embeddings=vectors,
        )
    except KeyError as error:
        raise ValueError(f"memories[{row}]: {error.args[0]} is missing") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"memories[{row}]: {error}") from error
