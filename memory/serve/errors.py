"""Errors as answers: ``{"error": {"type", "message", "field"}}``, without a path of the server.

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
from memory.questions.limits import QuestionError

#: Characters of a message that are sent.
LONGEST = 500
_FIELD = re.compile(r"([a-z][a-z_]*(?:\[[^\]]{1,40}\])*(?:\.[a-z_]+)?)[ :=]")
#: What the files of the store say names them; this is said instead.
_STORE: dict[type[StoreError], tuple[int, str, str]] = {
    StoreReadOnlyError: (403, "read_only", "the store is served for reading only, or cannot be written"),
    StoreLockedError: (409, "store_locked", "the store is in use by another connection: try again"),
    StoreFullError: (507, "store_full", "no room left on the disk: nothing of this request was kept"),
    StoreClosedError: (503, "store_closed", "the store was closed: the service is ending"),
    StoreError: (500, "store", "the files of the store cannot be used: see recall check"),
}


class ServiceError(Exception):
    """A request that is refused.

    Attributes:
        problem: the answer.
    """

    def __init__(self, status: int, type: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.problem = Problem(status, type, message, field)


@dataclass(frozen=True)
class Problem:
    """The answer to a request that failed.

    Attributes:
        status: of HTTP.
        type: a word for programs.
        message: a sentence for people.
        field: of the request that is wrong, where one is to blame.
        headers: beside the usual ones.
    """

    status: int
    type: str
    message: str
    field: str | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The body."""
        return {"error": {"type": self.type, "message": self.message, "field": self.field}}


def problem_of(error: Exception, folder: Path) -> Problem | None:
    """The answer for an error; ``None`` for one that nobody foresaw.

    Args:
        error: raised on purpose, or by a library.
        folder: of the store, which is left out of messages.
    """
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
        return Problem(422, "invalid", "the request is nested too deeply")
    if isinstance(error, ValueError | TypeError | OverflowError):
        return Problem(422, "invalid", message, field_in(message))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Problem(507, "store_full", "no room left on the disk")
    return None


def invalid(errors: list[Any], folder: Path) -> Problem:
    """The answer to values of the wrong sort, from what pydantic found; the first of them."""
    first = errors[0]
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    name = ""
    for part in place:
        name += f"[{part}]" if part.isdecimal() else f".{part}" if name else part
    said = without_paths(str(first["msg"]), folder)
    return Problem(422, "invalid", f"{name}: {said}" if name else said, name or None)


def field_in(message: str) -> str | None:
    """The name of a field that a message of this library begins with."""
    found = _FIELD.match(message)
    return found[1] if found and ("_" in found[1] or found[1] in _ONE_WORD or "[" in found[1]) else None


#: Names of fields that could as well be the first word of a sentence.
_ONE_WORD = frozenset({
    "text", "embedding", "like", "encoder", "near", "polygon", "between", "labels", "kinds", "states", "k",
    "order", "time", "ids", "box", "circle", "position", "yaw", "covariance", "kind", "label", "caption",
    "state", "confidence", "reward", "payload", "evidence", "provenance", "marked", "count", "importance",
    "what",
})  # fmt: skip


def misspelt(kind: str, name: str, known: Collection[str]) -> str:
    """A sentence that says that there is no such name, and which it could be."""
    near = difflib.get_close_matches(name.lower(), known, 1, 0.6)
    if near:
        return f"there is no such {kind}; did you mean {near[0]}?"
    listed = ", ".join(sorted(known))
    return f"there is no such {kind}; there are {listed}" if known else f"there is no such {kind}: give none"


def without_paths(text: str, folder: Path) -> str:
    """A message without the folder of the store, and of bounded length."""
    for path in sorted({str(folder), str(folder.resolve())}, key=len, reverse=True):
        text = text.replace(path, "the store")
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
