"""Other wordings: polite words, names of rooms, captions, surfaces, units, absence and the emptiest room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MemoryStore
from memory.questions import Questions
from memory.questions.errors import QuestionError
from memory.questions.reading.rewording import reworded
from memory.questions.replying import reply
from memory.questions.translation import parse_query

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
                thing("table", 1, 0.4, 1.6, 0.8, 0.8, caption="a wooden table"),  # 1
                thing("cup", 1.2, 0.85, 0.1, 0.1, 0.1, caption="a grey cup", ago=3),  # 2, on the table
                thing("sofa", 4, 0.4, 0.8, 2.0, 0.8, caption="an old grey sofa"),  # 3
                thing("ball", 1.1, 0.1, 0.1, 0.1, 0.1, ago=9, state="gone"),  # 4
                thing("lamp", 12, 1.0, 0.2, 0.2, 0.5, ago=1),  # 5, in the living room
                thing("", 2, 0.0, kind="place", ago=2),  # 6, in the hallway
                thing("", 12, 0.0, kind="place"),  # 7, in the living room
            ]
        )
        store.set_area("hallway", box=(0, 0, 6, 4), map_id="default")
        store.set_area("living room", box=(10, 0, 14, 4), map_id="default")
        yield Questions(store)


def ask(questions: Questions, text: str) -> Any:
    return reply(questions, questions.understand(text, NOW))


def ids(answer: Any) -> list[int]:
    memories = answer.hits if hasattr(answer, "hits") else answer.memories
    return sorted(getattr(each, "memory", each).id for each in memories)


@pytest.mark.parametrize(
    ("polite", "plain"),
    [
        ("excuse me, could you please tell me where the cup is", "where the cup is"),
        ("sorry to disturb you, but where is the cup", "where is the cup"),
        ("excuse me where is the cup", "where is the cup"),
        ("sorry to bother you, quick question: where is the cup", "where is the cup"),
        ("hi robot, where is the cup, dear", "where is the cup"),
        ("where is the cup? thanks a lot", "where is the cup"),
        ("by any chance, have you seen the cup", "have you seen the cup"),
        ("any chance you have seen my cup", "you have seen my cup"),
        ("I was wondering if you could tell me when you last saw the cup", "when you last saw the cup"),
        ("I'd like to know how many cups there are", "how many cups there are"),
        ("would you mind telling me where the cup is", "where the cup is"),
        ("can you tell me if the cup is on the table", "is the cup on the table"),
        ("do you happen to know whether there is a cup in the hall", "is there a cup in the hall"),
        ("what is left in the garage", "what is in the garage"),
        ("which chairs are still left on the balcony", "which chairs are still on the balcony"),
        ("what is still on the table", "what is on the table"),
        ("what has left the garage", "what has gone from the garage"),
        ("what is left of the sofa", "what is left of the sofa"),
        ("any cups outside the kitchen", "any cups not in the kitchen"),
        ("please give me the dimensions of the sofa", "how big is the sofa"),
        # Words that name something stay.
        ("where is the dear", "where is the dear"),
        ("where is my dear friend", "where is my dear friend"),
        ("where is my friend", "where is my friend"),
        ("excuse the cup", "excuse the cup"),
        ("thanks, that was helpful", "thanks, that was helpful"),
        ("if the cup is there where is the ball", "if the cup is there where is the ball"),
        ("let me know when you see the cup", "let me know when you see the cup"),
        ("tell me about the hallway", "tell me about the hallway"),
        ("thanks", "thanks"),
    ],
)
def test_polite_words(polite: str, plain: str) -> None:
    assert reworded(polite) == plain


@pytest.mark.parametrize("text", ["sorry, where is my unicorn, dear", "hi, where is the red cup please"])
def test_polite_words_hide_no_unknown_object(questions: Questions, text: str) -> None:
    assert ask(questions, text).sentence.startswith("I don't know an object called")


def test_rooms_have_other_names(questions: Questions) -> None:
    for text in ("which things are in the lounge", "what is in the sitting room", "what is in the lounge"):
        found = ask(questions, text)
        assert 5 in ids(found.answer)
        assert "read as 'living room'.)" in found.sentence
    assert "('hall' read as 'hallway'.)" in ask(questions, "how many cups are in the hall").sentence
    assert ids(ask(questions, "what is the biggest thing in the hall").answer) == [3]
    with pytest.raises(QuestionError, match="cellar"):
        ask(questions, "what is in the cellar")


def test_an_area_of_that_name_counts_first(questions: Questions) -> None:
    questions.store.set_area("hall", box=(20, 0, 24, 4), map_id="default")
    found = ask(questions, "how many cups are in the hall")
    assert found.answer.memories == 0
    assert "read as" not in found.sentence


@pytest.mark.parametrize(
    ("text", "winner"),
    [
        ("which room has the fewest objects", "living room"),
        ("which room has the most things", "hallway"),
        ("which room is the emptiest", "living room"),
        ("what is the emptiest room", "living room"),
        ("which room is the fullest", "hallway"),
        ("which room has the least stuff in it", "living room"),
    ],
)
def test_rooms_by_their_objects(questions: Questions, text: str, winner: str) -> None:
    found = ask(questions, text)
    assert found.answer.winner == winner
    assert "hallway 3 and living room 1" in found.sentence  # Places and what left do not count.


@pytest.mark.parametrize("text", ["which table is the emptiest", "which room has the most"])
def test_other_rooms_are_refused(questions: Questions, text: str) -> None:
    with pytest.raises(QuestionError):
        ask(questions, text)
    assert "I don't know an object" in ask(questions, "which room has the most unicorns").sentence


@pytest.mark.parametrize(
    "text",
    [
        "which object has gone unseen for the longest time",
        "what have you not seen for the longest",
        "what haven't you seen in the longest time",
        "what did you see the longest time ago",
    ],
)
def test_what_was_not_seen_for_the_longest_time(questions: Questions, text: str) -> None:
    found = ask(questions, text)
    assert ids(found.answer) == [4]
    assert "Of those that did not leave: cup (memory 2)" in found.sentence


def test_rooms_that_were_not_visited_for_the_longest_time(questions: Questions) -> None:
    for text in (
        "which room have you not visited for the longest time",
        "which room haven't you been to in the longest time",
        "which room have you not been in for the longest time",
        "which room has been unvisited for the longest time",
    ):
        assert ask(questions, text).answer.first[0].room == "hallway"


@pytest.mark.parametrize(
    "text",
    [
        "which room have you not visited today",
        "which object is unseen",
        "what has not moved for the longest time",
        "what has not been in the hallway for the longest time",
    ],
)
def test_absence_without_an_order_is_refused(questions: Questions, text: str) -> None:
    with pytest.raises(QuestionError):
        ask(questions, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what surface is the cup resting on", [1]),
        ("what is the cup standing on", [1]),
        ("what exactly is the cup lying on", [1]),
        ("which table is the cup on", [1]),
        ("which piece of furniture is the cup on", [1]),
        ("what is the table under", [2]),
        ("what is the sofa on", []),
    ],
)
def test_prepositions_at_the_end(questions: Questions, text: str, expected: list[int]) -> None:
    assert ids(ask(questions, text).answer) == expected


@pytest.mark.parametrize(
    "text", ["what surface is the cup not on", "what surface is the unicorn on", "what can I sit on"]
)
def test_other_prepositions_at_the_end_are_refused(questions: Questions, text: str) -> None:
    with pytest.raises(QuestionError):
        ask(questions, text)


def test_carrying_is_a_relation_of_structured_queries(questions: Questions) -> None:
    parsed = parse_query({"question": "related", "relation": "carrying", "beside": "cup"})
    assert ids(reply(questions, parsed).answer) == [1]


@pytest.mark.parametrize(
    "text",
    [
        "anything grey",
        "grey things",
        "any objects described as grey",
        "which objects are grey",
        "is anything grey",
        "show me everything grey",
        "how many grey things are there",
    ],
)
def test_captions_describe(questions: Questions, text: str) -> None:
    found = ask(questions, text)
    assert "'grey' is a description in captions" in found.sentence
    assert found.sentence.startswith("2 memories of grey")


def test_descriptions_are_searched_as_a_whole(questions: Questions) -> None:
    assert ids(ask(questions, "anything described as old").answer) == [3]
    assert ids(ask(questions, "show me things that are described as old").answer) == [3]
    assert ids(ask(questions, "do you have anything grey").answer) == [2, 3]
    assert ask(questions, "anything purple").sentence.startswith("No caption has the words 'purple'.")
    for text in ("any cup things", "anything heavy", "anything described as old and grey"):
        with pytest.raises(QuestionError):
            ask(questions, text)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("how wide is the sofa, in metres", "That is 2.0 metres."),
        ("how long is the sofa, in feet", "That is 6.6 feet."),
        ("how tall is the table in cm", "That is 80.0 cm."),
        ("how many centimetres wide is the sofa", "That is 200.0 centimetres."),
        ("how big is the sofa in cm", "That is 80.0 x 200.0 x 80.0 cm."),
    ],
)
def test_sizes_in_units(questions: Questions, text: str, end: str) -> None:
    assert ask(questions, text).sentence.endswith(end)


def test_a_unit_needs_a_length(questions: Questions) -> None:
    with pytest.raises(QuestionError, match="fits only a distance or a size"):
        ask(questions, "where is the sofa in feet")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("show me all furniture", [1, 3]),
        ("list all furniture in the hallway", [1, 3]),
        ("which seats are in the hallway", [3]),
        ("what crockery is in the hallway", [2]),
    ],
)
def test_a_category_means_its_labels(questions: Questions, text: str, expected: list[int]) -> None:
    answer = ask(questions, text).answer
    assert ids(answer) == expected
    assert "read for" in str(answer)


def test_a_landmark_is_not_near_itself(questions: Questions) -> None:
    near = ask(questions, "what is within 3.5 m of the table").answer
    assert 1 not in ids(near)
    assert near.total == len(near.hits) > 1
    # A point has no object of its own.
    assert 1 in ids(ask(questions, "what is within 3.5 m of (1, 1)").answer)


def test_the_very_first_time_is_the_first_time(questions: Questions) -> None:
    first = ask(questions, "what did you see for the first time today").answer
    assert ids(ask(questions, "what did you see for the very first time today").answer) == ids(first)


def test_a_known_word_is_no_misspelling(questions: Questions) -> None:
    assert "an object called 'tablets'" in ask(questions, "where are my tablets").sentence
    assert "table (read for 'taple')" in ask(questions, "where is the taple?").sentence


@pytest.mark.parametrize(
    ("asked", "plain"),
    [
        ("The table is more wide than the sofa, yes or no?", "is the table wider than the sofa"),
        ("The sofa is longer than the table", "is the sofa longer than the table"),
        ("does the lamp hang higher than the table", "is the lamp higher than the table"),
        ("Which one's taller, the table or the lamp?", "which is taller, the table or the lamp"),
        (
            "Which did you see more recently, sir, the lamp or the cup?",
            "which was seen more recently, the lamp or the cup",
        ),
        (
            "What happened first: the ball rolling in or the cup turning up?",
            "which was seen first, the ball or the cup",
        ),
        (
            "is the lamp further away from the sofa than the cup is",
            "is the lamp farther from the sofa than the cup",
        ),
        ("what left the hallway", "what has gone from the hallway"),
        (
            "Which objects were once in the hallway but are no longer there?",
            "what has gone from the hallway",
        ),
        ("did the sofa stay in the hallway", "is the sofa still in the hallway"),
        ("of the things kept in the hallway, which ones are still there", "what is still in the hallway"),
        ("There used to be a ball in the hallway. Is it still there?", "is the ball still in the hallway"),
        ("count objects with label cup", "how many cup"),
        ("what time did the sofa come in", "when did the sofa arrive"),
        ("how many cups are sat in the hallway", "how many cups are in the hallway"),
        ("Confirm for me whether the sofa has been taken.", "has the sofa been taken"),
        ("where is the cup, sweetheart", "where is the cup"),
        ("give me a quick rundown of the hallway", "what is in the hallway"),
        ("how many times has the unit observed the cup", "how many times have you observed the cup"),
        ("when was the lamp last picked up by your sensors", "when was the lamp last seen"),
        ("Is the ball from yesterday still in the hallway?", "is the ball still in the hallway"),
        ("have we actually got a lamp", "have we a lamp"),
        ("list every object supported by the table", "list every object on the table"),
    ],
)
def test_other_words_ask_the_same(questions: Questions, asked: str, plain: str) -> None:
    answer, expected = ask(questions, asked), ask(questions, plain)
    assert type(answer.answer) is type(expected.answer)
    remarks = r" \('.*' was not considered\.\)"
    assert re.sub(remarks, "", answer.sentence) == re.sub(remarks, "", expected.sentence)


def test_a_detail_of_a_caption_is_no_landmark(questions: Questions) -> None:
    memory = thing("broom", 2, 0.6, 0.1, 0.1, 1.2, caption="a broom against the wall")
    questions.store.add([memory])
    try:
        sentence = ask(questions, "where is the lamp on the wall").sentence
    except QuestionError as error:
        sentence = str(error)
    assert "wall" in sentence
    assert "broom" not in sentence


def test_a_time_after_an_event_is_not_left_out(questions: Questions) -> None:
    with pytest.raises(QuestionError, match="'after' needs a time"):
        ask(questions, "Shortly after the lamp fell, what appeared in the hallway?")
