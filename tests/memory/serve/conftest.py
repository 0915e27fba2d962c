"""A service in this process, asked without a network, and one in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from service_process import Served

from memory.serve import create_app
from memory.serve.options import ServeOptions
from memory.store import MemoryStore

DIM = 3
RECORDS = [
    {"time": "2026-01-01T10:00:00Z", "label": "Door", "caption": "brown front door", "x": 0, "y": 0},
    {"time": "2026-01-02T10:00:00Z", "label": "Mug", "caption": "red mug", "x": 1, "y": 2},
    {"time": "2026-01-03T10:00:00Z", "label": "Mug", "caption": "blue mug", "x": -4, "y": -4},
    {
        "time": "2026-01-04T10:00:00Z",
        "label": "Charger",
        "map_id": "yard",
        "kind": "place",
        "reward": 1.0,
        "position": [0, 0, 0],
    },
]
VECTORS = ([1, 0, 0], [0, 1, 0.1], [0, 1, -0.1], [0, 0, 1])


class Client:
    """Asks a service; keeps what every answer said."""

    def __init__(self, app: Any, *, base: str = "http://127.0.0.1:8713") -> None:
        self.runner = asyncio.Runner()
        self.base = base
        self.transport = httpx.ASGITransport(app)
        self.said: list[str] = []

    def ask(self, method: str, path: str, **named: Any) -> httpx.Response:
        """One request."""
        return self.together([(method, path, named)])[0]

    def together(self, requests: list[tuple[str, str, dict[str, Any]]]) -> list[httpx.Response]:
        """Requests at the same time."""

        async def run() -> list[httpx.Response]:
            async with httpx.AsyncClient(transport=self.transport, base_url=self.base) as client:
                return await asyncio.gather(
                    *(client.request(method, path, **named) for method, path, named in requests)
                )

        answers = self.runner.run(run())
        self.said += [answer.text + str(answer.headers) for answer in answers]
        return answers

    def get(self, path: str, **named: Any) -> httpx.Response:
        """Read something."""
        return self.ask("GET", path, **named)

    def post(self, path: str, body: Any, **named: Any) -> httpx.Response:
        """Send JSON."""
        return self.ask("POST", path, json=body, **named)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MemoryStore]:
    with MemoryStore.open(tmp_path / "robot-store", dim=DIM) as opened:
        yield opened


@pytest.fixture
def make_client(store: MemoryStore) -> Iterator[Callable[..., Client]]:
    """Services of the store; no answer of theirs may name its folder."""
    made: list[tuple[Client, Any]] = []

    def make(*, token: str | None = None, base: str = "http://127.0.0.1:8713", **options: Any) -> Client:
        app = create_app(store, token=token, options=ServeOptions(threads=8, **options))
        client = Client(app, base=base)
        made.append((client, app))
        return client

    yield make
    for client, app in made:

        async def end(app: Any = app) -> None:
            async with app.state.service.running():
                pass

        client.runner.run(end())
        client.runner.close()
        assert not [text for text in client.said if str(store.folder) in text or "robot-store" in text]


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    """A service of a store with two mugs, a door and a charger."""
    made = make_client()
    records = [record | {"embedding": vector} for record, vector in zip(RECORDS, VECTORS, strict=True)]
    assert made.post("/api/memories", {"memories": records}).json() == {"ids": [1, 2, 3, 4]}
    return made


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start services, which end with the test."""
    made: list[Served] = []

    def make(folder: Path, *options: str, **named: Any) -> Served:
        made.append(Served(folder, *options, **named))
        return made[-1]

    yield make
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()
