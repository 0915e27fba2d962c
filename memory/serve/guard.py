"""Checks of each request (host, rate, origin, token, size) and security headers of each answer."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

from memory.serve.answers import problem_answer
from memory.serve.errors import Problem, problem_of
from memory.serve.limits.rate import RateLimit, client_of, retry_after
from memory.serve.logs import REQUESTS, note_request
from memory.serve.options import ServeOptions

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from memory.serve.metrics import Metrics

_LOG = logging.getLogger(__name__)
_CONTENT = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
)
HEADERS = {
    "content-security-policy": _CONTENT,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_NAMES = frozenset(name for name, _ in _ENCODED)
_PRIVATE = (b"cache-control", b"no-store")
#: Addresses that need the token. The page and the API description do not.
GUARDED = ("/api", "/metrics")
#: Address that accepts the token as a parameter, because a browser's EventSource cannot send headers.
EVENTS = "/api/events"


class Guard:
    """ASGI layer that refuses invalid requests and answers unexpected errors.

    Args:
        app: the service.
        token: access token of requests to :data:`GUARDED`, or ``None``.
        folder: store folder, which answers must not name.
        options: limits.
        metrics: metrics that count requests, or ``None``.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        folder: Path,
        options: ServeOptions,
        metrics: Metrics | None = None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._token = None if token is None else token.encode()
        self._folder = folder
        self._options = options
        self._rate = RateLimit(options.rate, options.burst) if options.rate > 0.0 else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 0
        begun = time.perf_counter()
        if self._metrics is not None:
            self._metrics.begun()

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _completed(message.get("headers", ()), scope["path"])
            await send(message)

        try:
            await self._answer(scope, receive, guarded)
        except ClientDisconnect:
            pass  # The client left while sending the body.
        except Exception as error:
            if status:
                raise
            problem = problem_of(error, self._folder)
            if problem is None:
                _LOG.exception("%s %s failed", scope["method"], scope["path"])
                problem = Problem(500, "internal", "internal error. See the log of the service")
            await problem_answer(problem)(scope, receive, guarded)
        finally:
            seconds = time.perf_counter() - begun
            if self._metrics is not None:
                self._metrics.ended(scope, status, seconds)
            if REQUESTS.isEnabledFor(logging.INFO):
                note_request(scope, status, seconds)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._refusal(scope)
        answer = self._app if problem is None else problem_answer(problem)
        await answer(scope, receive, send)

    def _refusal(self, scope: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return Problem(
                400,
                "bad_host",
                "unknown host name. Use localhost, or start recall serve with --host and a token",
            )
        if self._rate is not None:
            wait = self._rate.take(client_of(scope.get("client")))
            if wait > 0.0:
                seconds = retry_after(wait)
                message = f"too many requests. Try again in {seconds} s"
                return Problem(429, "rate_limited", message, headers={"retry-after": seconds})
        if not _same_origin(headers, hosts[0]):
            return Problem(403, "cross_origin", "requests from other web pages are not allowed")
        if not self._is_authorised(scope, headers):
            message = "the token is missing or wrong. Send the header Authorization: Bearer TOKEN"
            return Problem(401, "unauthorised", message, headers={"www-authenticate": "Bearer"})
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > self._options.max_body_bytes:
            most = self._options.max_body_bytes
            return Problem(413, "too_large", f"the request exceeds {most} bytes. Send less at once")
        return None

    def _is_ours(self, host: str) -> bool:
        if self._options.hosts is None:
            return True
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name is not None and name.rstrip(".") in self._options.hosts

    def _is_authorised(self, scope: Scope, headers: Headers) -> bool:
        if self._token is None or not scope["path"].startswith(GUARDED):
            return True
        given: list[bytes] = []
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            given.append(value.strip().encode("latin-1"))
        if scope["path"] == EVENTS and scope["method"] == "GET":
            given += _tokens(scope["query_string"])
        return any(hmac.compare_digest(each, self._token) for each in given)


def _completed(headers: Iterable[tuple[bytes, bytes]], path: str) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer, including the security headers."""
    own = [(name, value) for name, value in headers if name not in _NAMES]
    if path.startswith(GUARDED):
        own = [(name, value) for name, value in own if name != b"cache-control"]
        own.append(_PRIVATE)
    return own + _ENCODED


def _tokens(query: bytes) -> Iterable[bytes]:
    try:
        return [value.encode() for value in parse_qs(query.decode("ascii"), max_num_fields=20)["token"][:1]]
    except (KeyError, ValueError):
        return []


def _same_origin(headers: Headers, host: str) -> bool:
    """True unless a browser reports that another site sent the request."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        # Links to the page and typed addresses are allowed.
        return headers.get("sec-fetch-mode") == "navigate" and "origin" not in headers
    origin = headers.get("origin")
    if origin is None:
        return True
    return origin.lower().partition("://")[2] == host.lower()
