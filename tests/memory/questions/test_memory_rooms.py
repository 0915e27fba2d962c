"""Questions about rooms: which have an object, how large they are, and whether objects share one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory import Memory, MemoryStore
from memory.questions import Questions
from memory.questions.errors import QuestionError
from memory.questions.replying import reply
from memory.questions.rooms import RoomList, SameRoom

NOW = 2_000_000_000 * 10**9


@pytest.fixture
def questions(tmp_path: Path) -> Iterator[Questions]:
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add(
            [
                Memory(time_ns=NOW, position=(1, 1, 0), label="chair"),
                Memory(time_ns=NOW, position=(2, 1, 0), label="chair", caption="a red chair"),
                Memory(time_ns=NOW, position=(11, 1, 0), label="chair"),
                Memory(time_ns=NOW, position=(12, 1, 0), label="lamp"),
                Memory(time_ns=NOW, position=(31, 1, 0), label="lamp", state="gone"),
                Memory(time_ns=NOW, position=(60, 1, 0), label="bench"),
                Memory(time_ns=NOW, position=(3, 3, 0), label="dining table"),
            ]
        )
        store.set_area("kitchen", box=(0, 0, 5, 4), map_id="default")
        store.set_area("study", box=(10, 0, 16, 4), map_id="default")
        store.set_area("back garden", box=(30, 0, 40, 10), map_id="default")
        yield Questions(store)


def sentence_of(questions: Questions, text: str) -> str:
    return reply(questions, questions.understand(text, NOW)).sentence


@pytest.mark.parametrize(
    ("asked", "rooms"),
    [
        ("which rooms have a chair?", ["kitchen", "study"]),
        ("which rooms contain chairs", ["kitchen", "study"]),
        ("list all rooms with a chair in it", ["kitchen", "study"]),
        ("which rooms have no chair at all", ["back garden"]),
        ("which room does not have a chair", ["back garden"]),
        ("which rooms are without a lamp", ["back garden", "kitchen"]),
        ("which rooms have at least two chairs", ["kitchen"]),
        ("which rooms have more than one chair", ["kitchen"]),
        ("which rooms have exactly one chair", ["study"]),
        ("which rooms have fewer than two chairs", ["back garden", "study"]),
        ("in which rooms are there lamps", ["study"]),
        ("how many rooms have a chair", ["kitchen", "study"]),
        ("in how many rooms are there chairs", ["kitchen", "study"]),
        ("which rooms are there", ["back garden", "kitchen", "study"]),
        ("how many rooms do you know", ["back garden", "kitchen", "study"]),
    ],
)
def test_rooms_with_so_many_objects(questions: Questions, asked: str, rooms: list[str]) -> None:
    found = reply(questions, questions.understand(asked, NOW)).answer
    assert isinstance(found, RoomList)
    assert sorted(found.rooms) == rooms


@pytest.mark.parametrize(
    ("asked", "holds"),
    [
        ("does every room have a chair?", False),
        ("is there a chair in every room", False),
        ("is there a room without a chair", True),
        ("does any room have three chairs", False),
        ("do all rooms have at most two chairs", True),
        ("are the lamp and the red chair in the same room", False),
        ("are the table and the red chair in the same room?", True),
        ("are the lamp and the red chair in different rooms", True),
    ],
)
def test_yes_or_no(questions: Questions, asked: str, holds: bool) -> None:
    found = reply(questions, questions.understand(asked, NOW)).answer
    assert isinstance(found, RoomList | SameRoom)
    assert found.holds is holds
    assert str(found).startswith("Yes: " if holds else "No: ")


@pytest.mark.parametrize(
    ("asked", "start"),
    [
        ("how big is the kitchen?", "kitchen: kitchen 20.0 m²."),
        ("how many square metres is the study", "study: study 24.0 m²."),
        ("which is the largest room?", "back garden: back garden 100.0 m²"),
        ("what's the smallest room", "kitchen: "),
        ("which room is larger, the kitchen or the study?", "study: kitchen 20.0 m² and study 24.0 m²."),
        ("is the garden bigger than the study", "Yes: back garden 100.0 m² and study 24.0 m²."),
        ("is the kitchen the biggest room", "No: "),
    ],
)
def test_sizes(questions: Questions, asked: str, start: str) -> None:
    assert sentence_of(questions, asked).startswith(start)


def test_kinds_are_labels(questions: Questions) -> None:
    assert sentence_of(questions, "how many kinds of things are there in the kitchen?").startswith("2 kinds")
    found = sentence_of(questions, "how many different types of furniture are there")
    assert found.startswith("3 kinds of dining table or chair or bench (read for 'furniture')")
    with pytest.raises(QuestionError, match="Kinds of chair are not stored"):
        sentence_of(questions, "how many kinds of chair are there")


def test_part_of_the_name_of_a_room(questions: Questions) -> None:
    assert "('garden' read as 'back garden'.)" in sentence_of(questions, "what is in the garden")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("which rooms have no unicorn", "don't know an object called 'unicorn'"),
        ("which rooms have neither a chair nor a lamp", "one kind of object per room"),
        ("which rooms lack two chairs", "can't negate a number"),
        ("are the lamp and the chair in the same room", "share an area and others don't"),
        ("are the lamp and the bench in the same room", "is in no area"),
        ("are the lamp and the unicorn in the same room", "don't know where unicorn is"),
    ],
)
def test_what_is_refused(questions: Questions, asked: str, reason: str) -> None:
    with pytest.raises(QuestionError, match=reason):
        sentence_of(questions, asked)


def test_areas_are_needed(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add([Memory(time_ns=NOW, position=(1, 1, 0), label="chair")])
        with pytest.raises(QuestionError, match="No areas are set"):
            sentence_of(Questions(store), "which rooms have a chair")
        place = store.add([Memory(time_ns=NOW, position=(1, 1, 0), label="hall", kind="place")])
        store.set_area("hall", places=[place[0] or 0], radius_m=2)
        with pytest.raises(QuestionError, match="have no size"):
            sentence_of(Questions(store), "which is the largest room")
