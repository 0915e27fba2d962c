"""Bodies of requests: how much, how long, and what they say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import anyio
from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from memory.serve.errors import ServiceError
from memory.serve.names import check_fields
from memory.serve.options import ServeOptions

Model = TypeVar("Model", bound=BaseModel)
#: JSON has no such numbers, and whatever reads it fast takes them all the same.
_NO_NUMBERS = (b"NaN", b"Infinity")
#: Bytes of a body beyond which it is looked at before it is read; of such bodies two are worked on at a time.
LARGE = 1 << 20
#: Names that an object of a request has at most, but for what is in a payload.
MOST_NAMES = 64
#: Objects, lists and names that a body has at most for each memory that it may hold.
PARTS = 64


class Bodies:
    """What is held of bodies that came and are not answered yet.

    Args:
        most: bytes of all of them together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._large = asyncio.Semaphore(2)

    @property
    def total_bytes(self) -> int:
        """Of all of them."""
        return self._bytes

    @contextmanager
    def held(self) -> Iterator[list[int]]:
        """The bytes of one request, which :meth:`take` adds to."""
        mine = [0]
        try:
            yield mine
        finally:
            self._bytes -= mine[0]

    def take(self, mine: list[int], size: int) -> None:
        """Hold more.

        Raises:
            ServiceError: there is no room just now.
        """
        if self._bytes + size > self._most:
            raise ServiceError(503, "busy", "too much is being sent to the service just now: try later")
        self._bytes += size
        mine[0] += size

    def turn(self, body: bytes) -> asyncio.Semaphore | _NoWait:
        """What a body has to wait for: large ones take memory and time to read, and small ones none."""
        return self._large if len(body) > LARGE else _NoWait()


class _NoWait:
    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


async def read_body(request: Request, options: ServeOptions, bodies: Bodies, mine: list[int]) -> bytes:
    """The body of a request.

    Args:
        request: to read.
        options: limits.
        bodies: of all requests.
        mine: of this one, see :meth:`Bodies.held`.

    Raises:
        ServiceError: too long, too slow, compressed, not declared as JSON, or too much at once.
        starlette.requests.ClientDisconnect: the client left.
    """
    sort = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sort != "application/json":
        raise ServiceError(415, "media_type", "send JSON with Content-Type: application/json")
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise ServiceError(415, "media_type", "send the body as it is: compressed ones are not read")
    parts, size = [], 0
    try:
        with anyio.fail_after(options.body_timeout_s):
            async for part in request.stream():
                size += len(part)
                if size > options.max_body_bytes:
                    raise too_large(options.max_body_bytes)
                bodies.take(mine, len(part))
                parts.append(part)
    except TimeoutError as error:
        message = f"the body did not come within {options.body_timeout_s:g} s"
        raise ServiceError(408, "timeout", message) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def too_large(most: int) -> ServiceError:
    """The refusal of a body."""
    return ServiceError(413, "too_large", f"a request holds at most {most} bytes: send less at a time")


def parse(model: type[Model], body: bytes, options: ServeOptions) -> Model:
    """The request of a body; NaN and infinity are no JSON.

    How much there is of everything is looked at first: what is wrong with a million values is not worth
    finding out.

    Raises:
        ServiceError: no JSON, or too much of something.
        ValidationError: not what the request holds.
    """
    if len(body) <= LARGE and not any(word in body for word in _NO_NUMBERS):
        try:
            return model.model_validate_json(body)
        except ValidationError:
            pass  # Read once more, by what says best what is wrong.
    try:
        if len(body) > LARGE:
            _check_parts(body, options)
            found = from_json(body)  # What says less, and takes less time.
        else:
            found = json.loads(body.decode("utf-8"), parse_constant=_reject)
    except _NotANumber as error:
        raise ServiceError(422, "invalid", str(error)) from error
    except (ValueError, RecursionError) as error:
        raise ServiceError(400, "bad_json", f"the body is no JSON: {error}") from error
    _check_sizes(found, options)
    try:
        return model.model_validate(found)
    except ValidationError as error:
        check_fields(model, error)
        raise


def _check_parts(body: bytes, options: ServeOptions) -> None:
    """Raise :class:`ServiceError` where a body would take long to read although it is not long."""
    most = PARTS * options.max_batch
    if body.count(b"[") + body.count(b"{") > most or body.translate(None, b" \t\r\n").count(b'":') > most:
        raise ServiceError(413, "too_large", f"a request has at most {most} lists, objects or names")


def _check_sizes(found: Any, options: ServeOptions) -> None:
    """Raise :class:`ServiceError` where an object has too many names, or a list too many entries."""
    if not isinstance(found, dict):
        return
    _check_names("the request", found)
    for name, values in found.items():
        if isinstance(values, list) and len(values) > options.max_batch:
            message = f"{name}: at most {options.max_batch} at a time, got {len(values)}"
            raise ServiceError(422, "invalid", message, name)
    records = found.get("memories")
    for row, record in enumerate(records if isinstance(records, list) else ()):
        if isinstance(record, dict):
            _check_names(f"memories[{row}]", record)
            _check_names(f"memories[{row}].embeddings", record.get("embeddings"))


def _check_names(name: str, value: Any) -> None:
    if isinstance(value, dict) and len(value) > MOST_NAMES:
        raise ServiceError(422, "invalid", f"{name} has {len(value)} names, at most {MOST_NAMES} are taken")


class _NotANumber(ValueError):
    """NaN or infinity."""


def _reject(word: str) -> NoReturn:
    raise _NotANumber(f"{word} is no number in JSON")
