"""Dates and times as they are written, against what Python 3.11 reads."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_core.common.moments import parse_moment

UTC = timezone.utc


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T10:00", datetime(2026, 1, 2, 10)),
        ("2026-01-02 10:00:05Z", datetime(2026, 1, 2, 10, 0, 5, tzinfo=UTC)),
        ("2026-01-02T10:00:05.5z", datetime(2026, 1, 2, 10, 0, 5, 500_000, tzinfo=UTC)),
        ("2026-01-02T10:00:05,123456789+02:00", datetime(2026, 1, 2, 8, 0, 5, 123_456, tzinfo=UTC)),
        ("2026-01-02T10:00-0130", datetime(2026, 1, 2, 11, 30, tzinfo=UTC)),
        ("2026-01-02T10:00+05", datetime(2026, 1, 2, 5, tzinfo=UTC)),
        ("2026-01-02", datetime(2026, 1, 2)),
    ],
)
def test_forms(text: str, expected: datetime) -> None:
    assert parse_moment(text) == expected
    assert (parse_moment(text).tzinfo is None) is (expected.tzinfo is None)


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01T00:00", "2026-01-02T25:00", "١"])
def test_wrong_moments(text: str) -> None:
    with pytest.raises(ValueError):
        parse_moment(text)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="datetime.fromisoformat reads less before Python 3.11")
@given(
    st.datetimes(),
    st.none() | st.integers(-1439, 1439),
    st.sampled_from(["auto", "minutes", "seconds", "milliseconds", "microseconds"]),
)
def test_as_python_reads_it(moment: datetime, minutes: int | None, precision: str) -> None:
    zone = None if minutes is None else timezone(timedelta(minutes=minutes))
    text = moment.replace(tzinfo=zone).isoformat(timespec=precision)
    assert parse_moment(text) == datetime.fromisoformat(text)
