"""Models of the schema, made of the records that the library answers with: they are defined there, once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, create_model

from memory.plain_values import MEMORY, OMITTED
from memory.questions.answers import Changed
from memory.types import Hit, Memory, Visit

#: What the service adds to a record, or tells otherwise: vectors where they are asked for, numbers that are
#: not finite as null, and how many there are of a list that it cut.
_OTHERWISE: dict[type, dict[str, Any]] = {
    Memory: {
        "id": (int, ...),
        "first_seen_ns": (int, ...),
        "last_seen_ns": (int, ...),
        "embedding": (list[float] | None, None),
        "embeddings": (dict[str, list[float]], {}),
    },
    Hit: {"score": (float | None, ...), "parts": (dict[str, float | None], ...)},
    Changed: {"new_total": (int, 0), "gone_total": (int, 0), "moved_total": (int, 0)},
}


@cache
def model_of(record: Any) -> type[BaseModel]:
    """The model of a dataclass or named tuple: it has its fields and no others.

    In :mod:`memory.serve.openapi.responses`, where records are shapes of the service alone, a default says
    that a field may be left out. Others are always told in full.
    """
    ours = record.__module__ == "memory.serve.openapi.responses"
    hints = get_type_hints(record, include_extras=True)
    entries = {entry.name: entry for entry in fields(record)} if is_dataclass(record) else {}
    names = MEMORY if record is Memory else entries or record._fields
    said = _attributes(record)
    found: dict[str, Any] = {}
    for name in names:
        entry = entries.get(name)
        if entry is not None and entry.metadata == OMITTED:
            continue
        default: Any = ...
        if entry is not None and ours:
            made = entry.default if entry.default_factory is MISSING else entry.default_factory()
            default = ... if made is MISSING else made
        told = _told(hints[name])
        found[name] = (Annotated[told, Field(description=said[name])] if name in said else told, default)
    name = record.__name__ if ours else f"{record.__name__}Answer"
    return create_model(
        name, __config__=ConfigDict(extra="forbid"), __doc__=(record.__doc__ or "").split("\n\n")[0],
        **(found | _OTHERWISE.get(record, {})),
    )  # fmt: skip


def _told(hint: Any) -> Any:
    """The type of a field as :func:`memory.plain_values.to_plain` tells it."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Visit:
        return Annotated[list[int], Field(min_length=3, max_length=3)]
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return model_of(hint)
    if origin is Annotated:
        return Annotated[(_told(parts[0]), *parts[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(map(_told, parts))]  # noqa: UP007
    if origin is np.ndarray:
        return list[list[float]]
    if origin is tuple and parts[-1] is not Ellipsis:
        return Annotated[list[_told(parts[0])], Field(min_length=len(parts), max_length=len(parts))]  # type: ignore[misc]
    if origin in (tuple, list, Sequence):
        return list[_told(parts[0])]  # type: ignore[misc]
    if origin in (dict, Mapping):
        return dict[str, _told(parts[1])]  # type: ignore[misc]
    assert origin in (None, Literal), hint
    return hint


def _attributes(record: Any) -> dict[str, str]:
    """What the docstring of a record says of each field."""
    _, _, said = (inspect.getdoc(record) or "").partition("Attributes:\n")
    return {
        name: " ".join(text.split()).replace("``None``", "null").replace("``", "").removesuffix(".")
        for names, text in re.findall(r"(?m)^    ([\w, ]+): (.+(?:\n {6,}.+)*)", said)
        for name in names.split(", ")
    }
