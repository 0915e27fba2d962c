"""Times as people write them, against datetime."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.exchange.times import format_time, parse_time

DAY_NS = 86_400 * 10**9
FIRST = round(datetime(2026, 1, 2, tzinfo=UTC).timestamp()) * 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02", FIRST),
        ("2026-01-02T10:00", FIRST + 10 * 3600 * 10**9),
        ("2026-01-02 10:00:01", FIRST + 36_001 * 10**9),
        ("2026-01-02T00:00:00Z", FIRST),
        ("2026-01-02T02:00:00+02:00", FIRST),
        ("2026-01-02T00:00:00.000000001", FIRST + 1),
        ("2026-01-02T00:00:00.5Z", FIRST + 500_000_000),
        ("2026-01-02T02:00:00,25+02:00", FIRST + 250_000_000),
        ("1969-12-31T23:59:59.999999999Z", -1),
        (" 17 ", 17),
        ("-17", -17),
        (str(2**63 - 1), 2**63 - 1),
    ],
)
def test_forms(text: str, expected: int) -> None:
    assert parse_time(text) == expected


def test_a_day_as_the_end_includes_all_of_it() -> None:
    assert parse_time("2026-01-02", end=True) == FIRST + DAY_NS - 1
    assert parse_time("2026-01-02T10:00", end=True) == FIRST + 10 * 3600 * 10**9


def test_now() -> None:
    before = time.time_ns()
    assert before <= parse_time("now") <= time.time_ns()


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-01-02T25:00", "1e9", "12:00"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"ISO 8601"):
        parse_time(text)


@pytest.mark.parametrize("text", [str(2**63), "2400-01-01", "0001-01-01T00:00:00"])
def test_what_does_not_fit(text: str) -> None:
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        parse_time(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_written_and_read(time_ns: int) -> None:
    text = format_time(time_ns)
    assert parse_time(text) == time_ns
    seconds, fraction = divmod(time_ns, 10**9)
    moment = datetime(1970, 1, 1, tzinfo=timezone(timedelta(0))) + timedelta(seconds=seconds)
    assert text.startswith(moment.isoformat()[:19])
    assert ("." in text) == (fraction != 0)


def test_digits() -> None:
    assert format_time(1_500_000_000, digits=0) == "1970-01-01T00:00:01Z"
    assert format_time(1_500_000_000, digits=3) == "1970-01-01T00:00:01.500Z"
    assert format_time(1_500_000_000) == "1970-01-01T00:00:01.5Z"
