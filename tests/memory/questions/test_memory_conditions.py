"""Conditions, exceptions, quantifiers, rooms by an object, and questions about several objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MemoryStore
from memory.exchange.times import parse_time
from memory.questions import AnswerList, Questions, Selection
from memory.questions.errors import QuestionError
from memory.questions.replying import Reply, ReplyOptions, reply
from memory.questions.translation import parse_query, query_of
from memory.types import Visit

NOW = parse_time("2026-03-20T18:00:00Z")  # A Friday.
DAY = 86_400 * 10**9


def thing(label: str, x: float, y: float, *size: float, days: float = 10.0, **more: Any) -> Memory:
    first = NOW - round(days * DAY)
    payload = {"size_m": list(size)} if size else {}
    height = more.pop("height", size[2] / 2 if size else 0.0)
    parts: dict[str, Any] = {"count": 5, "first_seen_ns": first, "payload": payload} | more
    return Memory(time_ns=parts.pop("at", NOW), label=label, position=(x, y, height), **parts)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Questions]:
    twice = (Visit(NOW - 3 * DAY, NOW - 3 * DAY, 1), Visit(NOW, NOW, 4))
    with MemoryStore.open(tmp_path_factory.mktemp("asked") / "store", dim=2) as store:
        store.add(
            [
                thing("chair", 1, 1, 0.5, 0.5, 0.9, count=30),  # 1
                thing("chair", 2, 1, 0.5, 0.5, 1.1),  # 2
                thing("chair", 8, 1, 0.5, 0.5, 0.9, days=3, visits=twice),  # 3, in the study
                thing("table", 1, 3, 1.6, 0.8, 0.75),  # 4
                Memory(
                    time_ns=NOW, label="cup", position=(1, 3, 0.8), payload={"size_m": [0.1, 0.1, 0.1]}
                ),  # 5
                thing("cup", 8, 2, 0.1, 0.1, 0.1, days=1, count=1),  # 6, in the study
                thing("fridge", 3, 3, 0.6, 0.6, 1.8, days=30),  # 7
                thing("lamp", 8, 3),  # 8, without a size, in the study
                thing("cup", 3, 1, 0.1, 0.1, 0.1, state="gone", at=NOW - 5 * DAY),  # 9
                thing("bag", 4, 2, 0.3, 0.3, 0.4, state="moved", at=NOW - 2 * DAY),  # 10
                Memory(time_ns=NOW, label="letter", kind="note"),  # 11, without a position
                thing("car", 50, 50, 4, 2, 1.5, map_id="street"),  # 12
            ]
        )
        store.set_area("kitchen", box=(0, 0, 5, 5), map_id="default")
        store.set_area("study", box=(6, 0, 10, 5), map_id="default")
        yield Questions(store)


def ask(questions: Questions, text: str) -> Reply:
    return reply(questions, questions.understand(text, NOW), ReplyOptions(k=50))


def selected(questions: Questions, text: str) -> Selection:
    found = ask(questions, text).answer
    assert isinstance(found, Selection), text
    return found


def ids(memories: Any) -> set[int | None]:
    return {memory.id for memory in memories}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Negations.
        ("which chairs are not in the kitchen?", {3}),
        ("how many chairs are not in the kitchen?", {3}),
        ("is there a chair that is not in the kitchen?", {3}),
        ("which of the chairs isn't in the kitchen?", {3}),
        ("show me the cups that are not on the table", {6}),
        ("which chairs are not near the table?", {3}),
        ("which chairs are not within 3 m of (1, 1)?", {3}),
        ("which chairs are neither in the kitchen nor near the table?", {3}),
        ("which cups are not in the kitchen or the study?", set()),
        ("what is in the study but not near the lamp?", set()),
        ("which things in the study are not chairs?", {6, 8}),
        ("list everything in the study that is not a chair", {6, 8}),
        ("which letters are not in the kitchen?", set()),
        # Exceptions.
        ("what is in the kitchen except the chairs?", {4, 5, 7}),
        ("what is in the kitchen without the chairs and the table?", {5, 7}),
        ("apart from the lamp, what is in the study?", {3, 6}),
        ("how many things are in the study besides the lamp?", {3, 6}),
        ("everything in the study but the lamp", {3, 6}),
        ("what else is in the study other than memory 3?", {6, 8}),
        # Gone and moved, not seen, not moved.
        ("what is no longer there?", {9, 10}),
        ("which cups are not there any more?", {9}),
        ("what is no longer in the kitchen?", {9, 10}),
        ("how many chairs are no longer in the kitchen?", set()),
        ("which things have not moved?", {1, 2, 3, 4, 5, 6, 7, 8, 12}),
        ("what hasn't moved since Monday?", {1, 2, 4, 7, 8, 12}),
        ("which things haven't been seen since Wednesday?", {9, 10}),
        ("which things have not been seen for three days?", {9}),
        ("what have you not seen today?", {9, 10}),
        ("which chairs did you see today but not on Tuesday?", {1, 2}),
        # Bounds.
        ("things taller than the chairs", {7, 12}),
        ("which things in the kitchen are taller than 1 m?", {2, 7}),
        ("is there anything longer than 5 feet?", {4, 12}),
        ("which things are at least 1 m tall?", {2, 7, 12}),
        ("what in the kitchen is bigger than a chair?", {4, 7}),
        ("which things are not smaller than the fridge?", {4, 7, 12}),
        ("which chairs are more than 5 m from the table?", {3}),
        ("which chairs are farther than 5 m from (1, 1)?", {3}),
        ("which chairs are more than 5 m from the kitchen?", {3}),
        ("what did you see more than 20 times?", {1}),
        ("which things have you seen only once?", {5, 6}),
        ("which things were seen at least 5 times today?", {1}),
        ("things older than two weeks", {7}),
        ("which chairs have been there for more than a week?", {1, 2}),
        ("which chairs have been there for less than a week?", {3}),
        ("which things in the study did you see only today?", set()),
        ("which chairs in the kitchen are taller than 1 m and not near the fridge?", set()),
    ],
)  # fmt: skip
def test_the_objects_that_meet_conditions(questions: Questions, text: str, expected: set[int]) -> None:
    assert ids(selected(questions, text).memories) == expected


@pytest.mark.parametrize(
    ("text", "holds", "exceptions"),
    [
        ("are all chairs in the kitchen?", False, {3}),
        ("are the chairs all in the kitchen?", False, {3}),
        ("is every chair taller than 0.5 m?", True, set()),
        ("is every chair in the kitchen taller than 1 m?", False, {1}),
        ("are both cups on the table?", False, {6}),
        ("are all cups on the table or in the study?", True, set()),
        ("are all cups in the kitchen or the study?", True, set()),
        ("are all cups still there?", False, {9}),
        ("are none of the chairs in the study?", False, {1, 2}),
        ("are none of the cups near the fridge?", False, {6}),
        ("are any of the chairs in the study?", True, {1, 2}),
        ("have all bags moved?", True, set()),
        ("have you seen all chairs today?", True, set()),
        ("did you see all cups today?", False, {9}),
        ("is the fridge taller than 1 m?", True, set()),
        ("is the table more than 5 m from the fridge?", False, {4}),
        ("is every lamp taller than 1 m?", None, set()),
    ],
)
def test_quantifiers(questions: Questions, text: str, holds: bool | None, exceptions: set[int]) -> None:
    found = selected(questions, text)
    assert (found.holds, ids(found.others)) == (holds, exceptions)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "are all chairs in the kitchen?",
            "No: 2 of 3 memories of chair are in the kitchen. The exception is chair (memory 3) at (8.0,"
            " 1.0).",
        ),
        (
            "which chairs are taller than the table?",
            "3 of 3 memories of chair are taller than the table (table (memory 4), 0.75 m): chair (memory 3)"
            " at (8.0, 1.0), 0.90 m",
        ),
        (
            "which things in the study are taller than 1 m?",
            "None of 3 memories in area study are taller than 1 m. It is not known of lamp (memory 8)",
        ),
        (
            "which cups are not on the table?",
            "1 of 2 memories of cup is not on the table: cup (memory 6) at (8.0, 2.0). 1 more memory left and"
            " is not counted. On means in its outline",
        ),
        ("which chairs are not near (1, 1)?", "Near means within 5 m of (1.0, 1.0)."),
        ("which letters are not in the kitchen?", "not known of letter (memory 11) at an unknown place"),
        ("which cups haven't been seen since Wednesday?", "since Wednesday (after 2026-03-19 00:00:00 UTC)"),
        ("is every lamp taller than 1 m?", "Not known: none of 1 memory"),
        ("which chairs did not move?", "3 of 3 memories of chair are not moved: chair"),
        ("which unicorns are not in the kitchen?", "I don't know an object called 'unicorns'."),
    ],
)
def test_answers_name_counts_exceptions_values_and_what_is_not_known(
    questions: Questions, text: str, words: str
) -> None:
    assert words in ask(questions, text).sentence


def test_several_values_of_an_anchor_leave_some_unclear(questions: Questions) -> None:
    found = selected(questions, "which chairs are taller than a chair?")
    assert (ids(found.memories), ids(found.unclear)) == (set(), {2})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("where are the fridge and the bag?", ["fridge was last seen", "bag was last seen"]),
        ("how many chairs and cups are there?", ["3 memories of chair", "2 present and 1 gone"]),
        ("are there a cup and a lamp in the kitchen?", ["of cup in area kitchen", "No memories of 'lamp'"]),
        ("is the fridge in the kitchen or the study?", ["That is in kitchen", "in area study"]),
        ("what is in the kitchen and the study?", ["5 memories in area kitchen", "3 memories in area study"]),
        ("is neither the lamp nor the fridge in the study?", ["lamp (memory 8)", "in area study"]),
        ("where are the fridge and the unicorn?", ["fridge was last seen", "called 'unicorn'"]),
        ("which chairs and cups are not in the kitchen?", ["chair (memory 3)", "cup (memory 6)"]),
        ("where is the lamp, and how many chairs are there?", ["lamp was last seen", "3 memories of chair"]),
        ("where is the lamp? how many chairs are not in the kitchen?", ["lamp was", "1 of 3 memories"]),
        ("what moved, and how many cups are there?", ["Since 2026-03-19", "3 memories of cup"]),
    ],
)  # fmt: skip
def test_each_object_and_each_question_is_answered(questions: Questions, text: str, parts: list[str]) -> None:
    found = ask(questions, text)
    assert isinstance(found.answer, AnswerList)
    assert len(found.answer.answers) == len(parts) == len(found.answer.to_json()["answers"])
    places = [found.sentence.find(part) for part in parts]
    assert places == sorted(places), found.sentence
    assert -1 not in places, found.sentence


def test_the_memories_of_all_parts_are_the_evidence(questions: Questions) -> None:
    found = ask(questions, "where are the fridge, the lamp and the bag?").answer
    assert isinstance(found, AnswerList)
    assert [memory.id for memory in found.memories] == [7, 8, 10]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("what is in the same room as the lamp?", "2 of 3 memories in area study are other than the lamp"),
        ("what is in the room where the lamp is?", "3 memories in area study"),
        ("how many chairs are in the room with the fridge?", "2 memories of chair in area kitchen"),
        (
            "which chairs are not in the same room as the lamp?",
            "2 of 3 memories of chair are not in the same room",
        ),
        ("is the table in the same room as the fridge?", "That is in kitchen."),
    ],
)
def test_the_room_of_an_object(questions: Questions, text: str, words: str) -> None:
    assert words in ask(questions, text).sentence


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # The words have two meanings.
        ("what is there except the chairs in the kitchen?", "only as a condition on a list"),
        ("which things are taller than the table in the study?", "'taller' compares"),
        ("are all chairs in the kitchen next to the table?", "one kind of object and one condition"),
        ("which chairs are not next to the table in the kitchen?", "only as a condition on a list"),
        ("are not all chairs in the kitchen?", "one kind of object and one condition"),
        ("where are the red and blue cups?", "about each of several objects"),
        ("what is near the table and the lamp?", "about each of several objects"),
        ("which is heavier, the table or the fridge?", "about each of several objects"),
        ("how many things are in the kitchen and the study together?", "about each of several objects"),
        ("what is in the room where the chair is?", "are in kitchen and study. Name the room"),
        ("is the lamp in the same room as the car?", "is in no area that is set"),
        ("is the lamp in the same room as the bag?", "I don't know where bag is"),
        ("are both chairs in the kitchen?", "'both' needs two objects, and the store has 3"),
        # A part is not known.
        ("what is in the kitchen except the unicorn?", "called 'unicorn'"),
        ("which things are taller than the unicorn?", "called 'unicorn'"),
        ("which things are taller than the lamp?", "The height of lamp is not known"),
        ("are all chairs in the pantry?", "called 'pantry'"),
        ("which chairs are not on the lamp?", "The size of lamp (memory 8) is not known"),
        # No list, or no condition.
        ("where is the lamp without a shade?", "only as a condition on a list"),
        ("go to a chair that is not in the kitchen", "only as a condition on a list"),
        ("what have you never seen?", "only as a condition on a list"),
        ("which chairs are not comfortable?", "only as a condition on a list"),
        ("are all chairs near the table or red?", "about each of several objects"),
        ("which things are taller than wide?", "'taller' compares"),
        ("which things are bigger than 1 m?", "'bigger' compares"),
        ("which things have been missing for more than a week?", "'more than' compares"),
        ("which things are not in the kitchen or taller than 1 m?", "only as a condition on a list"),
        ("where is the lamp, and how many came?", "one question at a time"),
        ("how many chairs are in the kitchen and how many in the study?", "one question at a time"),
        ("is the lamp not in the study?", "only as a condition on a list"),
        ("which things moved, but not today?", "only as a condition on a list"),
        ("which rooms lack two chairs?", "negate a number"),
    ],
)
def test_what_is_ambiguous_or_unknown_is_refused(questions: Questions, text: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:  # The words are compared below.
        ask(questions, text)
    assert words in str(caught.value)


def test_labels_with_words_of_conditions_are_names(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add([thing(label, 1, 1) for label in ("salt and pepper", "forget-me-not", "one only")])
        found = Questions(store)
        for label in ("salt and pepper", "forget-me-not", "one only"):
            assert f"{label} was last seen" in ask(found, f"where is the {label}?").sentence


def test_a_condition_as_a_structured_query(questions: Questions) -> None:
    for text in (
        "which chairs are not in the kitchen?",
        "what is in the kitchen except the chairs and the table?",
        "things taller than the chairs",
        "which chairs are more than 5 m from (1, 1)?",
        "are both cups on the table?",
        "things older than two weeks",
    ):
        asked = questions.understand(text, NOW)
        again = reply(questions, parse_query(query_of(asked)), ReplyOptions(k=50)).answer
        assert isinstance(again, Selection)
        found = selected(questions, text)
        assert (again.memories, again.holds, again.compared) == (found.memories, found.holds, found.compared)
    query: dict[str, Any] = {"question": "select", "area": "study", "excluding": ["lamp", 6]}
    assert ids(reply(questions, parse_query(query)).answer.memories) == {3}  # type: ignore[attr-defined]
    recent = {"measure": "first_seen", "bound": "at least", "value": "2026-03-15"}
    query = {"question": "select", "what": "chair", "quantifier": "none", "conditions": [recent]}
    said = reply(questions, parse_query(query)).sentence
    assert said.startswith(
        "No: 1 of 3 memories of chair is of first seen from 2026-03-15 00:00:00 UTC: chair (memory 3)"
    )
    kitchen = {"query": {"question": "search", "area": "kitchen"}, "negated": True}
    query = {
        "question": "ranked",
        "measure": "height",
        "order": "more",
        "what": "chair",
        "conditions": [kitchen],
    }
    assert "chair (memory 3)" in reply(questions, parse_query(query)).sentence


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"question": "search", "excluding": ["chair"]}, "'search' has no conditions"),
        ({"question": "ranked", "measure": "size", "order": "more", "quantifier": "all"}, "no quantifier"),
        ({"question": "select", "quantifier": "most"}, "quantifier must be one of"),
        *(
            ({"question": "select", "conditions": conditions}, message)
            for conditions, message in (
                ([], "list of 1 to 8 objects"),
                ([{"size": 1}], "an object with the fields"),
                ([{"negated": True}], "either query or measure"),
                ([{"measure": "height", "bound": "more"}], "needs value or anchor"),
                ([{"measure": "distance", "bound": "more", "value": 1}], "needs value with anchor"),
                ([{"query": {"question": "left", "what": "cup"}}], "for a plain list"),
            )
        ),
    ],
)
def test_a_condition_that_is_no_condition_is_refused(query: dict[str, Any], message: str) -> None:
    with pytest.raises(QuestionError, match=message):
        parse_query(query)
