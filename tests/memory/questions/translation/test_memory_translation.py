"""Structured queries, and a language model that writes them: a local server that speaks the protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MemoryStore
from memory.cli import main
from memory.errors import TranslationError
from memory.questions import Questions
from memory.questions.errors import QuestionError
from memory.questions.replying import reply
from memory.questions.translation import FIELDS, Translator, parse_query, query_of, schema

NOW = 1_760_000_000 * 10**9


class Endpoint:
    """A chat endpoint that replies with fixed texts, and keeps the requests."""

    def __init__(self) -> None:
        self.replies: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.status = 200
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                endpoint.requests.append({"path": self.path} | json.loads(self.rfile.read(length)))
                endpoint.keys.append(self.headers["authorization"])
                content = endpoint.replies.pop(0) if endpoint.replies else "{}"
                choices = [{"index": 0, "message": {"role": "assistant", "content": content}}]
                body = json.dumps({"object": "chat.completion", "choices": choices}).encode()
                self.send_response(endpoint.status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *parts: object) -> None:
                """Print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.server.shutdown()
    made.server.server_close()
    made.thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        store.add(
            [
                Memory(time_ns=NOW, position=(1, 2, 0), label="keys", caption="secret words"),
                Memory(time_ns=NOW, position=(1.5, 2, 0), label="bowl"),
            ]
        )
        store.set_area("hall", box=(0, 0, 3, 3))
    return tmp_path / "store"


def test_a_model_translates_and_the_store_answers(folder: Path, endpoint: Endpoint) -> None:
    endpoint.replies = ['Sure: {"question": "last_seen", "what": "keys"}']
    with MemoryStore.open(folder, readonly=True) as store:
        questions = Questions(store)
        translation = Translator(endpoint.url, "small", "token").translate("dude, my keys??", questions, NOW)
        assert translation.query == {"question": "last_seen", "what": "keys"}
        assert "(1.0, 2.0)" in reply(questions, translation.asked).sentence
    (request,) = endpoint.requests
    assert (request["path"], request["model"], request["temperature"]) == ("/v1/chat/completions", "small", 0)
    assert endpoint.keys == ["Bearer token"]
    said = request["messages"][0]["content"]
    assert "Labels: bowl, keys" in said or "Labels: keys, bowl" in said
    assert "Areas: hall" in said
    # What the store remembers stays here.
    assert "secret" not in json.dumps(request)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("The keys are on the shelf.", "replied without a query"),
        ('{"question": "none"}', "found no query"),
        ('{"question": "last_seen", "answer": "on the shelf"}', "unknown field 'answer'"),
        ('{"question": "last_seen", "what": ["keys"]}', "what must be a short text"),
        ('{"question": "forget", "what": "keys"}', "question must be one of"),
    ],
)
def test_a_reply_that_is_no_query_is_refused(
    folder: Path, endpoint: Endpoint, content: str, message: str
) -> None:
    endpoint.replies = [content]
    with MemoryStore.open(folder, readonly=True) as store, pytest.raises(QuestionError, match=message):
        Translator(endpoint.url).translate("where?", Questions(store), NOW)


def test_an_endpoint_that_fails_is_reported(folder: Path, endpoint: Endpoint) -> None:
    endpoint.status = 500
    with MemoryStore.open(folder, readonly=True) as store:
        questions = Questions(store)
        with pytest.raises(TranslationError, match="answered with status 500"):
            Translator(endpoint.url).translate("where?", questions, NOW)
        with pytest.raises(TranslationError, match="no http address"):
            Translator("file:///etc/passwd").translate("where?", questions, NOW)
        with pytest.raises(TranslationError, match="cannot be reached"):
            Translator("http://127.0.0.1:1/v1").translate("where?", questions, NOW)


def test_the_command_asks_the_model_only_what_it_refuses_itself(
    folder: Path, endpoint: Endpoint, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["ask", str(folder), "where are the keys?", "--llm", endpoint.url]) == 0
    assert endpoint.requests == []
    capsys.readouterr()
    endpoint.replies = ['{"question": "near", "beside": "bowl"}', '{"question": "none"}']
    monkeypatch.setenv("RECALL_LLM", endpoint.url)
    assert main(["ask", str(folder), "why not peek around the bowl, or what?"]) == 0
    said = capsys.readouterr().out
    assert "keys (memory 1)" in said
    assert 'The model default read the question as {"question": "near", "beside": "bowl"}' in said
    assert main(["ask", str(folder), "why are you?"]) == 2
    assert "found no query" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"question": "related", "relation": "next to", "beside": "bowl"}, "what is next to the bowl?"),
        ({"question": "how_many", "what": "keys", "area": "hall"}, "how many keys are in the hall?"),
        ({"question": "distance", "what": "keys", "beside": "bowl"}, "how far are the keys from the bowl?"),
        (
            {"question": "compare", "measure": "distance", "what": "keys", "choices": ["bowl", "keys"],
             "order": "less"},
            "which is closer to the keys, the bowl or the keys?",
        ),
    ],
)  # fmt: skip
def test_a_query_answers_like_the_same_words(folder: Path, query: dict[str, Any], text: str) -> None:
    with MemoryStore.open(folder, readonly=True) as store:
        questions = Questions(store)
        ask: Callable[[Any], Any] = lambda asked: reply(questions, asked).answer  # noqa: E731
        try:
            expected = ask(questions.understand(text, NOW))
        except QuestionError as error:
            with pytest.raises(QuestionError, match=str(error)[:30]):
                ask(parse_query(query))
            return
        assert ask(parse_query(query)) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ([], "JSON object"),
        ({"question": "related", "beside": "bowl"}, "needs a relation"),
        ({"question": "near", "relation": "on"}, "other questions have none"),
        ({"question": "compare"}, "needs measure"),
        ({"question": "compare", "measure": "size", "choices": ["bowl"]}, "at least two"),
        ({"question": "near", "order": "more"}, "does not compare"),
        ({"question": "near", "near": [1]}, "x and y"),
        ({"question": "near", "near": [1, True]}, "finite number"),
        ({"question": "near", "radius_m": -1}, "negative"),
        ({"question": "between", "between": ["2026-01-02", "2026-01-01"]}, "Swap them"),
        ({"question": "changed_since", "since": "soon"}, "since: "),
        ({"question": "search", "states": ["lost"]}, "must be one of"),
    ],
)
def test_a_query_is_checked_field_by_field(query: Any, message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        parse_query(query)


def test_the_schema_lists_every_field() -> None:
    found = schema()
    assert set(found["properties"]) == set(FIELDS)
    assert found["additionalProperties"] is False
    asked = parse_query({"question": "related", "relation": "between", "beside": "a", "second": "b"})
    assert query_of(asked) == {"question": "related", "relation": "between", "beside": "a", "second": "b"}
