"""Error responses: ``{"error": {"type", "message", "field"}}``, without paths of the server.

400 bad_json, bad_host            401 unauthorised             403 read_only, cross_origin
404 not_found, unknown_memory     405 method_not_allowed       409 undo, erase, store_locked, stale
413 too_large                     415 media_type               422 invalid, dimension
429 rate_limited                  500 internal, store          503 store_closed, busy, interrupted
507 store_full
"""

from __future__ import annotations

import dataclasses
import difflib
import errno
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memory.errors import (
    DimensionError,
    EraseError,
    QueryInterruptedError,
    StoreClosedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    UndoError,
    UnknownMemoryError,
)
from memory.questions.errors import QuestionError
from memory.wording.words import truncated

#: Maximum characters of a message.
LONGEST = 500
_FIELD = re.compile(r"([a-z][a-z_]*(?:\[[^\]]{1,40}\])*(?:\.[a-z_]+)?)[ :=]")
#: Messages that replace those of store errors, which contain paths.
_STORE: dict[type[StoreError], tuple[int, str, str]] = {
    StoreReadOnlyError: (403, "read_only", "the store is read-only. Start recall serve without --readonly"),
    StoreLockedError: (409, "store_locked", "the store is in use by another connection. Try again"),
    StoreFullError: (507, "store_full", "the disk is full, so nothing was stored. Free space and try again"),
    StoreClosedError: (503, "store_closed", "the service is shutting down. Try again later"),
    StoreError: (500, "store", "the store cannot be read. Run recall check on the server"),
}


class ServiceError(Exception):
    """A refused request; ``problem`` is the response."""

    def __init__(self, status: int, type: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.problem = Problem(status, type, message, field)


@dataclass(frozen=True)
class Problem:
    """The response of a failed request.

    Attributes:
        status: HTTP status.
        type: error name for programs.
        message: a sentence for people.
        field: request field at fault, if known.
        headers: additional headers.
    """

    status: int
    type: str
    message: str
    field: str | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the body."""
        return {"error": {"type": self.type, "message": self.message, "field": self.field}}


def problem_of(error: Exception, folder: Path) -> Problem | None:
    """Return the response for an error, or ``None`` for an unexpected one. Messages omit ``folder``."""
    if isinstance(error, ServiceError):
        return error.problem
    if isinstance(error, ValidationError):
        return invalid(list(error.errors(include_url=False, include_input=False)), folder)
    if isinstance(error, StoreError):
        return next(Problem(*rest) for kind, rest in _STORE.items() if isinstance(error, kind))
    message = without_paths(str(error), folder)
    if isinstance(error, UnknownMemoryError):
        return Problem(404, "unknown_memory", message)
    if isinstance(error, UndoError):
        return Problem(409, "undo", message, "generation")
    if isinstance(error, EraseError):
        return Problem(409, "erase", message)
    if isinstance(error, QueryInterruptedError):
        return Problem(503, "interrupted", message)
    if isinstance(error, DimensionError):
        return Problem(422, "dimension", message, field_in(message))
    if isinstance(error, QuestionError):
        return Problem(422, "invalid", message, error.part)
    if isinstance(error, RecursionError):
        return Problem(422, "invalid", "the request is nested too deeply. Flatten it")
    if isinstance(error, ValueError | TypeError | OverflowError):
        return Problem(422, "invalid", message, field_in(message))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Problem(507, "store_full", "the disk is full. Free space and try again")
    return None


def invalid(errors: list[Any], folder: Path) -> Problem:
    """Return the response for the first validation error of pydantic."""
    first = errors[0]
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    name = ""
    for part in place:
        name += f"[{part}]" if part.isdecimal() else f".{part}" if name else part
    message = without_paths(str(first["msg"]), folder)
    return Problem(422, "invalid", f"{name}: {message}" if name else message, name or None)


def field_in(message: str) -> str | None:
    """Return the field name that a message begins with, or ``None``."""
    found = _FIELD.match(message)
    return found[1] if found and ("_" in found[1] or found[1] in _ONE_WORD or "[" in found[1]) else None


#: Field names that could also be the first word of a sentence.
_ONE_WORD = frozenset({
    "text", "embedding", "like", "encoder", "near", "polygon", "between", "labels", "kinds", "states", "k",
    "order", "time", "ids", "box", "circle", "position", "yaw", "covariance", "velocity", "kind", "label",
    "caption", "state", "confidence", "reward", "payload", "evidence", "provenance", "marked", "count",
    "importance", "what",
})  # fmt: skip


def misspelt(kind: str, name: str, known: Collection[str]) -> str:
    """Return that a name is unknown, with the most similar known name."""
    near = difflib.get_close_matches(name.lower(), known, 1, 0.6)
    if near:
        return f"unknown {kind}. Did you mean {near[0]}?"
    listed = ", ".join(sorted(known))
    return f"unknown {kind}. Known: {listed}" if known else f"unknown {kind}. Remove it"


def without_paths(text: str, folder: Path) -> str:
    """Return a message without the store folder, at most ``LONGEST`` characters long."""
    for path in sorted({str(folder), str(folder.resolve())}, key=len, reverse=True):
        text = text.replace(path, "the store")
    return truncated(text, LONGEST)
