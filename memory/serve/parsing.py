"""Bodies of requests: how much, how long, and what they say."""

from __future__ import annotations

import asyncio
import json
from typing import NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from memory.serve.errors import ServiceError
from memory.serve.options import ServeOptions

Model = TypeVar("Model", bound=BaseModel)
#: JSON has no such numbers, and whatever reads it fast takes them all the same.
_NO_NUMBERS = (b"NaN", b"Infinity")


async def read_body(request: Request, options: ServeOptions) -> bytes:
    """The body of a request.

    Raises:
        ServiceError: too long, too slow, or not declared as JSON.
    """
    sort = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sort != "application/json":
        raise ServiceError(415, "media_type", "send JSON with Content-Type: application/json")
    parts, size = [], 0
    try:
        async with asyncio.timeout(options.body_timeout_s):
            async for part in request.stream():
                size += len(part)
                if size > options.max_body_bytes:
                    raise too_large(options.max_body_bytes)
                parts.append(part)
    except TimeoutError as error:
        message = f"the body did not come within {options.body_timeout_s:g} s"
        raise ServiceError(408, "timeout", message) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def too_large(most: int) -> ServiceError:
    """The refusal of a body."""
    return ServiceError(413, "too_large", f"a request holds at most {most} bytes: send less at a time")


def parse(model: type[Model], body: bytes) -> Model:
    """The request of a body; NaN and infinity are no JSON.

    Raises:
        ServiceError: no JSON.
        ValidationError: not what the request holds.
    """
    if not any(word in body for word in _NO_NUMBERS):
        try:
            return model.model_validate_json(body)
        except ValidationError:
            pass  # Read once more, by what says best what is wrong.
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_reject)
    except _NotANumber as error:
        raise ServiceError(422, "invalid", str(error)) from error
    except (ValueError, RecursionError) as error:
        raise ServiceError(400, "bad_json", f"the body is no JSON: {error}") from error
    return model.model_validate(found)


class _NotANumber(ValueError):
    """NaN or infinity."""


def _reject(word: str) -> NoReturn:
    raise _NotANumber(f"{word} is no number in JSON")
