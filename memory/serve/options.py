"""Limits of the service."""

from __future__ import annotations

from dataclasses import dataclass, fields

from memory.types import check_integer, check_numbers

#: Host names of the loopback interface.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ServeOptions:
    """Limits of the service.

    Attributes:
        hosts: allowed values of the Host header, which protects a local service from DNS rebinding; ``None``
            for any host, which needs a token.
        max_body_bytes: maximum request size.
        max_held_bytes: maximum size of all unanswered requests together.
        header_timeout_s: seconds to receive the header of a request.
        body_timeout_s: seconds to receive the body of a request.
        max_connections: maximum connections, including event streams.
        rate: maximum requests per second and client; 0 for no limit.
        burst: maximum requests of a client at once, if there is a rate.
        max_batch: maximum memories or ids of a request.
        max_page: maximum memories or log entries of an answer.
        max_k: maximum hits of a query.
        max_vector: maximum vector length.
        max_new_encoders: maximum new encoder names of a request; a store holds 64.
        max_subscribers: maximum event streams.
        query_timeout_s: time limit of reads for one request, 0 for none. Writes, checks and caches have none.
        threads: maximum threads that read the store, and maximum threads that write to it. Requests to add
            memories in parallel share a commit.
        compute_threads: threads of one search, set for the whole process. More than one slows down parallel
            requests.
        heartbeat_s: seconds between heartbeats of an event stream.
        poll_s: seconds between polls for changes by other processes.
        check_every_s: seconds for which the result of a check is reused.
    """

    hosts: tuple[str, ...] | None = LOOPBACK_NAMES
    max_body_bytes: int = 16 << 20
    max_held_bytes: int = 256 << 20
    header_timeout_s: float = 10.0
    body_timeout_s: float = 60.0
    max_connections: int = 1000
    rate: float = 200.0
    burst: int = 400
    max_batch: int = 10_000
    max_page: int = 1_000
    max_k: int = 1_000
    max_vector: int = 8_192
    max_new_encoders: int = 8
    max_subscribers: int = 64
    query_timeout_s: float = 10.0
    threads: int = 32
    compute_threads: int = 1
    heartbeat_s: float = 15.0
    poll_s: float = 0.25
    check_every_s: float = 60.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` or ``TypeError`` for a value that means nothing."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.name == "hosts":
                continue
            if isinstance(entry.default, int):
                if check_integer(entry.name, value) < 1:
                    raise ValueError(f"{entry.name} must be at least 1, got {value}")
            elif check_numbers(entry.name, (value,), 1)[0] < 0.0:
                raise ValueError(f"{entry.name} must not be negative, got {value}")
        for name in ("heartbeat_s", "poll_s", "header_timeout_s", "body_timeout_s"):
            if getattr(self, name) == 0.0:
                raise ValueError(f"{name} must be above 0, got 0")


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a process that serves a store.

    Attributes:
        host: address to listen on; a token is needed for others than the loopback interface.
        port: 0 for any free port.
        token: see :func:`memory.serve.create_app`.
        limits: limits of the service; with readers, each applies them on its own.
        verbosity: -1 logs errors only, 0 also warnings, 1 also each request.
        json_log: log as JSON.
    """

    host: str = "127.0.0.1"
    port: int = 8713
    token: str | None = None
    limits: ServeOptions = ServeOptions()
    verbosity: int = 0
    json_log: bool = False
