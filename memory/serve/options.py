"""Limits of the service."""

from __future__ import annotations

from dataclasses import dataclass, fields

from memory.types import check_integer, check_numbers

#: Names under which a service on the loopback interface is asked for.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ServeOptions:
    """How much a client may ask for.

    Attributes:
        hosts: names that a request may be addressed to, which keeps web pages from reaching a service on
            the loopback interface under a name of their own; ``None`` for any, which needs a token.
        max_body_bytes: of a request.
        max_held_bytes: of the bodies of all requests that are not answered yet.
        header_timeout_s: seconds that a connection has for the head of a request.
        body_timeout_s: seconds that the body of a request may take to come.
        max_connections: clients at the same time, those that follow included.
        rate: requests a second of one client on average; 0 for no limit.
        burst: requests that a client may make at once, where there is a rate.
        max_batch: memories of one request, and ids to forget.
        max_page: memories or log entries of one answer.
        max_k: hits of a query.
        max_vector: numbers of a vector.
        max_new_encoders: names of encoders that a request may bring and the store does not have; a store has
            room for 64.
        max_subscribers: clients that follow what happens.
        query_timeout_s: seconds that reading for one request may take; 0 for no limit. What changes the store
            is not limited, nor is what is read once for all, such as a check or a cache.
        threads: that read the store at most, in turn where that goes quickly
            (:mod:`memory.serve.workers.turns`), and as many again that write to it; as many requests to add
            can share a commit.
        compute_threads: that one search computes with, set for the whole process by
            :func:`memory.serve.running.serve`; requests run beside each other, and more than one gets in the
            way of the others.
        heartbeat_s: seconds between signs of life to those who follow.
        poll_s: seconds between looks for what other processes did.
        check_every_s: seconds for which the result of a check is given again instead of checking anew.
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
                raise ValueError(f"{name} must be above 0")
