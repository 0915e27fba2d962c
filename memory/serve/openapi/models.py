"""Models of the schema, generated from the dataclasses of answers."""

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

#: Fields that differ from the dataclass: optional vectors, null for numbers that are not finite, and totals
#: of shortened lists.
_REPLACED_FIELDS: dict[type, dict[str, Any]] = {
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
    """Return the model of a dataclass or named tuple.

    Fields with a default are optional only for classes of :mod:`memory.serve.openapi.responses`.
    """
    ours = record.__module__ == "memory.serve.openapi.responses"
    hints = get_type_hints(record, include_extras=True)
    entries = {entry.name: entry for entry in fields(record)} if is_dataclass(record) else {}
    names = MEMORY if record is Memory else entries or record._fields
    descriptions = _attributes(record)
    found: dict[str, Any] = {}
    for name in names:
        entry = entries.get(name)
        if entry is not None and entry.metadata == OMITTED:
            continue
        default: Any = ...
        if entry is not None and ours:
            made = entry.default if entry.default_factory is MISSING else entry.default_factory()
            default = ... if made is MISSING else made
        hint = _plain_type(hints[name])
        if name in descriptions:
            hint = Annotated[hint, Field(description=descriptions[name])]
        found[name] = (hint, default)
    name = record.__name__ if ours else f"{record.__name__}Answer"
    return create_model(
        name, __config__=ConfigDict(extra="forbid"), __doc__=(record.__doc__ or "").split("\n\n")[0],
        **(found | _REPLACED_FIELDS.get(record, {})),
    )  # fmt: skip


def _plain_type(hint: Any) -> Any:
    """Return the type of a field in the output of :func:`memory.plain_values.to_plain`."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Visit:
        return Annotated[list[int], Field(min_length=3, max_length=3)]
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return model_of(hint)
    if origin is Annotated:
        return Annotated[(_plain_type(parts[0]), *parts[1:])]
    if origin in (Union, UnionType):
        return Union[tuple(map(_plain_type, parts))]  # noqa: UP007
    if origin is np.ndarray:
        return list[list[float]]
    if origin is tuple and parts[-1] is not Ellipsis:
        return Annotated[list[_plain_type(parts[0])], Field(min_length=len(parts), max_length=len(parts))]  # type: ignore[misc]
    if origin in (tuple, list, Sequence):
        return list[_plain_type(parts[0])]  # type: ignore[misc]
    if origin in (dict, Mapping):
        return dict[str, _plain_type(parts[1])]  # type: ignore[misc]
    assert origin in (None, Literal), hint
    return hint


def _attributes(record: Any) -> dict[str, str]:
    """Return the descriptions of the fields from the docstring."""
    _, _, text = (inspect.getdoc(record) or "").partition("Attributes:\n")
    return {
        name: " ".join(description.split()).replace("``None``", "null").replace("``", "").removesuffix(".")
        for names, description in re.findall(r"(?m)^    ([\w, ]+): (.+(?:\n {6,}.+)*)", text)
        for name in names.split(", ")
    }
