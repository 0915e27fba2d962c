"""Words that the store cannot check: side sentences, clauses about persons, owners. The answer names them."""

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


def thing(label: str, x: float, z: float, *size: float, ago: float = 0.0, **more: Any) -> Memory:
    payload = {"size_m": list(size)} if size else {}
    return Memory(time_ns=NOW - round(ago * DAY), position=(x, 1, z), label=label, payload=payload, **more)


@pytest.fixture
def questions(tmp_path: Path) -> Iterator[Questions]:
    with MemoryStore.open(tmp_path, dim=2) as store:
        store.add(
            [
                thing("table", 1, 0.4, 1.6, 0.8, 0.8, count=9),  # 1
                thing("cup", 1.2, 0.85, 0.1, 0.1, 0.1, ago=3),  # 2, on the table
                thing("bike", 4, 0.5, 1.7, 0.5, 1.0, count=3),  # 3
                thing("parcel", 1.1, 0.1, 0.1, 0.1, 0.1, ago=9, state="gone"),  # 4
                thing("driver's seat", 12, 0.5, 0.5, 0.5, 1.0),  # 5, in grandma's room
                thing("photo", 2, 1.2, caption="a photo of John's laptop", ago=2),  # 6
                thing("laptop", 1.4, 0.81, 0.3, 0.2, 0.02),  # 7, on the table
                thing("cup", 1.3, 0.85, 0.1, 0.1, 0.1),  # 8, on the table
            ]
        )
        store.set_area("hallway", box=(0, 0, 6, 4), map_id="default")
        store.set_area("grandma's room", box=(10, 0, 14, 4), map_id="default")
        yield Questions(store)


def sentence_of(questions: Questions, text: str) -> str:
    return reply(questions, questions.understand(text, NOW)).sentence


@pytest.mark.parametrize(
    ("asked", "plain", "left_out"),
    [
        # Side sentences.
        ("Is there a cup here? I'm allergic", "is there a cup here", "'I'm allergic' was"),
        ("I want to wash up, where are all the cups?", "where are all the cups", "'I want to wash up' was"),
        ("I was out. Was there a cup yesterday?", "was there a cup yesterday", "'I was out' was"),
        ("where is the cup? It's not on the table", "where is the cup", "'It's not on the table' was"),
        ("where is the bike, it is not here now", "where is the bike", "'it is not here now' was"),
        ("There's a party. How many cups are there?", "how many cups are there", "'There's a party' was"),
        ("My guests are late - where is the bike?", "where is the bike", "'My guests are late' was"),
        ("I have guests, so where is the bike?", "where is the bike", "'I have guests' was"),
        ("I'm Bob. Where is the bike? I am late.", "where is the bike", "'I'm Bob', 'I am late' were"),
        ("I am lost, what is near (3, 1)?", "what is near (3, 1)", "'I am lost' was"),
        ("while I was out, was the bike here?", "was the bike here", "'while I was out' was"),
        # Clauses about persons.
        ("is there a cup that I can use?", "is there a cup", "'that I can use' was"),
        ("is there a cup somewhere that I can use?", "is there a cup somewhere", "'that I can use' was"),
        ("is there a cup I could use after a shower", "is there a cup", "'I could use after a shower' was"),
        ("where is the parcel I dropped off", "where is the parcel", "'I dropped off' was"),
        ("is the parcel I dropped off still there?", "is the parcel still there", "'I dropped off' was"),
        ("how long has the bike I bought been here", "how long has the bike been here", "'I bought' was"),
        ("was the bike here while I was at work?", "was the bike here", "'while I was at work' was"),
        ("where is the table before I clean it", "where is the table", "'before I clean it' was"),
        ("is there a table that I hoover around", "is there a table", "'that I hoover around' was"),
        ("is there a cup you could bring me", "is there a cup", "'you could bring me' was"),
        ("where is the bike because she needs it", "where is the bike", "'because she needs it' was"),
    ],
)  # fmt: skip
def test_the_answer_is_that_without_the_aside(
    questions: Questions, asked: str, plain: str, left_out: str
) -> None:
    assert sentence_of(questions, asked) == f"{sentence_of(questions, plain)} ({left_out} not considered.)"


@pytest.mark.parametrize(
    ("asked", "plain", "owner"),
    [
        ("where is my daughter's bike", "where is my bike", "daughter's"),
        ("where is my little daughter's bike", "where is my bike", "little daughter's"),
        ("where are the kids' cups?", "where are the cups?", "kids'"),
        ("where is grandma's bike", "where is the bike", "grandma's"),
        ("is Ann's laptop on the table", "is the laptop on the table", "Ann's"),
        ("what is on my friend's table", "what is on the table", "friend's"),
    ],
)
def test_owners_are_not_stored(questions: Questions, asked: str, plain: str, owner: str) -> None:
    remark = f"(Owners are not stored: '{owner}' was not considered.)"
    assert sentence_of(questions, asked) == f"{sentence_of(questions, plain)} {remark}"


def test_all_asides_are_named(questions: Questions) -> None:
    found = sentence_of(questions, "I'm late. Where is Ann's bike that I can use?")
    owners = "Owners are not stored: 'Ann's' was not considered."
    end = f"('I'm late' was not considered. {owners} 'that I can use' was not considered.)"
    assert found.endswith(end)
    assert questions.understand("where is Ann's bike", NOW).given()["asides"] == (owners,)


@pytest.mark.parametrize(
    "asked",
    [
        "where is the driver's seat",
        "what is in grandma's room",
        "where is John's laptop",  # the caption of a photo has it
        "where is the cup you saw yesterday",
        "where is the cup that we saw",
        "how many cups do I have",
        "yesterday, was there a cup",
        "where is the cup",
    ],
)
def test_nothing_is_left_out_of_known_words(questions: Questions, asked: str) -> None:
    found = questions.understand(asked, NOW)
    assert found.asides is None
    assert found.problem is None


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("It's red. Where is it?", "don't know what 'it' is"),
        ("I found a cup. Have I seen it before?", "don't know what 'it' is"),
        ("I found a cup. Have I seen this before?", "don't know what 'this' is"),
        ("whose bike is this", "who did something"),
        ("what changed while I was at work?", "needs a time"),
        ("how many cups came while I was at work?", "needs a time"),
        ("where was the cup before it was on the table?", "needs a time"),
        ("is the parcel I dropped off in the hallway?", "'dropped' is an action"),
        ("where is the last cup I bought", "'bought' is an action"),
        ("is there anything that I can use", "'use' is an action"),
        ("where is the cup, the table", "each of several objects"),
        ("I need cups. Where is the cup? How many are there?", "one question at a time"),
        ("Bring me my cup. Where is the table?", "action"),
    ],
)
def test_near_misses_are_refused(questions: Questions, asked: str, reason: str) -> None:
    with pytest.raises(QuestionError, match=reason):
        sentence_of(questions, asked)


@pytest.mark.parametrize(
    "asked",
    ["where is the table's cup", "where is the dog's bike", "where is nobody's bike", "where is Ann's"],
)
def test_other_possessives_are_unknown_objects(questions: Questions, asked: str) -> None:
    assert sentence_of(questions, asked).startswith("I don't know an object called")


@pytest.mark.parametrize(
    ("asked", "plain"),
    [
        ("yo, where is the cup", "where is the cup"),
        ("yo where is the cup", "where is the cup"),
        ("hey robot, where is the cup", "where is the cup"),
        ("ok so where is the cup", "where is the cup"),
        ("well, where is the cup", "where is the cup"),
        ("please note: where is the cup", "where is the cup"),
        ("do you think the cup is on the table?", "is the cup on the table?"),
        ("do you believe that there is a cup on the table", "is there a cup on the table"),
        ("where do you think the cup is", "where is the cup"),
        ("what do you think is on the table", "what is on the table"),
        ("where did I drop my cup", "where did I put my cup"),
        ("where did I dump the bike", "where is the bike"),
        ("where did I lose my cup?", "where is my cup"),
        ("what are the dimensions of the table", "how big is the table"),
        ("which object has the highest number of observations", "which object was seen most often"),
        ("what is the object with the lowest number of sightings", "what is the object seen least often"),
    ],
)
def test_other_wordings(questions: Questions, asked: str, plain: str) -> None:
    assert sentence_of(questions, asked) == sentence_of(questions, plain)


def test_opinions_and_advice_stay(questions: Questions) -> None:
    assert "think" in sentence_of(questions, "what do you think of the table")
    with pytest.raises(QuestionError, match="advice"):
        sentence_of(questions, "do you think I should buy a cup")


def test_the_height_of_an_object_is_its_top(questions: Questions) -> None:
    assert sentence_of(questions, "at what height is the laptop").endswith("0.82 m.")
    assert sentence_of(questions, "how high is the laptop").endswith("0.02 m.")
