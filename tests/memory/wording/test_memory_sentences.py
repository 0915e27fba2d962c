"""What a sentence asks for, and the dates that it names."""

from __future__ import annotations

import numpy as np
import pytest

from memory.wording.dates import Date, dates_of, falls_on
from memory.wording.sentences import Sentence, read_sentence
from memory.wording.words import days_in_words


@pytest.mark.parametrize(
    "text",
    [
        "red mug",
        "car near cyclist",
        "can",
        "red can",
        "where is it",
        "",
        "?",
        "car AND cyclist",
        "room 2010",
        "自転車",
        "赤い自転車",
        "目的地",
        "자동차",
        "red mug?",
    ],
)
def test_mere_words_are_no_sentence(text: str) -> None:
    assert read_sentence(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Where is the red mug?", ("red", "mug")),
        ("What did Mary's cats eat, and the cat?", ("mary", "cats", "eat")),
        ("Bäckerei in the city", ("backerei", "city")),
        ("mugs from 2 May", ("mugs", "2", "may")),
        ("Wo steht Annas Tasse?", ("wo", "steht", "annas", "tasse")),
        ("红色的杯子在哪里？", ("红色", "杯子")),
        ("她什么时候搬了桌子？", ("搬", "桌子")),
        ("赤い自転車はどこですか", ("赤い", "い自", "自転", "転車")),
        ("Toyotaの車はどこ？", ("toyota", "車")),
        ("빨간 컵이 어디에 있어요?", ("빨간", "컵")),
        ("where is the 自転車?", ("自転", "転車")),
        ("桌子的照片2023年7月", ("桌子", "照片", "2023", "7")),
    ],
)
def test_words_of_a_sentence(text: str, words: tuple[str, ...]) -> None:
    found = read_sentence(text)
    assert found is not None
    assert found.words == words


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("on 7 july, 2023", [Date(2023, 7, 7)]),
        ("on july 7th 2023", [Date(2023, 7, 7)]),
        ("the 1st of september", [Date(None, 9, 1)]),
        ("in may 2022 and on 3 jan", [Date(None, 1, 3), Date(2022, 5)]),
        ("in may", [Date(None, 5)]),
        ("it may march", []),
        ("on 2023-07-07", [Date(2023, 7, 7)]),
        ("in 2023-07", [Date(2023, 7)]),
        ("in 2023", [Date(2023)]),
        ("on 45 july", []),
        ("room 20231 and 1023-99-99", []),
        ("2023-13", [Date(2023)]),
        ("2023年7月7日の朝", [Date(2023, 7, 7)]),
        ("2023년 7월", [Date(2023, 7)]),
    ],
)
def test_dates(text: str, dates: list[Date]) -> None:
    assert list(dates_of(text)) == dates


def test_a_date_makes_a_sentence() -> None:
    assert read_sentence("cars 7 July 2023") == Sentence(("cars", "7", "july", "2023"), (Date(2023, 7, 7),))


def test_times_fall_on_dates() -> None:
    moments = ["2023-07-06T23:59:59.999999999", "2023-07-07T00:00", "2023-07-31T12:00", "2024-07-07T01:00"]
    times = np.array([*moments, "1960-07-07"], "M8[ns]").view(np.int64)
    times = np.append(times, [-(2**63), 2**63 - 1])
    for date, expected in [
        (Date(2023, 7, 7), [1]),
        (Date(2023, 7), [0, 1, 2]),
        (Date(None, 7, 7), [1, 3, 4]),
        (Date(None, 7), [0, 1, 2, 3, 4]),
        (Date(2024), [3]),
        (Date(2262, 4, 11), [6]),
    ]:
        assert np.flatnonzero(falls_on(times, date)).tolist() == expected
    assert falls_on(times[:0], Date(2023)).shape == (0,)


_DAY_NS = 86_400 * 10**9


def test_days_are_ranges() -> None:
    assert (
        days_in_words([5 * _DAY_NS, 6 * _DAY_NS, 7 * _DAY_NS, 9 * _DAY_NS])
        == "1970-01-06 to 1970-01-08 and 1970-01-10"
    )
    many = days_in_words([2 * day * _DAY_NS for day in range(12)])
    assert many.startswith("1970-01-01, 1970-01-03, ")
    assert many.endswith(" and 2 more")
