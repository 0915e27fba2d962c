"""Reading and parsing of request bodies, with limits."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from memory.serve.errors import ServiceError
from memory.serve.names import check_fields
from memory.serve.options import ServeOptions

if sys.version_info >= (3, 11):
    from asyncio import timeout  # A tenth of the time of anyio's.
else:
    import anyio

    @asynccontextmanager
    async def timeout(delay: float) -> AsyncIterator[None]:
        """Raise ``TimeoutError`` within the context after so many seconds."""
        with anyio.fail_after(delay):
            yield


Model = TypeVar("Model", bound=BaseModel)
#: Invalid JSON numbers that fast parsers accept.
_NO_NUMBERS = (b"NaN", b"Infinity")
#: Bytes above which a body is checked before parsing; two such bodies are processed at once.
LARGE = 1 << 20
#: Maximum names of an object, except in payloads.
MOST_NAMES = 64
#: Maximum objects, lists and names of a body per allowed memory.
PARTS = 64


class Bodies:
    """Accounting of unanswered request bodies; ``most`` is their maximum total size in bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._large = asyncio.Semaphore(2)

    @property
    def total_bytes(self) -> int:
        """Total size."""
        return self._bytes

    @contextmanager
    def held(self) -> Iterator[list[int]]:
        """Yield the counter of one request, which :meth:`take` increases."""
        mine = [0]
        try:
            yield mine
        finally:
            self._bytes -= mine[0]

    def take(self, mine: list[int], size: int) -> None:
        """Count more bytes; raise ``ServiceError`` above the limit."""
        if self._bytes + size > self._most:
            raise ServiceError(
                503, "busy", "the service receives too much data at the moment. Try again later"
            )
        self._bytes += size
        mine[0] += size

    def turn(self, body: bytes) -> asyncio.Semaphore | _NoWait:
        """Return the context in which a body is processed; large bodies wait for each other."""
        return self._large if len(body) > LARGE else _NoWait()


class _NoWait:
    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


async def read_body(request: Request, options: ServeOptions, bodies: Bodies, mine: list[int]) -> bytes:
    """Read the body of a request.

    Raises:
        ServiceError: the body is too long, too slow, compressed or not declared as JSON.
        starlette.requests.ClientDisconnect: the client left.
    """
    sort = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sort != "application/json":
        raise ServiceError(415, "media_type", "the Content-Type must be application/json")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise ServiceError(415, "media_type", "compressed bodies are not supported. Send it uncompressed")
    parts, size = [], 0
    try:
        async with timeout(options.body_timeout_s):
            async for part in request.stream():
                size += len(part)
                if size > options.max_body_bytes:
                    raise too_large(options.max_body_bytes)
                bodies.take(mine, len(part))
                parts.append(part)
    except TimeoutError as error:
        message = f"the body did not arrive within {options.body_timeout_s:g} s"
        raise ServiceError(408, "timeout", message) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def too_large(most: int) -> ServiceError:
    """Return the error for a body above the limit."""
    return ServiceError(413, "too_large", f"the request exceeds {most} bytes. Send less at once")


def parse(model: type[Model], body: bytes, options: ServeOptions) -> Model:
    """Parse a body. Sizes are checked first, because validating a million wrong values takes long.

    Raises:
        ServiceError: invalid JSON, or too many values.
        ValidationError: the values do not match the model.
    """
    if len(body) <= LARGE and not any(word in body for word in _NO_NUMBERS):
        try:
            return model.model_validate_json(body)
        except ValidationError:
            pass  # Parse again below, for a better message.
    try:
        if len(body) > LARGE:
            _check_parts(body, options)
            found = from_json(body)  # Faster, but with shorter messages.
        else:
            found = json.loads(body.decode("utf-8"), parse_constant=_reject)
    except _NotANumber as error:
        raise ServiceError(422, "invalid", str(error)) from error
    except (ValueError, RecursionError) as error:
        raise ServiceError(400, "bad_json", f"the body is not valid JSON: {error}") from error
    _check_sizes(found, options)
    try:
        return model.model_validate(found)
    except ValidationError as error:
        check_fields(model, error)
        raise


def _check_parts(body: bytes, options: ServeOptions) -> None:
    """Raise :class:`ServiceError` for a body with so many parts that parsing would be slow."""
    most = PARTS * options.max_batch
    if body.count(b"[") + body.count(b"{") > most or body.translate(None, b" \t\r\n").count(b'":') > most:
        raise ServiceError(
            413, "too_large", f"the request has more than {most} lists, objects or names. Send less at once"
        )


def _check_sizes(found: Any, options: ServeOptions) -> None:
    """Raise :class:`ServiceError` for objects with too many names and lists with too many entries."""
    if not isinstance(found, dict):
        return
    _check_names("the request", found)
    for name, values in found.items():
        if isinstance(values, list) and len(values) > options.max_batch:
            message = f"{name}: at most {options.max_batch} at once, got {len(values)}"
            raise ServiceError(422, "invalid", message, name)
    records = found.get("memories")
    for row, record in enumerate(records if isinstance(records, list) else ()):
        if isinstance(record, dict):
            _check_names(f"memories[{row}]", record)
            _check_names(f"memories[{row}].embeddings", record.get("embeddings"))


def _check_names(name: str, value: Any) -> None:
    if isinstance(value, dict) and len(value) > MOST_NAMES:
        raise ServiceError(422, "invalid", f"{name} has {len(value)} names. At most {MOST_NAMES} are allowed")


class _NotANumber(ValueError):
    """NaN or infinity."""


def _reject(word: str) -> NoReturn:
    raise _NotANumber(f"{word} is not a JSON number. Use null")
