"""``recall ask --confidence``: the guarantee in words and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MemoryStore
from memory.types import Visit

HOUR = 3600 * 10**9


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Cars that were seen every hour of half a day, and others that left within a day."""
    seen = tuple(Visit(hour * HOUR, hour * HOUR + 60 * 10**9, 5) for hour in range(12))
    with MemoryStore.open(tmp_path / "store", dim=4) as opened:
        opened.add([
            Memory(
                time_ns=seen[-1].last_ns, position=(10.0 * n, 0.0, 0.0), label="Car", count=60, visits=seen,
                first_seen_ns=0, last_seen_ns=seen[-1].last_ns,
            )
            for n in range(20)
        ])  # fmt: skip
        left = opened.add([
            Memory(time_ns=0, position=(10.0 * n, 50.0, 0.0), label="Car") for n in range(30)
        ])  # fmt: skip
        opened.mark(left, "gone", at_ns=24 * HOUR)
    return tmp_path / "store"


def test_the_guarantee_follows_the_answer(recall: Callable[..., Any], store: Path) -> None:
    asked = ("ask", store, "is the car still there?", "--now", "1970-01-01T12:00:00Z")
    plain = recall(*asked)
    assert "confidence" not in plain.output
    answered = recall(*asked, "--confidence", 0.9)
    assert answered.status == 0
    assert answered.output.startswith(plain.output.strip())
    assert "Yes at 90% confidence: estimated probability" in answered.output
    found = recall(*asked, "--confidence", 0.9, "--json").json
    assert found["guarantee"]["verdict"] == "yes"
    assert found["guarantee"]["memories"] == [found["memory"]["id"]]
    assert found["sentence"] == answered.output.strip()
    named = recall("ask", store, "still-there", "car", "--confidence", 0.9, "--json").json
    assert "sentence" not in named
    assert named["guarantee"]["available"]


def test_a_confidence_out_of_range_and_another_question_are_refused(
    recall: Callable[..., Any], store: Path
) -> None:
    outside = recall("ask", store, "is the car still there?", "--confidence", 1.5)
    assert (outside.status, "confidence must be at least 0.5 and below 1" in outside.remarks) == (2, True)
    other = recall("ask", store, "how many cars are there?", "--confidence", 0.9)
    assert (other.status, "have a guaranteed error" in other.remarks) == (2, True)
