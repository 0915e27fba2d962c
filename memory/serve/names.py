"""Refusal of unknown parameter and field names, with the most similar known one."""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Union, get_args, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from memory.serve.errors import ServiceError, misspelt


async def check_parameters(request: Request) -> None:
    """Raise ``ServiceError`` for an unknown or repeated parameter of an address."""
    if not request.scope["query_string"]:
        return
    route = request.scope["route"]
    known = dict(_parameters(route.dependant)) if isinstance(route, APIRoute) else {}
    given = [name for name, _ in request.query_params.multi_items()]
    for name in dict.fromkeys(given):
        if name not in known:
            raise unknown("parameter", name, known, name)
        if given.count(name) > 1 and not known[name]:
            message = f"{name}: given {given.count(name)} times. Give it once"
            raise ServiceError(422, "invalid", message, name)


def check_fields(model: type[BaseModel], error: ValidationError) -> None:
    """Raise ``ServiceError`` for the first unknown field of a body."""
    for each in error.errors(include_url=False, include_input=False, include_context=False):
        if each["type"] == "extra_forbidden":
            *place, name = each["loc"]
            known = _fields(model.model_json_schema(), place)
            path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in each["loc"])
            raise unknown("field", str(name), known, path.lstrip("."))


def unknown(kind: str, name: str, known: Collection[str], path: str) -> ServiceError:
    """Return the error for an unknown name.

    Args:
        kind: parameter, field or argument.
        name: the unknown name.
        known: known names.
        path: place of the name within the request.
    """
    return ServiceError(422, "invalid", f"{path[:80]}: {misspelt(kind, name, known)}", path[:80])


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Yield the parameter names of a route, and whether each may be repeated."""
    for field in dependant.query_params:
        yield field.alias, _is_list(field.field_info.annotation)
    for part in dependant.dependencies:
        yield from _parameters(part)


def _is_list(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        return any(map(_is_list, get_args(annotation)))
    return get_origin(annotation) is list


def _fields(schema: Mapping[str, Any], place: Sequence[str | int]) -> list[str]:
    """Return the field names of an object within a body."""
    found: Mapping[str, Any] = schema
    for part in (*place, None):
        while "$ref" in found:
            found = schema["$defs"][found["$ref"].rpartition("/")[2]]
        if isinstance(part, int):
            found = found.get("items", {})
        elif part is not None:
            found = found.get("properties", {}).get(part, {})
    return list(found.get("properties", {}))
