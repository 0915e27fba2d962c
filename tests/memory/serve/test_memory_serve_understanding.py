"""Questions as people type them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.exchange.times import parse_time
from memory.serve.asking import label_of
from memory.serve.understanding import understand
from memory.serve.when import since_of, span_of

NOW = parse_time("2026-01-10T12:00:00Z")  # A Saturday.


def day(text: str) -> tuple[int, int]:
    return parse_time(text), parse_time(text, end=True)


@pytest.mark.parametrize(
    ("text", "question", "parts"),
    [
        ("where is the red mug?", "last_seen", {"what": "red mug"}),
        ("Hey robot, where did you last see my keys?", "last_seen", {"what": "keys"}),
        ("tell me where the mug is", "last_seen", {"what": "mug"}),
        ("where is memory 7", "last_seen", {"what": 7}),
        ("last-seen Mug", "last_seen", {"what": "Mug"}),
        ("when was the door first seen", "first_seen", {"what": "door"}),
        ("how many cars are there", "how_often", {"what": "cars"}),
        ("how often was the dog seen today", "how_often", {"what": "dog", "between": day("2026-01-10")}),
        ("is the Car still there?", "still_there", {"what": "Car"}),
        ("has the van moved", "still_there", {"what": "van"}),
        ("what changed since yesterday", "changed_since", {"since": parse_time("2026-01-09")}),
        ("what's new today?", "changed_since", {"since": parse_time("2026-01-10")}),
        ("changed", "changed_since", {"since": NOW - 86_400 * 10**9}),
        ("what happened yesterday", "between", {"between": day("2026-01-09")}),
        ("what happened in the last 2 hours", "between", {"between": (NOW - 7200 * 10**9, NOW)}),
        ("what is near 3, 4", "near", {"near": (3.0, 4.0), "radius_m": 5.0}),
        ("what is within 10 m of (3.5, -4, 1)?", "near", {"near": (3.5, -4.0, 1.0), "radius_m": 10.0}),
        ("what's near the door", "near", {"what": "door"}),
        ("summarise everything in map yard", "summarise", {"map_id": "yard"}),
        ("go to the charger", "pose_to", {"what": "charger"}),
        ("similar to 12", "similar_situations", {"what": 12}),
        ("red mug", "search", {"what": "red mug"}),
        ("where was the mug on 2026-01-02", "search", {"what": "mug", "between": day("2026-01-02")}),
        ("2026-01-02", "between", {"between": day("2026-01-02")}),
        ("a mug near 1 2 yesterday", "search",
         {"what": "mug", "near": (1.0, 2.0), "radius_m": 5.0, "between": day("2026-01-09")}),
    ],
)  # fmt: skip
def test_what_is_meant(text: str, question: str, parts: dict[str, Any]) -> None:
    assert understand(text, NOW).given() == {"question": question, **parts}


def test_times() -> None:
    assert span_of("this week", NOW) == (parse_time("2026-01-05"), NOW)
    assert since_of("three days ago", NOW) == NOW - 3 * 86_400 * 10**9
    first, last = span_of("10 minutes ago", NOW)
    assert first < NOW - 600 * 10**9 < last
    with pytest.raises(ValueError, match="no time"):
        span_of("soon", NOW)
    with pytest.raises(ValueError, match="64 bits"):
        span_of("last 999999 weeks", NOW)


def test_labels_but_for_case_and_plural() -> None:
    labels = {"Car": 1, "City": 1, "Bus": 2}
    meant = {"cars": "Car", "CAR": "Car", "cities": "City", "buses": "Bus", "Bus": "Bus", "tree": "tree"}
    assert {words: label_of(words, labels) for words in meant} == meant


@given(st.text(max_size=80))
def test_any_text_is_a_question_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert understand(text, NOW).question
