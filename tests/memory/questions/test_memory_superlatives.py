"""Superlatives over a small flat: what is nearest, largest, seen most often, seen first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memory.questions.relations as relations
from memory import Memory, MemoryStore
from memory.questions import Ordering, Questions
from memory.questions.replying import ReplyOptions, reply
from memory.questions.translation import parse_query, query_of
from memory.types import Visit

DAY = 86_400 * 10**9
NOW = 20_000 * DAY + DAY // 2
MINUTE = 60 * 10**9


def thing(label: str, x: float, y: float, z: float, *size: float, **more: Any) -> Memory:
    payload = {"size_m": list(size)} if size else {}
    return Memory(time_ns=NOW, position=(x, y, z), label=label, payload=payload, **more)


@pytest.fixture
def questions(tmp_path: Path) -> Iterator[Questions]:
    visits = (Visit(NOW - DAY, NOW - DAY + MINUTE, 20), Visit(NOW - MINUTE, NOW, 1))
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add(
            [
                thing("table", 1, 1, 0.4, 1.6, 0.8, 0.8, count=9, first_seen_ns=NOW - 3 * DAY),  # 1
                thing("cup", 1.2, 1.1, 0.85, 0.1, 0.1, 0.1, count=21, visits=visits),  # 2, on the table
                thing("chair", 1, 2.2, 0.5, 0.5, 0.5, 1.0, first_seen_ns=NOW - 2 * DAY),  # 3
                thing("door", 8, 1, 1.0, 1.0, 0.1, 2.0),  # 4
                thing("lamp", 4.5, 1.2, 1.0),  # 5, without a size
                thing("chair", 8, 6, 0.5, 0.6, 0.5, 1.0, count=5),  # 6, in the study
                thing("cup", 7.9, 1.0, 0.85, 0.2, 0.1, 0.1, state="gone"),  # 7, was near the door
                thing("chair", 1.5, 2.2, 0.5, 0.5, 0.5, 1.1),  # 8
                thing("shelf", 1, 1, 1.8, 1.0, 0.3, 0.2),  # 9, on the wall above the table
                thing("", 0, 0, 0, kind="place", count=7),  # 10, in the kitchen
                thing("", 8, 5, 0, kind="place", count=4),  # 11, in the study
                thing("", 9, 5, 0, kind="place", count=4),  # 12, in the study
                thing("car", 40, 1, 0, 4, 2, 1, kind="event", state="moved", map_id="street"),  # 13
            ]
        )
        store.add([Memory(time_ns=NOW, label="van", kind="event", payload={"speed_m_s": 3.0})])  # 14
        store.set_area("kitchen", box=(-1, -1, 6, 4), map_id="default")
        store.set_area("study", box=(6, 4, 10, 8), map_id="default")
        yield Questions(store)


def ask(questions: Questions, text: str, **options: Any) -> Any:
    return reply(questions, questions.understand(text, NOW), ReplyOptions(**options))


def first(questions: Questions, text: str, **options: Any) -> set[int | None]:
    answer = ask(questions, text, **options).answer
    assert isinstance(answer, Ordering)
    return {memory.id for memory in answer.memories}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("which chair is nearest to the door?", {6}),
        ("which chair is farthest from the door?", {3}),
        ("what is the second closest chair to the table?", {8}),
        ("what is closest to the door?", {5}),  # The gone cup is closer, but not there.
        ("which chair in the kitchen is the farthest from the table?", {8}),
        ("how far is the nearest chair from the lamp?", {8}),
        ("what is the biggest thing in the kitchen?", {1}),
        ("which is the smallest chair?", {3}),
        ("what is the tallest object?", {4}),
        ("what is the widest thing?", {4}),
        ("what is the highest thing in the kitchen?", {9}),
        ("what is the biggest thing on the table?", {2}),
        ("what did you see most often?", {2}),
        ("which chair did you see the most?", {6}),
        ("which chair have you seen the most times?", {6}),
        ("which cup have you seen the fewest times?", {7}),
        ("what did you see most often today?", {1}),
        ("what is the fastest thing you saw?", {14}),
        ("what did you see first?", {1}),
        ("which chair has been there the longest?", {3}),
        ("which cup did you see least often?", {7}),
        ("which chair is the largest but not in the kitchen?", {6}),
        ("what is the tallest object except the door?", {8}),
        ("which chair is nearest to the table, other than memory 8?", {3}),
    ],
)
def test_the_first_of_several(questions: Questions, text: str, expected: set[int]) -> None:
    assert first(questions, text) == expected


def test_an_answer_names_the_measure_the_next_and_what_has_no_size(questions: Questions) -> None:
    said = ask(questions, "what is the biggest thing in the kitchen?").sentence
    assert said.startswith(
        "Largest box in kitchen: table (memory 1) at (1.0, 1.0), 1.024 m³ (1.60 x 0.80 x 0.80 m). Then chair"
    )
    assert said.endswith("1 more memory without a known size.")
    near = ask(questions, "which chair is nearest to the door?")
    assert near.sentence.startswith("Nearest to (8.0, 1.0): chair (memory 6) at (8.0, 6.0), 5.00 m.")
    assert near.sentence.endswith("Distances are from door (memory 4), last seen at (8.0, 1.0).")
    assert near.answer.to_json()["first"][0]["value"] == pytest.approx(5.0)


def test_how_tall_and_how_long_an_object_is(questions: Questions) -> None:
    assert "table (memory 1) at (1.0, 1.0), 0.80 m." in ask(questions, "how tall is the table?").sentence
    assert "(1.60 x 0.80 x 0.80 m)." in ask(questions, "how big is the table?").sentence
    assert "1.60 m." in ask(questions, "how long is the table?").sentence
    assert "was first seen on" in ask(questions, "how long has the table been there?").sentence
    with pytest.raises(ValueError, match="The size of lamp is not known"):
        ask(questions, "how big is the lamp?")


def test_speeds_are_those_of_movements_and_of_moving_objects(questions: Questions) -> None:
    questions.store.add([Memory(time_ns=NOW, label="bus", velocity=(3.0, -4.0, 0.0))])
    assert first(questions, "what is the fastest thing you saw?") == {15}
    assert first(questions, "what is the slowest thing you saw?") == {14}


def test_equal_values_are_all_named(questions: Questions) -> None:
    questions.store.add([thing("chair", 3, 3, 0.5, 0.6, 0.5, 1.0)])
    assert first(questions, "what is the biggest chair?") == {6, 15}
    assert "2 equal: chair (memory 15)" in ask(questions, "what is the biggest chair?").sentence


def test_what_left_counts_if_nothing_else_matches_or_if_the_question_is_about_the_past(
    questions: Questions,
) -> None:
    assert first(questions, "which cup is the largest?") == {2}
    assert first(questions, "which was the largest cup?") == {7}
    questions.store.mark([2], "gone")
    found = ask(questions, "which cup is the largest?")
    assert found.answer.memories[0].id == 7
    assert "gone now" in found.sentence


def test_rooms_add_up_their_places(questions: Questions) -> None:
    found = ask(questions, "which room have you visited the most?").answer
    assert [(each.room, each.value) for each in (*found.first, *found.following)] == [
        ("study", 8),
        ("kitchen", 7),
    ]
    least = ask(questions, "which room did you visit least often?").answer
    assert [each.room for each in least.first] == ["kitchen"]


def test_a_route_leads_to_the_nearest_or_farthest(questions: Questions) -> None:
    assert ask(questions, "go to the nearest chair to the door").answer.memory.id == 6
    assert ask(questions, "go to the farthest chair from the door").answer.memory.id == 3


def test_distances_from_the_robot_and_from_a_room(questions: Questions) -> None:
    pose = (8.0, 5.0, 0.0)
    assert first(questions, "the nearest chair to me", pose=pose) == {6}
    assert first(questions, "the nearest chair to me in the kitchen", pose=pose) == {8}
    assert first(questions, "which chair is closest to the study?") == {6}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what is under the cup?", {1}),
        ("what is above the table?", {2, 9}),
        ("is the table below the shelf?", {1}),
        ("what is under the chair?", set()),
    ],
)
def test_under_and_above(questions: Questions, text: str, expected: set[int]) -> None:
    found = ask(questions, text)
    assert {memory.id for memory in found.answer.memories} == expected
    assert ("Above means" if "above" in text else "Under means") in found.sentence


def test_what_boxes_do_not_tell_is_refused_or_named(questions: Questions) -> None:
    questions.store.add([thing("ball", 1.3, 1.0, 0.1, 0.2, 0.2, 0.2)])
    with pytest.raises(ValueError, match=r"boxes do not tell whether ball \(memory 15\) is under table"):
        ask(questions, "what is under the table?")
    both = ask(questions, "what is under the shelf?")
    assert {memory.id for memory in both.answer.memories} == {1, 2, 15}
    assert "do not tell" not in both.sentence
    # A second one of unknown size may lie there too, and the answer says so.
    questions.store.add([thing("sock", 1.0, 1.0, 0.0)])
    said = ask(questions, "what is under the shelf?").sentence
    assert said.endswith("The boxes do not tell it of sock (memory 16).")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("what is the nearest chair?", "needs a point or an object to measure from"),
        ("what is the nearest chair in the kitchen?", "needs a point or an object to measure from"),
        ("what is next to the biggest chair?", "'biggest' needs one kind of object or one place"),
        ("what is on the nearest table to the door?", "'nearest' needs a point or an object"),
        ("is the door bigger than the biggest thing?", "'bigger' compares two named objects"),
        ("which lamp is the largest?", "The size of lamp is not known"),
        ("what is the largest and tallest thing?", "needs one kind of object or one place"),
    ],
)
def test_what_has_no_single_order_is_refused(questions: Questions, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(questions, text)


@pytest.mark.parametrize("text", ["the heaviest chair", "the most beautiful chair", "the shortest chair"])
def test_a_measure_that_is_not_stored_is_not_answered(questions: Questions, text: str) -> None:
    try:
        found = ask(questions, text)
    except ValueError:
        return
    assert found.sentence.startswith("I don't know an object called") or "No mem" in found.sentence


def test_too_many_memories_are_refused_but_the_nearest_is_found(
    questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relations, "MOST_RANKED", 2)
    with pytest.raises(ValueError, match="3 memories match, and a superlative or condition reads at most 2"):
        ask(questions, "which chair is the largest?")
    assert first(questions, "which chair is nearest to the door?") == {6}


def test_a_structured_query_asks_the_same(questions: Questions) -> None:
    asked = questions.understand("what is the second closest chair to the table?", NOW)
    query = query_of(asked)
    assert query == {
        "question": "ranked", "what": "chair", "beside": "table", "measure": "distance", "order": "less",
        "nth": 2,
    }  # fmt: skip
    assert reply(questions, parse_query(query)).answer.to_json() == reply(questions, asked).answer.to_json()
    on = {"question": "ranked", "measure": "size", "order": "more", "relation": "on", "beside": "table"}
    found: Any = reply(questions, parse_query(on)).answer
    assert [memory.id for memory in found.memories] == [2]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"measure": "size"}, "order more or less"),
        ({"measure": "count", "order": "more"}, "order more or less"),
        ({"measure": "size", "order": "more", "nth": 9}, "whole number from 1 to 4"),
        ({"measure": "size", "order": "more", "relation": "on"}, "a relation needs beside"),
        ({"measure": "distance", "order": "less"}, "measured from"),
    ],
)
def test_an_incomplete_query_is_refused(questions: Questions, query: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reply(questions, parse_query({"question": "ranked"} | query))
