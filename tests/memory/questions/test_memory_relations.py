"""Questions about relations, rooms, distances and comparisons over a small flat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MemoryStore
from memory.questions import Comparison, Distance, Questions, Related
from memory.questions.replying import ReplyOptions, reply

DAY = 86_400 * 10**9
NOW = 20_000 * DAY + DAY // 2


def thing(label: str, x: float, y: float, z: float, *size: float, **more: Any) -> Memory:
    payload = {"size_m": list(size)} if size else {}
    return Memory(time_ns=NOW, position=(x, y, z), label=label, payload=payload, **more)


@pytest.fixture
def questions(tmp_path: Path) -> Iterator[Questions]:
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add(
            [
                thing("table", 1, 1, 0.4, 1.6, 0.8, 0.8),  # 1
                thing("cup", 1.2, 1.1, 0.85, 0.1, 0.1, 0.1),  # 2, on the table
                thing("chair", 1, 2.2, 0.5, 0.5, 0.5, 1.0),  # 3, next to the table
                thing("door", 8, 1, 1.0, 1.0, 0.1, 2.0),  # 4
                thing("lamp", 4.5, 1.2, 1.0),  # 5, between both, without a size
                thing("chair", 8, 6, 0.5, 0.5, 0.5, 1.0),  # 6, in the study
                thing("cup", 1.0, 1.0, 0.85, 0.1, 0.1, 0.1, state="gone"),  # 7, was on the table
                thing("chair", 1.5, 2.2, 0.5, 0.5, 0.5, 1.0),  # 8, next to the table
            ]
        )
        store.set_area("kitchen", box=(0, 0, 6, 4))
        store.set_area("study", box=(6, 4, 10, 8))
        yield Questions(store)


def ask(questions: Questions, text: str, **options: Any) -> Any:
    return reply(questions, questions.understand(text, NOW), ReplyOptions(**options))


def ids(questions: Questions, text: str, **options: Any) -> set[int]:
    found = ask(questions, text, **options).answer
    hits = getattr(found, "hits", None)
    return {each.id for each in (found.memories if hits is None else [hit.memory for hit in hits])}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what is on the table?", {2}),
        ("is there a cup on the table?", {2}),
        ("is there a chair on the table?", set()),
        ("what is next to the table?", {2, 3, 8}),
        ("which chairs are next to the table?", {3, 8}),
        ("what is between the table and the door?", {5}),
        ("what is in the kitchen?", {1, 2, 3, 5, 8}),
        ("which chairs are in the study?", {6}),
        ("what is on the table in the kitchen?", {2}),
        ("what is on the table in the study?", set()),
    ],
)
def test_relations_and_rooms(questions: Questions, text: str, expected: set[int]) -> None:
    if "study" in text and "table" in text:
        with pytest.raises(ValueError, match="I don't know an object called 'table'"):
            ask(questions, text)
        return
    assert ids(questions, text) == expected


def test_an_answer_names_the_landmark_and_the_threshold(questions: Questions) -> None:
    found = ask(questions, "is there a cup on the table?")
    assert isinstance(found.answer, Related)
    assert found.sentence.startswith("1 memory of cup on table (memory 1): cup (memory 2) at (1.2, 1.1)")
    assert "On means in its outline" in found.sentence
    assert "No memories of 'chair' on table" in ask(questions, "is there a chair on the table?").sentence


def test_where_an_object_is_names_its_room(questions: Questions) -> None:
    assert ask(questions, "where is the lamp?").sentence.endswith("That is in kitchen.")
    assert ask(questions, "where is the chair next to the table?").answer.memories[0].id in (3, 8)


def test_sides_need_the_pose_of_the_robot(questions: Questions) -> None:
    with pytest.raises(ValueError, match=r"'left of' depends on the robot's current pose.*--pose X Y YAW"):
        ask(questions, "what is left of the table?")
    # Seen from below, the chair is behind the table; seen from the door, it is to its right.
    assert ids(questions, "which chairs are behind the table?", pose=(1.0, -3.0, 0.0)) == {3, 8}
    assert 3 in ids(questions, "what is to the right of the table?", pose=(8.0, 1.0, 3.14))
    assert ids(questions, "what is on my left?", pose=(4.5, -1.0, 0.0)) == {5, 6, 8}
    assert ids(questions, "what is in front of you?", pose=(3.5, 1.0, 0.0)) == {4, 5}
    assert "within 10 m" in ask(questions, "what is on my left?", pose=(4.5, -1.0, 0.0)).sentence
    near = ask(questions, "what is near me?", pose=(4.5, 1.0, 0.0)).answer
    assert near.hits[0].memory.id == 5


@pytest.mark.parametrize(
    ("text", "metres"),
    [
        ("how far is the table from the door?", 7.0),
        ("what is the distance between the door and the table?", 7.0),
        ("how far is the lamp from (4.5, 4.2)?", 3.0),
        ("how far apart are the chair and the door?", 5.0),
    ],
)
def test_distances(questions: Questions, text: str, metres: float) -> None:
    found = ask(questions, text).answer
    assert isinstance(found, Distance)
    assert found.distance_m == pytest.approx(metres, abs=0.01)


@pytest.mark.parametrize(
    ("text", "holds", "winner"),
    [
        ("are there more chairs than cups?", True, "chairs"),
        ("are there fewer chairs than cups?", False, "cups"),
        ("are there more chairs in the kitchen than in the study?", True, "chairs in the kitchen"),
        ("are there as many doors as tables?", True, None),
        ("which room has the most chairs?", None, "kitchen"),
        ("where are the fewest chairs?", None, "study"),
        ("which is closer to the table, the lamp or the door?", None, "lamp"),
        ("is the lamp or the door closer to the table?", None, "lamp"),
        ("is the table bigger than the chair?", True, "table"),
        ("which is smaller, the table or the cup?", None, "cup"),
        ("is the door taller than the table?", True, "door"),
        ("which is wider, the table or the door?", None, "door"),
        ("did you see the chair more often than the door?", True, "chair"),
        ("which map has the most chairs?", None, "default"),
    ],
)
def test_comparisons(questions: Questions, text: str, holds: bool | None, winner: str | None) -> None:
    found = ask(questions, text).answer
    assert isinstance(found, Comparison)
    assert (found.holds, found.winner) == (holds, winner)


def test_a_comparison_of_times(questions: Questions) -> None:
    questions.store.add([Memory(time_ns=NOW - DAY, label="chair", position=(0, 0, 0)) for _ in range(5)])
    assert ask(questions, "did you see more chairs today than yesterday?").answer.holds is False
    assert ask(questions, "did you see more chairs yesterday than today?").answer.holds is True
    # All chairs of today are in a room; those of yesterday are older.
    since = ask(questions, "which room has the most chairs since yesterday?").answer
    assert dict(since.sides) == {"kitchen": 7, "study": 1}
    assert dict(ask(questions, "which room had the most chairs today?").answer.sides) == {
        "kitchen": 2,
        "study": 1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("is the lamp bigger than the cup?", "The size of lamp is not known"),
        ("what is on the lamp?", "The size of lamp"),
        ("what is on the piano?", "I don't know an object called 'piano'"),
        ("what is on the table in the attic?", "I don't know an area called 'attic'"),
        ("what colour is the cup?", "Colour is not stored; I can answer where, when and how many."),
        ("did you see the cup more than the table?", "'more than' compares two named objects"),
    ],
)
def test_what_cannot_be_known_is_refused(questions: Questions, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask(questions, text)


def test_without_areas_rooms_cannot_be_compared(questions: Questions) -> None:
    for area in ("kitchen", "study"):
        questions.store.remove_area(area)
    with pytest.raises(ValueError, match="No areas are set"):
        ask(questions, "which room has the most chairs?")


def test_a_synonym_is_reported_and_a_longer_name_is_not_guessed(questions: Questions) -> None:
    found = ask(questions, "is there a mug on the table?")
    assert [memory.id for memory in found.answer.memories] == [2]
    assert found.sentence.endswith("('mug' read as 'cup'.)")
    assert "Ask for chair alone" in ask(questions, "where is the rocking chair?").sentence
