"""Who may ask, how much, and what no answer says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory.cli import main
from memory.errors import CorruptStoreError, StoreFullError
from memory.serve import ServeOptions, create_app
from memory.serve.limits.rate import RateLimit, client_of
from memory.serve.options import ServiceSettings
from memory.serve.running import is_loopback, with_hosts
from memory.store import MemoryStore

JSON = {"content-type": "application/json"}


def kind(answer: Any) -> tuple[int, str]:
    error = answer.json()["error"]
    assert set(error) == {"type", "message", "field"}
    return answer.status_code, error["type"]


def test_a_token_is_asked_for(make_client: Callable[..., Any]) -> None:
    client = make_client(token="sesame")
    assert kind(client.get("/api/stats")) == (401, "unauthorised")
    for wrong in ("Bearer", "Bearer open", "Basic sesame", "Bearer sesame2", "Bearer s\u00e9same"):
        headers = {"authorization": wrong.encode("latin-1")}
        assert kind(client.get("/api/stats", headers=headers)) == (401, "unauthorised")
    assert client.get("/api/stats", headers={"authorization": "Bearer sesame"}).status_code == 200
    # In the address only for live updates, which a browser cannot send a header with.
    assert kind(client.get("/api/stats?token=sesame")) == (401, "unauthorised")
    assert kind(client.get("/api/events?token=open")) == (401, "unauthorised")
    answer = client.get("/api/events?token=sesame", headers={"last-event-id": "x"})
    assert kind(answer) == (422, "invalid")
    # The page and the schema say nothing of the store.
    assert client.get("/").status_code == client.get("/openapi.json").status_code == 200


def test_without_a_token_only_this_computer_is_served(
    store: MemoryStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="needs a token"):
        create_app(store, options=ServeOptions(hosts=None))
    for wrong in ("", " x", "t\u00f6ken", "a\nb"):
        with pytest.raises(ValueError, match="token"):
            create_app(store, token=wrong)
    assert is_loopback("127.0.0.5")
    assert is_loopback("::1")
    for host in ("0.0.0.0", "::", "192.168.1.2", "robot.local"):
        assert not is_loopback(host)
        with pytest.raises(ValueError, match="so a token is needed"):
            with_hosts(ServiceSettings(host))
        assert with_hosts(ServiceSettings(host, token="secret")).limits.hosts is None
    monkeypatch.delenv("RECALL_TOKEN", raising=False)
    assert main(["serve", str(tmp_path / "nothing"), "--host", "0.0.0.0"]) == 2
    assert "so a token is needed" in capsys.readouterr().err


def test_host_and_origin(client: Any) -> None:
    for host in ("localhost", "127.0.0.1:99", "[::1]:8713", "LOCALHOST:1"):
        assert client.get("/api/health", headers={"host": host}).status_code == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost@evil", "", "[::1", "10.0.0.1:8713"):
        assert kind(client.get("/api/health", headers={"host": host})) == (400, "bad_host")
    for headers in (
        {"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:8714"},
    ):  # fmt: skip
        assert kind(client.post("/api/undo", {"generation": 1}, headers=headers)) == (403, "cross_origin")
    own = {"origin": "http://127.0.0.1:8713", "sec-fetch-site": "same-origin"}
    assert client.get("/api/health", headers=own).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/", headers=link).status_code == 200
    # What a form of another page could send without asking.
    answer = client.ask(
        "POST", "/api/undo", content=b'{"generation":1}', headers={"content-type": "text/plain"}
    )
    assert kind(answer) == (415, "media_type")


def test_headers_of_every_answer(client: Any) -> None:
    for path in ("/", "/page.js", "/api/health", "/nothing", "/api/nothing", "/openapi.json"):
        headers = client.get(path).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    assert kind(client.get("/api/nothing")) == (404, "not_found")
    assert kind(client.ask("DELETE", "/api/query"))[0] in (404, 405)
    for path in ("/..%2fapp.py", "/%2e%2e/app.py", "/..%5capp.py", "//etc/passwd"):
        assert client.get(path).status_code == 404


def test_body_limits(make_client: Callable[..., Any]) -> None:
    client = make_client(max_body_bytes=200, max_batch=2, max_page=5, max_k=20, max_vector=4)
    long = json.dumps({"text": "x" * 300}).encode()
    assert kind(client.ask("POST", "/api/query", content=long, headers=JSON)) == (413, "too_large")

    async def parts() -> Any:
        for at in range(0, len(long), 50):
            yield long[at : at + 50]

    assert kind(client.ask("POST", "/api/query", content=parts(), headers=JSON)) == (413, "too_large")
    batch = {"memories": [{"time_ns": 1}] * 3}
    assert client.post("/api/memories", batch).json()["error"]["field"] == "memories"
    assert client.post("/api/forget", {"ids": [1, 2, 3]}).json()["error"]["field"] == "ids"
    assert client.post("/api/query", {"k": 21}).json()["error"]["field"] == "k"
    assert client.post("/api/query", {"embedding": [1] * 5}).json()["error"]["field"] == "embedding"
    assert (
        kind(client.get("/api/memories?limit=6")) == kind(client.get("/api/log?limit=6")) == (422, "invalid")
    )


def test_what_is_no_json(client: Any) -> None:
    for content in (b"", b"{", b"\xff", b"nul", b"[" * 100_000):
        answer = client.ask("POST", "/api/query", content=content, headers=JSON)
        assert kind(answer) == (400, "bad_json"), content[:10]
    for content in (
        b'{"near": [NaN, 0]}',
        b'{"near": [Infinity, 0]}',
        b'{"near": [1e999, 0]}',
        b"3",
        b"null",
    ):
        answer = client.ask("POST", "/api/query", content=content, headers=JSON)
        assert kind(answer) == (422, "invalid"), content


def test_rate_limit(make_client: Callable[..., Any]) -> None:
    client = make_client(rate=0.01, burst=3)
    answers = [client.get("/api/health") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert kind(answers[3]) == (429, "rate_limited")
    assert 90 <= int(answers[3].headers["retry-after"]) <= 101


def test_token_bucket() -> None:
    now = 0.0
    limit = RateLimit(2.0, 3, clock=lambda: now)
    assert [limit.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert limit.take("b") == 0.0
    now = 0.5
    assert [limit.take("a"), limit.take("a")] == [0, 0.5]
    now = 100.0
    assert [limit.take("a") for _ in range(4)][3] > 0
    assert client_of(("2001:db8::1", 1)) == client_of(("2001:db8::2", 9)) != client_of(("2001:db8:0:1::1", 1))
    assert client_of(("::ffff:10.0.0.1", 1)) == client_of(("10.0.0.1", 5)) == "10.0.0.1"


def test_reading_only(store: MemoryStore, make_client: Callable[..., Any], tmp_path: Path) -> None:
    store.add([])
    with MemoryStore.open(store.folder, readonly=True) as reader:
        client = make_client()
        # The same requests, to a service of the handle for reading.
        service = client.transport.app.state.service
        service.store = reader
        for path, body in (
            ("memories", {"memories": [{"time_ns": 1}]}), ("forget", {"ids": [1]}),
            ("undo", {"generation": 1}),
            ("memories", {"memories": [{"time_ns": 1}], "observe": True}), ("consolidate", {}),
        ):  # fmt: skip
            assert kind(client.post(f"/api/{path}", body)) == (403, "read_only")
        assert client.get("/api/health").json()["readonly"] is True


def test_errors_of_the_store(
    client: Any, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = store.folder
    for error, status, name in (
        (StoreFullError(f"{folder}/memory.db: no room"), 507, "store_full"),
        (CorruptStoreError(f"{folder}/memory.db is damaged"), 500, "store"),
        (ValueError(f"k is odd in {folder}"), 422, "invalid"),
        (OSError(28, "no space", str(folder)), 507, "store_full"),
        (RuntimeError(f"unforeseen in {folder}"), 500, "internal"),
    ):

        def fail(*_: Any, error: Exception = error, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(store, "add", fail)
        answer = client.post("/api/memories", {"memories": [{"time_ns": 1}]})
        assert kind(answer) == (status, name)
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "unforeseen" in caplog.text


def test_a_check_names_no_path(client: Any, monkeypatch: pytest.MonkeyPatch, store: MemoryStore) -> None:
    reading = client.transport.app.state.service.reading
    report = dataclasses.replace(reading.check(), problems=(f"file: {store.folder}/memory.db is odd",))
    monkeypatch.setattr(reading, "check", lambda: report)
    assert client.get("/api/stats?check=true").json()["check"]["problems"] == [
        "file: the store/memory.db is odd"
    ]


def test_options_that_mean_nothing() -> None:
    for wrong in ({"max_k": 0}, {"rate": -1.0}, {"heartbeat_s": 0.0}, {"burst": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ServeOptions(**wrong)  # type: ignore[arg-type]
