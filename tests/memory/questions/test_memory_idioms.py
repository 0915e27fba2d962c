"""Fixed expressions, objects by their use, and names that are repeated: the question, and the plain one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory import Memory, MemoryStore
from memory.exchange.times import parse_time
from memory.questions import Questions
from memory.questions.reading.rewording import reworded
from memory.questions.reading.times import span_of
from memory.questions.replying import reply

DAY = 86_400 * 10**9
NOW = 20_000 * DAY + DAY // 2


@pytest.mark.parametrize(
    ("asked", "plain"),
    [
        ("last known pose of the cup in the map frame", "position of the cup"),
        ("give me the x/y of the cup so I can use it as a goal", "give me the position of the cup"),
        ("which objects did you mark as gone", "which objects are gone"),
        ("distance cup -> sofa", "distance from cup to sofa"),
        ("name everything you know about in the garage", "list everything in the garage"),
        ("number of observations on the cup", "how often did you see the cup"),
        ("cup count", "how many cup"),
        ("which room should I look in for the cup", "where is the cup"),
        ("when was the last time you went into the hall", "when did you last visited the hall"),
        ("take me to the thing that the cat is sleeping on", "what is the cat sleeping on"),
        ("has the car left the garage", "is the car gone from the garage"),
        ("what does the table have on it", "what is on the table"),
        ("I am at the fridge. Which chair is the nearest", "Which chair is the nearest to the fridge"),
        ("which takes up more space, the bed or the sofa", "which is bigger, the bed or the sofa"),
        (
            "which mug is closer to the sink, the red one or the blue one",
            "which is closer to the sink, the red mug or the blue mug",
        ),
        ("what turned up first, the cup or the sofa", "which was seen first, the cup or the sofa"),
        ("what could I use to reach the top shelf", "where is a climbing aid"),
        ("is there anything to read on the table", "is there a reading matter on the table"),
        ("where can I sit", "where is a seat"),
        ("how many beds does the flat have", "how many beds are there"),
        ("what does the cup look like", "describe the cup"),
        ("is there another mug like the red one", "which mugs are there except the red mug"),
        ("guide me from (3, 1) to the nearest chair", "take me to the chair nearest to (3, 1)"),
        ("I'm at (3, 1). Which chair is nearest to me", "Which chair is nearest to (3, 1)"),
        ("have you driven past (3, 1) before", "what did you see near (3, 1)"),
        ("have you ever been in the hall before", "have you ever seen the hall"),
        ("which of the two cups did you see more often", "which cup did you see most often"),
        ("guide me from (3, 1) to the sofa", "take me to the sofa"),
        ("which cars did you see driving", "which cars are marked as moved"),
        ("which towel isn't in its place any more", "which towel is no longer there"),
        ("of the two mugs, which one did you see most recently", "which mug did you see most recently"),
        ("where was the cup before it disappeared", "where was the cup"),
        ("find the chair nearest to the fridge", "which chair is nearest to the fridge"),
        ("do you know of a chair around (3, 1)", "is there a chair around (3, 1)"),
        # Words that name something stay.
        ("what is next to the reading lamp", "what is next to the reading lamp"),
        ("where is the name plate", "where is the name plate"),
    ],
)
def test_fixed_expressions(asked: str, plain: str) -> None:
    assert reworded(asked) == plain


def test_a_clock_in_the_evening() -> None:
    now = parse_time("2026-01-10T12:00:00Z")
    for words in ("yesterday evening 18:30", "yesterday evening at 6:30", "yesterday at 18:30"):
        assert span_of(words, now).first == parse_time("2026-01-09T18:30:00Z")
    assert span_of("yesterday morning 6:30", now).first == parse_time("2026-01-09T06:30:00Z")


@pytest.fixture
def questions(tmp_path: Path) -> Iterator[Questions]:
    with MemoryStore.open(tmp_path, dim=2) as store:
        things = (
            ("table", 1, 0.4, [1.6, 0.8, 0.8]), ("mug", 1.2, 0.85, [0.1, 0.1, 0.1]),
            ("glasses", 1.3, 0.82, [0.1, 0.1, 0.03]), ("book", 4, 0.5, [0.2, 0.2, 0.1]),
        )  # fmt: skip
        store.add(
            [
                Memory(time_ns=NOW, position=(x, 1, z), label=label, payload={"size_m": size})
                for label, x, z, size in things
            ]
        )
        yield Questions(store)


def _says(questions: Questions, text: str) -> str:
    return reply(questions, questions.understand(text, NOW)).sentence


def test_an_object_by_its_use(questions: Questions) -> None:
    assert "mug (read for 'drinking vessel')" in _says(questions, "something to drink from")
    assert "book" in _says(questions, "where can I find something to read?")
    assert "called 'cleaning tool'" in _says(questions, "what can I use to sweep the floor?")


def test_the_name_of_the_first_question_stands_for_the_pronoun_of_the_second(questions: Questions) -> None:
    both = _says(questions, "Where is the table, and how many mugs are on it?")
    assert "table was last seen" in both
    assert "1 memory of mug on table" in both
    assert "'it' was read as 'the table'" in both


def test_the_noun_of_the_first_question_stands_for_one(questions: Questions) -> None:
    questions.store.add([Memory(time_ns=NOW, position=(6, 1, 0), label="mug", caption="a red mug")])
    both = _says(questions, "How many mugs are there, and where is the red one?")
    assert "2 memories of mug" in both
    assert "(6.0, 1.0)" in both


def test_words_in_parentheses(questions: Questions) -> None:
    assert "'I hope' was not considered" in _says(questions, "when did you last see the mug (I hope)?")
    assert "not considered" not in _says(questions, "what is near (1, 1)?")


def test_an_event_is_not_missed(questions: Questions) -> None:
    old = NOW - 5 * DAY
    questions.store.add(
        [
            Memory(time_ns=old, position=(6, 1, 0), label="alarm", kind="event"),
            Memory(time_ns=old, position=(7, 1, 0), label="vase"),
        ]
    )
    missing = _says(questions, "which objects have you not seen today?")
    assert "vase" in missing
    assert "alarm" not in missing
