"""Guaranteed answers over HTTP and for language models: the same as those of the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memory import Memory, MemoryStore
from memory.plain_values import to_plain
from memory.questions import Questions
from memory.questions.errors import QuestionError
from memory.questions.guarantee.answering import guarantee_of
from memory.serve.mcp.tools import StoreTools
from memory.types import Visit

SECOND, HOUR = 10**9, 3600 * 10**9
NOW = 12 * HOUR
NOW_TEXT = "1970-01-01T12:00:00Z"


def parked(number: int, visits: int) -> Memory:
    """A car that was seen for a minute on some hours."""
    seen = tuple(Visit(hour * HOUR, hour * HOUR + 60 * SECOND, 5) for hour in range(visits))
    return Memory(
        time_ns=seen[-1].last_ns, position=(10.0 * number, 0.0, 0.0), label="Car", count=5 * visits,
        first_seen_ns=0, last_seen_ns=seen[-1].last_ns, visits=seen if visits > 1 else (),
        payload={"size_m": [4.0 + number / 100, 2.0, 1.5]},
    )  # fmt: skip


@pytest.fixture
def street(store: MemoryStore) -> MemoryStore:
    """Cars that were seen again, and others that were found gone a day later."""
    store.add([parked(number, 12) for number in range(20)])
    store.mark(store.add([parked(1000 + number, 1) for number in range(30)]), "gone", at_ns=24 * HOUR)
    return store


@pytest.mark.parametrize(
    "body",
    [
        {"question": "is the car at (0, 0) still there?"},
        {"question": "still_there", "what": 1},
        {"query": {"question": "still_there", "what": 1}},
    ],
)
def test_still_there_has_a_guarantee_over_http(
    street: MemoryStore, make_client: Callable[..., Any], body: dict[str, Any]
) -> None:
    client = make_client()
    expected = guarantee_of(street, Questions(street).still_there(1), 0.9, now_ns=NOW)
    assert expected.verdict == "yes"
    plain = client.post("/api/ask", {**body, "now": NOW_TEXT}).json()
    assert plain["guarantee"] is None
    found = client.post("/api/ask", {**body, "now": NOW_TEXT, "confidence": 0.9}).json()
    assert found["guarantee"] == to_plain(expected)
    assert found["sentence"] == f"{plain['sentence']} {expected}"
    assert found["answer"]["memory"]["id"] == 1


def test_too_few_cases_are_told_and_wrong_confidences_refused(client: Any) -> None:
    asked = {"question": "is the door still there?"}
    found = client.post("/api/ask", {**asked, "confidence": 0.9}).json()
    assert (found["guarantee"]["available"], found["guarantee"]["verdict"]) == (False, "unknown")
    assert "10 of each are needed" in found["sentence"]
    for confidence in (0.4, 1.0, "high"):
        refused = client.post("/api/ask", {**asked, "confidence": confidence})
        assert refused.status_code == 422
        assert refused.json()["error"]["field"] == "confidence"


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("how many doors are there?", "no count that is known to be right"),
        ("have I seen this before?", "no pairs of the same object"),
        ("where is the door?", "Only 'is it still there?'"),
    ],
)
def test_what_has_no_guarantee_is_refused(client: Any, question: str, why: str) -> None:
    refused = client.post("/api/ask", {"question": question, "confidence": 0.9})
    assert refused.status_code == 422
    error = refused.json()["error"]
    assert error["field"] == "confidence"
    assert why in error["message"]
    assert "have a guaranteed error. Ask without a confidence" in error["message"]


def test_a_language_model_gets_the_guarantee(street: MemoryStore) -> None:
    tools = StoreTools(street)
    expected = guarantee_of(street, Questions(street).still_there(1), 0.9, now_ns=NOW)
    found = tools.ask("is the car at (0, 0) still there?", now=NOW_TEXT, confidence=0.9)
    assert found["guarantee"] == to_plain(expected)
    assert found["sentence"].endswith(str(expected))
    assert "guarantee" not in tools.ask("is the car at (0, 0) still there?", now=NOW_TEXT)
    query = {"question": "still_there", "what": 1}
    later = tools.ask_query(query, confidence=0.9)["guarantee"]
    assert (later["confidence"], later["memories"]) == (0.9, [1])
    assert tools.ask_query(query, now=NOW_TEXT, confidence=0.9)["guarantee"] == to_plain(expected)
    with pytest.raises(QuestionError, match="no count that is known to be right"):
        tools.ask("how many cars are there?", confidence=0.9)


def test_a_superlative_over_http(street: MemoryStore, make_client: Callable[..., Any]) -> None:
    found = make_client().post("/api/ask", {"question": "what is the longest car?", "k": 3}).json()
    assert found["question"] == "ranked"
    answer = found["answer"]
    assert [each["memory"]["id"] for each in answer["first"]] == [20]
    assert [each["memory"]["id"] for each in answer["following"]] == [19, 18, 17]
    assert answer["first"][0]["value"] == pytest.approx(4.19)
    assert answer["compared"] == 20
