"""JSON answers of the service."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response

from memory.persistence.log.journal import LogEntry
from memory.plain_values import to_plain
from memory.serve.errors import LONGEST, Problem
from memory.store import Consolidated, Kept
from memory.types import Explanation, Memory

#: Details of an operation that are sent; others may name files.
_PUBLIC_DETAILS = ("reason", "sources")
#: The same of single operations.
_PUBLIC_DETAILS_OF = {"area": ("name", "removed"), "trust": ("robot", "trust")}


class JsonAnswer(Response):
    """JSON response; numbers that are not finite become ``null``."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return dump(content)


def dump(content: Any) -> bytes:
    """Return JSON; numbers that are not finite become ``null``."""
    try:
        return to_json(content, inf_nan_mode="null")
    except ValueError:
        # The text is not valid Unicode; a message may quote such a request.
        return json.dumps(_finite(content), allow_nan=False, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def problem_answer(problem: Problem) -> JsonAnswer:
    """Return the response of a failed request."""
    return JsonAnswer(problem.to_json(), status_code=problem.status, headers=problem.headers)


def memory_answer(memory: Memory, *, vectors: bool = False) -> dict[str, Any]:
    """Return all fields of a memory, optionally with its vectors."""
    found: dict[str, Any] = to_plain(memory)
    if vectors:
        found["embedding"] = None if memory.embedding is None else memory.embedding.tolist()
        found["embeddings"] = {name: vector.tolist() for name, vector in memory.embeddings.items()}
    return found


def entry_answer(entry: LogEntry, *, touched: int, undone: bool) -> dict[str, Any]:
    """Return a log entry; ``touched`` is the number of memories that it added, changed or removed."""
    ids = {"first": entry.added[0], "last": entry.added[-1]} if entry.added else None
    public = (*_PUBLIC_DETAILS, *_PUBLIC_DETAILS_OF.get(entry.operation, ()))
    detail = {name: value for name, value in entry.readable_detail().items() if name in public}
    return {
        "generation": entry.generation,
        "time_ns": entry.time_ns,
        "operation": entry.operation,
        "ids_count": touched,
        "added": ids,
        "undoes": entry.undoes,
        "undone": undone,
        "detail": detail,
    }


def explanation_answer(found: Explanation, memory: Memory | None) -> dict[str, Any]:
    """Return an explanation, with the memory if it still exists."""
    history = [
        {"time_ns": when, "operation": operation, "detail": detail}
        for when, operation, detail in found.history
    ]
    plain: dict[str, Any] = to_plain(found)
    return plain | {
        "history": history,
        "vectors": [] if memory is None else vector_names(memory),
        "memory": None if memory is None else memory_answer(memory),
    }


def vector_names(memory: Memory) -> list[str]:
    """Return the encoders of the vectors of a memory."""
    return [*([] if memory.embedding is None else ["default"]), *memory.embeddings]


def kept_answer(kept: Iterable[Kept]) -> list[dict[str, Any]]:
    """Return the decision for each observation."""
    return [{"id": each.id, "reason": each.reason, "importance": each.importance} for each in kept]


def consolidated_answer(done: Consolidated, most: int) -> dict[str, Any]:
    """Return the result of a consolidation; lists have at most ``most`` entries."""
    merged = [{"id": id, "sources": list(sources)} for id, sources in done.merged[:most]]
    forgotten = [{"id": id, "reason": reason} for id, reason in list(done.forgotten.items())[:most]]
    return {
        "merged": merged,
        "merged_count": len(done.merged),
        "forgotten": forgotten,
        "forgotten_count": len(done.forgotten),
        "generations": done.generations,
        "trimmed": done.trimmed._asdict(),
        "failed": [
            {"ids": list(ids), "reason": reason[:LONGEST]} for ids, reason in list(done.failed.items())[:most]
        ],
        "failed_count": len(done.failed),
    }


def shortened(answer: dict[str, Any], most: int) -> dict[str, Any]:
    """Return an answer with at most ``most`` memories per list, and the total numbers."""
    found: dict[str, Any] = {}
    for name, value in answer.items():
        if isinstance(value, dict) and name == "changed":
            found[name] = shortened(value, most)
        elif isinstance(value, list) and len(value) > most and name in ("new", "gone", "moved"):
            found[name], found[f"{name}_total"] = value[:most], len(value)
        else:
            found[name] = value
    return found
