"""Spoken clock times, days and units in questions."""

from __future__ import annotations

import pytest

from memory.exchange.times import parse_time
from memory.questions.reading.arguments import arguments_of, metres_in
from memory.questions.reading.clocks import with_clocks
from memory.questions.reading.times import span_of

#: A Friday.
NOW = parse_time("2026-03-20T18:00:00Z")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("between 8 and 9 this morning", "between 08:00 and 09:00 today"),
        ("from 8 to 9 pm", "from 20:00 to 21:00"),
        ("yesterday between 8 and 9", "between 08:00 and 09:00 yesterday"),
        ("between memory 8 and 9", "between memory 8 and 9"),
        ("between 8 and 9", "between 8 and 9"),
        ("at about nine yesterday", "at about 09:00 yesterday"),
        ("at half past eight", "at 08:30"),
        ("at quarter to 9 in the evening", "at 20:45"),
        ("before 11 o'clock on Thursday", "before 11:00 on Thursday"),
        ("at 25 yesterday", "at 25 yesterday"),
        ("at 3, 4", "at 3, 4"),
        ("on monday in the kitchen at 9:00", "in the kitchen at 9:00 monday"),
        ("since monday at 9:00", "since monday at 9:00"),
        ("on 2026/1/05", "on 2026-01-05"),
        ("on 5.1.2026", "on 2026-01-05"),
    ],
)
def test_clock_times_become_digits(words: str, expected: str) -> None:
    assert " ".join(with_clocks(words).replace("09:00", "9:00").split()) == expected.replace("09:00", "9:00")


@pytest.mark.parametrize(
    ("phrase", "first", "last"),
    [
        ("last week", "2026-03-09", "2026-03-15"),
        ("this week", "2026-03-16", "2026-03-20"),
        ("last weekend", "2026-03-14", "2026-03-15"),
        ("the weekend", "2026-03-14", "2026-03-15"),
        ("last month", "2026-02-01", "2026-02-28"),
        ("this month", "2026-03-01", "2026-03-20"),
        ("last year", "2025-01-01", "2025-12-31"),
        ("on sat", "2026-03-14", "2026-03-14"),
        ("jan 5", "2026-01-05", "2026-01-05"),
        ("monday in the evening", "2026-03-16", "2026-03-16"),
        ("in the morning", "2026-03-20", "2026-03-20"),
        ("in the night", "2026-03-19", "2026-03-20"),
    ],
)
def test_days_of_the_calendar(phrase: str, first: str, last: str) -> None:
    span = span_of(phrase, NOW)
    assert parse_time(first) <= span.first < parse_time(first, end=True)
    assert parse_time(last) <= span.last <= parse_time(last, end=True)


def test_about_and_just_before_are_short_spans() -> None:
    eleven = parse_time("2026-03-19T11:00:00Z")
    about = arguments_of("what happened about 11:00 yesterday", NOW).between
    before = arguments_of("what happened just before 11:00 yesterday", NOW).between
    after = arguments_of("what happened shortly after 11:00 yesterday", NOW).between
    minute = 60 * 10**9
    assert about == (eleven - 30 * minute, eleven + 31 * minute - 1)
    assert before == (eleven - 10 * minute, eleven)
    assert after == (eleven + minute - 1, eleven + 11 * minute - 1)


def test_lengths_have_units() -> None:
    assert arguments_of("what is within 10 feet of (3, 4)", NOW).radius_m == pytest.approx(3.048)
    assert arguments_of("what is within 50 cm of the table", NOW).radius_m == pytest.approx(0.5)
    found = arguments_of("how far is the bed from the sofa in inches", NOW)
    assert (found.rest, found.unit) == ("how far is the bed from the sofa", "inches")
    assert metres_in("yards") == 0.9144
    assert arguments_of("how many cars are in yard", NOW).unit is None
