"""Words that nothing stores: names for pronouns, modifiers of single objects, and free words around them."""

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
                thing("ladder", 1, 1.0, 0.5, 0.2, 2.0, count=4),  # 1, in the hall
                thing(
                    "umbrella", 2, 0.4, 0.1, 0.1, 0.8, ago=2, state="gone", caption="a black umbrella"
                ),  # 2
                thing("book", 12, 0.5, 0.2, 0.1, 0.04, caption="a cook book"),  # 3, in the study
                thing("book", 13, 0.5, 0.2, 0.1, 0.04, ago=1, caption="a travel book"),  # 4
                thing("desk", 12, 0.2, 1.6, 0.8, 0.4, caption="a desk by the window"),  # 5, in the study
                thing("desk", 3, 0.4, 1.6, 0.8, 0.8),  # 6, in the hall
                thing("fire extinguisher", 4, 0.9, 0.2, 0.2, 0.6),  # 7
                thing("tea towel", 5, 0.1, 0.3, 0.3, 0.05, caption="a blue tea towel"),  # 8, on the floor
                thing("tea towel", 14, 1.0, 0.3, 0.3, 0.05, ago=3, caption="a white tea towel"),  # 9
                thing("armchair", 13, 0.5, 0.8, 0.8, 1.0),  # 10
            ]
        )
        store.set_area("hall", box=(0, 0, 6, 4), map_id="default")
        store.set_area("study", box=(10, 0, 16, 4), map_id="default")
        yield Questions(store)


def sentence_of(questions: Questions, text: str) -> str:
    return reply(questions, questions.understand(text, NOW)).sentence


@pytest.mark.parametrize(
    ("asked", "plain"),
    [
        # The name of an object in place of a pronoun, its place for "there", and its time.
        ("I left my umbrella in the hall on Sunday, is it still there?", "is the umbrella still in the hall"),
        ("My umbrella isn't here any more, when did you last see it?", "when did you last see the umbrella"),
        ("I need a ladder. Is there one in the study?", "is there a ladder in the study"),
        ("That ladder I bought, where might it be now?", "where might the ladder be now"),
        (
            "Where's the ladder? Is it still in the hall?",
            "where is the ladder? is the ladder still in the hall",
        ),
        ("The white tea towel is wet. Where's the blue one?", "where is the blue tea towel"),
        ("I was out yesterday. Was the ladder here?", "was the ladder here yesterday"),
        ("I was here two days ago. What is new since then?", "what is new since two days ago"),
        ("Could I borrow a ladder? Where is it?", "where is the ladder"),
        ("I'm looking for the ladder, it was in the study this morning", "I'm looking for the ladder"),
        # Modifiers of a single object, or those that a caption has.
        ("where is my trusty old ladder", "where is my ladder"),
        ("where is the house ladder", "where is the ladder"),
        ("is my beloved ladder taller than the desk in the hall", "is the ladder taller than #6"),
        ("where is that cookery book", "where is #3"),
        ("where is the hall desk", "where is the desk in the hall"),
        ("how many hall desks are there", "how many desks in the hall are there"),
        ("where is the ladder unit", "where is the ladder"),
        # Descriptions by a place.
        ("is the desk in the hall bigger than the one in the study", "is #6 bigger than #5"),
        ("how tall is the ladder on the hall wall", "how tall is the ladder in the hall"),
        ("what is on the desk by the window", "what is on #5"),
        ("how many books are there, the cook book included", "how many books are there"),
        # Free words.
        ("where on earth has that ladder wandered off to", "where is the ladder"),
        ("where did that ladder end up near the greenhouse", "where is the ladder"),
        ("what is lying on the hall floor", "what is lower than 10 cm in the hall"),
        ("what is in the hall that I have to clean", "what is in the hall"),
        ("what is in the study now that the umbrella is gone", "what is in the study"),
    ],
)
def test_the_answer_is_that_of_the_plain_question(questions: Questions, asked: str, plain: str) -> None:
    assert sentence_of(questions, asked).startswith(sentence_of(questions, plain).removesuffix(")"))


@pytest.mark.parametrize(
    ("asked", "remark"),
    [
        ("where is my trusty old ladder", "'trusty', 'old' are not stored and not considered."),
        ("where is that cookery book", "'cookery book' was read as 'book a cook book' (memory 3)."),
        ("where is the hall desk", "'hall desk' was read as 'desk in the hall'."),
        ("I had the ladder. Where is it?", "'it' was read as 'the ladder'."),
        ("where is the ladder for my sister", "'sister' was not considered."),
    ],
)
def test_the_answer_names_what_was_left_out(questions: Questions, asked: str, remark: str) -> None:
    assert remark in sentence_of(questions, asked)


@pytest.mark.parametrize(
    "asked",
    [
        # These words could choose another object, or none.
        "where is the red ladder",
        "where is the broken ladder",
        "where is the other ladder",
        "where is the second ladder",
        "where is the desk's ladder",
        "where is the umbrella ladder",
        "is there a rope ladder",
        "where is the dusty book",
        "where is the ladder hook",
        "where are the ladder and the unicorn",
    ],
)
def test_words_that_may_choose_are_kept(questions: Questions, asked: str) -> None:
    assert "I don't know an object called" in sentence_of(questions, asked)


@pytest.mark.parametrize(
    "asked",
    [
        "where was the ladder made",
        "where does the ladder belong",
        "where is the ladder usually kept",
        "where do visitors sit",
        "is the ladder new",
        "are the desks together",
        "where is the thing for the ladder",
        "I found a ladder. Have I seen it before?",
        "My mother left her ladder here. Where is she?",
        "I mean the white one. Where is the tea towel?",
        "which desk does not have a ladder",
        "what is on the desk in the attic",
        "what changed while I was out?",
    ],
)
def test_other_questions_stay_refused(questions: Questions, asked: str) -> None:
    try:
        found = reply(questions, questions.understand(asked, NOW))
    except QuestionError:
        return
    assert found.sentence.startswith(("I don't know", "No memor")), found.sentence


def test_a_word_may_be_the_end_of_several_labels(questions: Questions) -> None:
    assert sentence_of(questions, "how many extinguishers are there").startswith(
        "1 memory of fire extinguisher"
    )
    assert sentence_of(questions, "where are the towels").startswith("2 memories of tea towel")


@pytest.mark.parametrize(
    ("asked", "start"),
    [
        ("are there at least two books", "Yes: "),
        ("are there three books", "No: "),
        ("do we have only two books", "Yes: "),
        ("are there fewer than 2 ladders in the hall", "Yes: "),
        ("is the ladder the tallest thing", "Yes: Tallest"),
        ("is the armchair the highest thing here", "No: Highest"),
        ("are the ladder and the armchair the same height", "No: "),
        ("is the cook book as big as the travel book", "Yes: "),
    ],
)
def test_yes_or_no(questions: Questions, asked: str, start: str) -> None:
    assert sentence_of(questions, asked).startswith(start)


def test_an_upright_board_is_as_wide_as_its_longer_side(questions: Questions) -> None:
    questions.store.add([thing("whiteboard", 1, 1.5, 1.8, 0.1, 1.2)])
    assert sentence_of(questions, "how wide is the whiteboard").endswith("1.80 m.")
    assert sentence_of(questions, "how high is the whiteboard mounted").endswith("2.10 m.")
