"""Questions for first observations in a time, durations in a unit, and which of two objects came first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MemoryStore
from memory.exchange.times import parse_time
from memory.questions import Questions
from memory.questions.errors import QuestionError
from memory.questions.reading.times import span_of
from memory.questions.replying import reply
from memory.types import Visit

#: A Friday.
NOW = parse_time("2026-03-20T18:00:00Z")
DAY = 86_400 * 10**9


def thing(label: str, x: float, first: str, last: str, **more: Any) -> Memory:
    first_ns, last_ns = (parse_time(f"2026-03-{at}:00Z") for at in (first, last))
    if first_ns == last_ns:
        return Memory(time_ns=last_ns, position=(x, 1, 0.5), label=label, **more)
    starts = range(first_ns, last_ns - DAY // 2, DAY)
    visits = (*(Visit(start, start, 1) for start in starts), Visit(last_ns, last_ns, 1))
    return Memory(
        time_ns=last_ns, first_seen_ns=first_ns, last_seen_ns=last_ns, count=len(visits), visits=visits,
        position=(x, 1, 0.5), label=label, **more,
    )  # fmt: skip


@pytest.fixture
def questions(tmp_path: Path) -> Iterator[Questions]:
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add(
            [
                thing("sofa", 1, "01T09:00", "20T17:00"),  # 1
                thing("cat", 2, "02T10:00", "20T15:00"),  # 2
                thing("package", 8, "19T11:00", "19T17:00", state="gone"),  # 3, in the hallway
                thing("backpack", 9, "19T18:30", "20T07:00"),  # 4, in the hallway
                thing("umbrella", 8, "15T18:00", "18T08:00", state="gone"),  # 5
                thing("phone", 3, "20T07:30", "20T07:30", state="moved"),  # 6
                thing("", 4, "19T08:00", "19T08:00", kind="place"),  # 7
                thing("book", 2, "16T22:00", "20T07:00"),  # 8
                thing("book", 3, "03T12:00", "08T12:00", state="gone"),  # 9
            ]
        )
        store.set_area("kitchen", box=(0, 0, 5, 5), map_id="default")
        store.set_area("hallway", box=(6, 0, 10, 5), map_id="default")
        yield Questions(store)


def sentence(questions: Questions, text: str) -> str:
    return reply(questions, questions.understand(text, NOW)).sentence


def ids(questions: Questions, text: str) -> list[int | None]:
    answer: Any = reply(questions, questions.understand(text, NOW)).answer
    assert answer.question == "new_between"
    return [memory.id for memory in answer.memories]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what did you see for the first time today", [6]),
        ("what did you see for the first time yesterday", [3, 4, 7]),
        ("which objects first showed up on Thursday the 19th", [3, 4]),
        ("which things appeared for the first time on Thursday, March 19", [3, 4]),
        ("what was first seen in the hallway yesterday", [3, 4]),
        ("what did you first notice between 6 and 9 am", [6]),
        ("what was new on Monday", [8]),
        ("did anything arrive today", [6]),
        ("did anything new appear on Monday", [8]),
        ("which new books did you see this week", [8]),
        ("which books did you see for the first time since Monday", [8]),
        ("how many new objects did you see yesterday", [3, 4]),
        ("what showed up yesterday", [3, 4, 7]),
        ("did you see a sofa for the first time today", []),
    ],
)
def test_first_observations_in_a_time(questions: Questions, text: str, expected: list[int]) -> None:
    assert ids(questions, text) == expected


def test_first_observations_name_what_has_left(questions: Questions) -> None:
    text = sentence(questions, "what was new yesterday")
    assert "package (memory 3), on 2026-03-19 11:00:00 UTC at (8.0, 1.0) (gone now)" in text
    assert "place (memory 7), a new place, on" in text
    assert "No memories of sofa first seen between" in sentence(
        questions, "did you see the sofa for the first time yesterday"
    )


def test_the_first_of_a_time_is_a_superlative(questions: Questions) -> None:
    answer: Any = reply(questions, questions.understand("what did you see first yesterday", NOW)).answer
    assert answer.question == "ranked"
    assert questions.understand("what is new today", NOW).question == "changed_since"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("what did you not see for the first time today", "negations"),
        ("what was first eaten yesterday", "cannot be limited by time"),
        ("what was new on the sofa yesterday", "First observations have no 'on'"),
        ("which objects first showed up on Friday the 19th", "no Friday"),
    ],
)
def test_other_first_times_are_refused(questions: Questions, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sentence(questions, text)
    unknown = sentence(questions, "which unicorns did you see for the first time today")
    assert unknown.startswith("I don't know an object called")


def test_a_weekday_fits_its_date() -> None:
    assert span_of("thursday the 19th", NOW) == span_of("2026-03-19", NOW)
    assert span_of("thursday 19 march", NOW) == span_of("2026-03-19", NOW)
    with pytest.raises(ValueError, match="'the 19th' is no Friday"):
        span_of("friday the 19th", NOW)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (
            "how many days ago did you last see the umbrella",
            "2 days ago by the calendar (2.4 days): umbrella",
        ),
        ("how many hours ago did you see the cat", "3.0 hours ago: cat was last seen"),
        ("how many days ago did the package arrive", "1 day ago by the calendar (31.0 hours): package"),
        ("how many days since you last saw the umbrella", "2 days ago by the calendar"),
        ("how many hours has it been since you saw the cat", "3.0 hours ago"),
        ("for how many days was the umbrella there", "4 days from the first to the last day, with"),
        ("how many days between the first and the last sighting of the umbrella", "4 days from the first"),
        ("on how many days did you see the umbrella", "4 days: umbrella was seen"),
        ("how many hours was the package in the hallway", "6.0 hours from the first to the last observation"),
        ("how many weeks has the sofa been there", "2.8 weeks since its first observation: sofa"),
    ],
)
def test_the_amount_comes_first(questions: Questions, text: str, start: str) -> None:
    assert sentence(questions, text).startswith(start)


def test_how_long_names_the_time_from_first_to_last(questions: Questions) -> None:
    for text in (
        "how long was the package there",
        "how long between the first and last sighting of the package",
        "how much time passed between the first and the last time you saw the package",
    ):
        assert "That is 6.0 hours from the first to the last observation." in sentence(questions, text)
    gone = sentence(questions, "how long has the umbrella been there")
    assert "It is gone now, last seen on 2026-03-18 08:00:00 UTC." in gone


@pytest.mark.parametrize(
    "text",
    [
        "how long between its first and its last sighting",
        "how many days between the cat and the sofa",
        "how many days long is the sofa",
        "how many days ago was Monday",
    ],
)
def test_durations_without_an_object_are_refused(questions: Questions, text: str) -> None:
    with pytest.raises(QuestionError):
        sentence(questions, text)


@pytest.mark.parametrize(
    ("text", "winner", "holds"),
    [
        ("what showed up first, the package or the backpack", "package", None),
        ("which came last, the package or the backpack", "backpack", None),
        ("which went missing first, the umbrella or the package", "umbrella", None),
        ("which did you see first yesterday, the package or the backpack", "package", None),
        ("which left last, the umbrella or the package", "package", None),
        ("which did you see more recently, the cat or the sofa", "sofa", None),
        ("who did you see less recently, the cat or the sofa", "cat", None),
        ("of the cat and the sofa, which did you see first", "sofa", None),
        ("which arrived earlier, the package or the backpack", "package", None),
        ("which did you see last, the cat or the sofa", "sofa", None),
        ("which was there first, the book or the umbrella", "book", None),
        ("which have you seen most often, the cat or the package", "cat", None),
        ("which has been here the longest, the cat or the sofa", "sofa", None),
        ("did the package arrive before the backpack", "package", True),
        ("did the package arrive after the backpack", "backpack", False),
        ("was the cat here before the package", "cat", True),
        ("did the umbrella disappear after the package", "package", False),
        ("did you see the cat more recently than the sofa", "sofa", False),
        ("did the cat show up later than the sofa", "cat", True),
    ],
)
def test_two_objects_by_time(questions: Questions, text: str, winner: str, holds: bool | None) -> None:
    answer: Any = reply(questions, questions.understand(text, NOW)).answer
    assert (answer.question, answer.winner, answer.holds) == ("compare", winner, holds)


def test_a_comparison_names_its_time(questions: Questions) -> None:
    text = sentence(questions, "which did you see most often today, the cat or the phone")
    assert "cat 1 observation and phone 1 observation between 2026-03-20" in text
    assert "last observation before it left" in sentence(
        questions, "which disappeared first, the package or the umbrella"
    )


@pytest.mark.parametrize(
    "text",
    [
        "which disappeared first, the sofa or the umbrella",  # The sofa is there.
        "did you see the cat before the sofa",  # The first or the last time?
        "which red thing came first, the package or the backpack",
        "did the cat arrive before the dog left",
        "was the cat on the sofa before the phone",
        "which did not arrive first, the package or the backpack",
        "which moved first, the phone or the cat",
        "which arrived first yesterday, the package or the backpack",
        "which left first, the package or the umbrella or the phone",
        "which did you see later, the cat or the sofa",
    ],
)
def test_other_comparisons_by_time_are_refused(questions: Questions, text: str) -> None:
    with pytest.raises(QuestionError):
        sentence(questions, text)
