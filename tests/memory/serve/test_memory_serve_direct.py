"""Requests that go past the framework are answered as it would answer them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")

from fastapi import FastAPI
from fastapi.testclient import TestClient

from memory.serve import create_app
from memory.serve.direct_routes import DirectRoutes
from memory.serve.guard import Guard
from memory.store import MemoryStore

#: What reads nothing of its address.
ADDRESSES = {
    "/api/memories", "/api/query", "/api/ask", "/api/mark", "/api/forget", "/api/undo", "/api/consolidate",
}  # fmt: skip
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/api/query", {"json": {"embedding": [0, 1, 0], "k": 3}}),
    ("POST", "/api/query", {"json": {"text": "mug", "near": [0, 0], "aggregate": False}}),
    ("POST", "/api/query", {"json": {"embedding": [0, 1]}}),
    ("POST", "/api/query", {"json": {"k": 0}}),
    ("POST", "/api/query", {"json": {"like": 99}}),
    ("POST", "/api/query", {"content": "{", "headers": {"content-type": "application/json"}}),
    ("POST", "/api/query", {"content": "{}", "headers": {"content-type": "text/plain"}}),
    ("POST", "/api/query?k=3", {"json": {"embedding": [0, 1, 0]}}),
    ("POST", "/api/ask", {"json": {"question": "where is the red mug?", "now": "newest"}}),
    ("POST", "/api/ask", {"json": {}}),
    ("POST", "/api/undo", {"json": {"generation": 77}}),
    ("POST", "/api/forget", {"json": {"ids": [99]}}),
    ("GET", "/api/query", {}),
    ("HEAD", "/api/query", {}),
    ("PUT", "/api/memories", {"json": {}}),
    ("POST", "/api/query/", {"json": {}}),
    ("POST", "/api//query", {"json": {}}),
    ("OPTIONS", "/api/ask", {}),
]


def direct_of(app: Any) -> DirectRoutes:
    """The part of an application that goes past the rest."""
    return next(each for each in passed(app) if isinstance(each, DirectRoutes))


def passed(app: Any) -> list[Any]:
    """What a request passes, from outside."""
    found = [app.build_middleware_stack()]
    while (following := getattr(found[-1], "app", None) or getattr(found[-1], "_app", None)) is not None:
        found.append(following)
    return found


def test_the_addresses_are_those_whose_body_is_all_that_is_read(store: MemoryStore) -> None:
    found = direct_of(create_app(store))._routes
    assert {path for _, path in found} == ADDRESSES
    assert {method for method, _ in found} == {"POST"}


def test_every_request_passes_the_guard_first(store: MemoryStore, make_client: Callable[..., Any]) -> None:
    kinds = [type(each) for each in passed(create_app(store))]
    assert kinds.index(Guard) < kinds.index(DirectRoutes)
    client = make_client(token="a-long-secret")
    assert client.ask("POST", "/api/query", json={"k": 1}).status_code == 401
    assert client.ask("POST", "/api/query", json={"k": 1}, headers={"host": ""}).status_code == 400


def test_answers_are_those_of_the_framework(client: Any, store: MemoryStore) -> None:
    around: Any = create_app(store)
    around.before = [each for each in around.before if each.func is not DirectRoutes]
    assert not any(isinstance(each, DirectRoutes) for each in passed(around))
    straight = client.transport
    for method, path, named in REQUESTS:
        client.transport = straight
        found = client.ask(method, path, **named)
        client.transport = httpx.ASGITransport(around)
        expected = client.ask(method, path, **named)
        assert found.status_code == expected.status_code, (method, path, named)
        assert found.content == expected.content, (method, path, named)
        assert dict(found.headers) == dict(expected.headers), (method, path, named)


async def _unused(*_: Any) -> None:
    raise AssertionError("FastAPI looked for telemetry")


def test_no_request_looks_for_telemetry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FastAPI, "__call__", _unused)
    with (
        MemoryStore.open(tmp_path, dim=3) as store,
        TestClient(create_app(store), base_url="http://127.0.0.1") as client,
    ):
        assert client.get("/api/stats").status_code == 200
        assert client.post("/api/query", json={"embedding": [0, 1, 0]}).json() == {"hits": []}
