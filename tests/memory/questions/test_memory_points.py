"""Objects that a question names by their position, and objects that it describes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MemoryStore
from memory.questions import Questions
from memory.questions.errors import QuestionError
from memory.questions.replying import reply

DAY = 86_400 * 10**9
NOW = 20_000 * DAY + DAY // 2


def _car(x: float, y: float, ago: float, **more: Any) -> Memory:
    return Memory(time_ns=NOW - round(ago * DAY), position=(x, y, 0.5), label="car", map_id="town", **more)


@pytest.fixture
def questions(tmp_path: Path) -> Iterator[Questions]:
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add(
            [
                _car(3, 1, 5, count=4),  # 1, seen before the others
                _car(6, 1, 1, count=9),  # 2, three metres from it
                _car(20, 1, 1, caption="a red van"),  # 3
                Memory(time_ns=NOW, position=(5.5, 1, 0), label="", kind="place", map_id="town"),  # 4
                Memory(time_ns=NOW, position=(3, 1, 0), label="person", map_id="town"),  # 5
                Memory(time_ns=NOW, position=(3, 1, 0), label="person", map_id="park"),  # 6
            ]
        )
        yield Questions(store)


def _answer(questions: Questions, text: str) -> Any:
    return reply(questions, questions.understand(text, NOW))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("when was the car at (3, 1) last seen?", "car (memory 1) was last seen"),
        ("where did you see the car near (3.4, 1.2)?", "car (memory 1) was last seen"),
        ("how often have you observed the car at (3, 1)?", "seen 4 times"),
        ("is the car still at (3, 1)?", "car (memory 1) "),
        ("I parked at (3, 1) on Monday. Is my car still there?", "car (memory 1) "),
        ("the car near (3, 1), was that one last seen yesterday or today?", "car (memory 1) was last seen"),
        ("how far apart are the cars at (3, 1) and (20, 1)?", "17.0 m"),
        ("which is closer to the car at (3, 1): the car at (6, 1) or the one at (20, 1)?", "car (memory 2):"),
        ("have you seen the car at (6, 1) more often than the car at (3, 1)?", "Yes: "),
        ("what do you remember about the car at (20, 1)?", "car (memory 3) was last seen"),
        ("drive me to the car closest to the car at (3, 1)", "To car (memory 2)"),
        ("what happened to the parked car that used to stand at (3, 1)?", "car (memory 1)"),
        ("is there a car within 4 m of the car at (3, 1)?", "2 memories of car"),
    ],
)
def test_an_object_at_a_point_is_one_memory(questions: Questions, text: str, says: str) -> None:
    assert says in _answer(questions, text).sentence


def test_a_time_before_the_first_observation(questions: Questions) -> None:
    assert "No memor" in _answer(questions, "was the car at (6, 1) already there 4 days ago?").sentence


def test_a_point_that_means_no_object_stays_a_point(questions: Questions) -> None:
    for text in ("is the car at (3, 1)?", "is there a car at (3, 1)?", "is the car at (14, 1) still there?"):
        assert questions.understand(text, NOW).near is not None, text
    # A person stands there in two maps.
    assert questions.understand("is the person at (3, 1) still there?", NOW).near == (3.0, 1.0)
    assert questions.understand("is the person at (3, 1) in map park still there?", NOW).what == 6
    with pytest.raises(QuestionError, match="not two objects of one map"):
        _answer(questions, "how far apart are the two persons?")


def test_a_point_of_another_sentence_is_not_dropped(questions: Questions) -> None:
    with pytest.raises(QuestionError, match=r"what \(3, 1\) has to do with the question"):
        _answer(questions, "I was at (3, 1). When did you last see the car?")
    with pytest.raises(QuestionError, match="'that'"):
        _answer(questions, "I mean the car that stood for a day. Where was that?")


def test_an_object_is_described_and_places_are_not_listed(questions: Questions) -> None:
    assert "Its caption is 'a red van'." in _answer(questions, "describe the car at (20, 1)").sentence
    near = _answer(questions, "what is near (5.5, 1)?").answer
    assert [hit.memory.id for hit in near.hits] == [2, 1, 6, 5]
    assert [hit.memory.kind for hit in near.hits] == ["object"] * 4


def test_days_have_numbers(questions: Questions) -> None:
    found = _answer(questions, "how many cars did you see on the second day?")
    assert found.answer.memories == 2
    assert "'the second day' is 2024-10-03." in found.sentence
    assert _answer(questions, "how many cars did you see on the first day?").answer.memories == 1
    with pytest.raises(QuestionError, match="fourth day"):
        _answer(questions, "how many cars did you see on the fourth day?")
    questions.store.add([_car(40, 1, 50)])
    with pytest.raises(QuestionError, match="second day"):  # Nobody counts the days of months.
        _answer(questions, "how many cars did you see on the second day?")


def test_other_objects_than_one(questions: Questions) -> None:
    found = _answer(questions, "how many other cars are within 4 m of the car at (3, 1)?")
    assert [memory.id for memory in found.answer.memories] == [2]
