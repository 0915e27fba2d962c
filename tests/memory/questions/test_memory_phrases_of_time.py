"""Phrases of time and the ranges that they mean."""

from __future__ import annotations

import pytest

from memory.exchange.times import parse_time
from memory.questions.reading.times import Span, is_clock, since_of, span_of, until_now

NOW = parse_time("2026-01-10T12:00:00Z")  # A Saturday.
SECOND = 10**9
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND


@pytest.mark.parametrize(
    ("phrase", "date"),
    [
        ("today", "2026-01-10"),
        ("yesterday", "2026-01-09"),
        ("the day before yesterday", "2026-01-08"),
        ("Saturday", "2026-01-10"),
        ("last Saturday", "2026-01-03"),
        ("sunday", "2026-01-04"),
        ("march 10", "2025-03-10"),
        ("January 10th", "2026-01-10"),
        ("11 of january", "2025-01-11"),
        ("2 february 2024", "2024-02-02"),
        ("2024-02-02", "2024-02-02"),
    ],
)
def test_days(phrase: str, date: str) -> None:
    assert span_of(phrase, NOW) == (parse_time(date), parse_time(date, end=True))


@pytest.mark.parametrize(
    ("phrase", "before"),
    [
        ("30 seconds ago", (30.5 * SECOND, 29.5 * SECOND)),
        ("half an hour ago", (60 * MINUTE, 0)),
        ("two weeks ago", (17.5 * DAY, 10.5 * DAY)),
        ("the last 5 minutes", (5 * MINUTE, 0)),
        ("the last 5 min", (5 * MINUTE, 0)),
        ("this morning", (7 * HOUR, 1)),
        ("past month", (30 * DAY, 0)),
        ("the last year", (365 * DAY, 0)),
        ("just now", (10 * MINUTE, 0)),
        ("lately", (DAY, 0)),
        ("this week", (5.5 * DAY, 0)),
        ("12:00", (0, -MINUTE + 1)),
        ("12:00:01", (DAY - SECOND, DAY - 2 * SECOND + 1)),
        ("14:30", (21.5 * HOUR, 21.5 * HOUR - MINUTE + 1)),
        ("12 am", (12 * HOUR, 12 * HOUR - MINUTE + 1)),
        ("11:30pm yesterday", (12.5 * HOUR, 12.5 * HOUR - MINUTE + 1)),
        ("2026-01-10 10:00:05", (2 * HOUR - 5 * SECOND,) * 2),
        ("10 minutes ago", (10.5 * MINUTE, 9.5 * MINUTE)),
        ("noon", (0, -MINUTE + 1)),
        ("midnight", (0.5 * DAY, 0.5 * DAY - MINUTE + 1)),
        ("1 am", (11 * HOUR, 11 * HOUR - MINUTE + 1)),
        ("yesterday at 12 pm", (DAY, DAY - MINUTE + 1)),
        ("last night", (18 * HOUR, 7 * HOUR + 1)),
        ("now", (0, 0)),
    ],
)
def test_moments(phrase: str, before: tuple[float, float]) -> None:
    first, last = span_of(phrase, NOW)
    assert (NOW - first, NOW - last) == before


def test_since_and_until() -> None:
    assert since_of("2 days ago", NOW) == NOW - 2 * DAY
    assert since_of("yesterday", NOW) == parse_time("2026-01-09")
    assert until_now(5) == Span(5, 2**63 - 1)
    assert [is_clock(phrase) for phrase in ("9:30", " 5 pm", "yesterday at 5 pm", "soon")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("phrase", "message"),
    [
        ("soon", "is not a time"),
        ("", "is not a time"),
        ("25:00", "is not a time of day"),
        ("13 pm", "is not a time of day"),
        ("0 am", "is not a time of day"),
        ("24:60", "is not a time of day"),
        ("last 999999 weeks", "out of range"),
    ],
)
def test_what_is_no_time(phrase: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        span_of(phrase, NOW)
