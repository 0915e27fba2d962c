"""What users of a robot ask over a small store: the right answer, or a refusal that names the part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory import Memory, MemoryStore, Query
from memory.exchange.times import parse_time
from memory.questions import Questions
from memory.questions.errors import QuestionError
from memory.questions.replying import reply

NOW = parse_time("2026-01-10T12:00:00Z")


def seen(id: int, at: str, label: str, place: tuple[float, float] | None, **values: Any) -> Memory:
    position = None if place is None else (*place, 0.0)
    return Memory(time_ns=parse_time(f"2026-01-{at}:00Z"), label=label, position=position, **values)


ROWS = [
    seen(1, "09T09:00", "Car", (10.0, 0.0), caption="a red car by the shop"),
    seen(2, "10T09:00", "Car", (30.0, 5.0), caption="a blue car"),
    seen(3, "10T10:00", "Car", (80.0, 5.0), caption="a green car", state="gone"),
    seen(4, "10T08:00", "Bakery", (12.0, 2.0), kind="place", caption="the bakery"),
    seen(5, "10T08:00", "Kitchen", (52.0, 50.0), kind="place"),
    seen(6, "10T08:10", "Mug", (50.0, 50.0), caption="a red mug"),
    seen(7, "10T08:20", "Truck", (20.0, 20.0), state="gone"),
    seen(8, "10T08:20", "door", (40.0, 22.0)),
    seen(9, "10T08:30", "door", (60.0, 22.0)),
    seen(10, "10T08:20", "umbrella", (41.0, 22.0)),
    seen(11, "10T08:20", "letter", None, kind="note"),
    seen(12, "10T08:20", "自転車", (25.0, 22.0)),
    seen(13, "10T08:20", "машина", (26.0, 22.0)),
    seen(14, "10T08:20", "سيارة", (27.0, 22.0)),
    seen(15, "10T08:20", "☕", (28.0, 22.0)),
    seen(16, "10T08:20", "café", (29.0, 22.0)),
    seen(17, "10T08:20", "चाय", (31.0, 22.0)),
]
#: What is asked, the memory that the answer is about, and words of the sentence.
ANSWERED: list[tuple[str, int, str]] = [
    ("where is the car near the bakery?", 1, "within 5 m of Bakery (memory 4)"),
    ("where is the car next to the bakery?", 1, "(10.0, 0.0)"),
    ("where is the blue car?", 2, "(30.0, 5.0)"),
    ("where is the car at (10, 0)?", 1, "(10.0, 0.0)"),
    ("where is the car close to 30 5", 2, "(30.0, 5.0)"),
    ("where is the car beside memory 4?", 1, "(10.0, 0.0)"),
    ("where is the car that is parked near the bakery?", 1, "(10.0, 0.0)"),
    ("where is the mug in the kitchen?", 6, "within 5 m of Kitchen"),
    ("where is the umbrella by the door?", 10, "within 5 m of door (memory 8)"),
    ("where is the truck?", 7, "It is gone now"),
    ("where is the letter?", 11, "at an unknown place"),
    ("go to the car near the bakery", 1, "drive to (11.00, 0.00)"),
    ("drive to the car near (30, 5)", 2, "drive to (31.00, 5.00)"),
    ("take me to the mug in the kitchen", 6, "drive to (51.00, 50.00)"),
    ("go to the umbrella by the door", 10, "drive to (42.00, 22.00)"),
    ("go to the car", 2, "drive to (31.00, 5.00)"),
    ("go to the bakry", 4, "read for 'bakry'"),
    ("is the mug still there?", 6, "may still be there: its place has not been in view"),
    ("is the truck still there?", 7, "is gone: it was marked as gone"),
    ("is the mug in the kitchen?", 6, "Mug (memory 6)"),
    ("where is the 自転車?", 12, "(25.0, 22.0)"),
    ("where is 自転車？", 12, "(25.0, 22.0)"),
    ("go to the машина", 13, "drive to (27.00, 22.00)"),
    ("where is \u2067سيارة\u2069؟", 14, "(27.0, 22.0)"),
    ("go to ☕", 15, "drive to (29.00, 22.00)"),
    ("where is the \u2615\ufe0f?", 15, "(28.0, 22.0)"),
    ("where is the cafe\u0301?", 16, "(29.0, 22.0)"),
    ("where is the CAFE?", 16, "(29.0, 22.0)"),
    ("where is चाय?", 17, "(31.0, 22.0)"),
]
#: What is asked, and words of the sentence; of numbers and lists.
TOLD: list[tuple[str, str]] = [
    ("how many cars are there now?", "2 present and 1 gone, of 3 memories of Car"),
    ("how many cars are gone?", "2 present and 1 gone, of 3 memories of Car"),
    ("how many cars are near the bakery?", "1 memory of Car"),
    ("how many ☕ are there?", "1 memory of ☕"),
    ("is there a mug in the kitchen?", "1 memory of Mug"),
    ("what is near the ☕?", "5 memories within 5 m of (28.0, 22.0)"),
    ("where is the car closest to the bakery?", "Car (memory 1) at (10.0, 0.0), 2.83 m"),
    ("where was the car yesterday?", "1 memory of Car between 2026-01-09 00:00:00 UTC"),
    ("☕", "☕ (memory 15)"),
    ("are there two cars?", "2 present and 1 gone, of 3 memories of Car"),
    ("are there no cars near the bakery?", "1 memory of Car"),
    ("where are the cars?", "2 memories of Car"),
    ("which car did you see last?", "Latest seen: Car (memory 3)"),
    ("how long ago did you see the truck?", "That is 3.7 hours ago."),
    ("how far is the truck from (20, 30) in feet?", "That is 32.8 feet."),
    ("are there any mugs missing?", "No memories of 'Mug' that left"),
    ("which cars left since yesterday?", "1 memory of Car that left since 2026-01-09"),
    ("which mugs left since yesterday?", "No memories of Mug that left since 2026-01-09"),
    ("where is the shop?", "The caption of Car (memory 1) mentions it: 'a red car by the shop'"),
    ("where is the umbrella near the shop?", "No memory of 'umbrella' within 5 m of (10.0, 0.0)"),
    # Nothing is better than another thing.
    ("where is the car in the kitchen?", "No memory of 'Car' within 5 m"),
    ("where is the car near the zoo?", "called 'zoo'"),
    ("where is the car at the corner?", "called 'corner'"),
    ("where is the yellow car?", "called 'yellow car'"),
    ("go to the yellow car", "called 'yellow car'"),
    ("go to the car near the kitchen", "No memory of 'Car' within 5 m"),
    ("go to the truck", "Cannot drive to Truck: Truck (memory 7) is gone"),
    ("go to the letter", "the position of letter (memory 11) is not known"),
    ("where is 🐶?", "called '🐶'"),
    ("where is the 汽車?", "called '汽車'"),
    ("where is the चाचा?", "called 'चाचा'"),
]
#: What is asked, and words of the refusal.
REFUSED: list[tuple[str, str]] = [
    ("what is on my left?", "'on my left' depends on"),
    ("what is behind me?", "'behind me' depends on"),
    ("what is near you?", "'near you' depends on"),
    ("where am I?", "'where am I' depends on"),
    ("where is the car left of the bakery?", "'left of' depends on"),
    ("where is the car behind the bakery?", "'behind' depends on"),
    ("where is the car in front of the bakery?", "'in front of' depends on"),
    ("what is on the mug?", "size of Mug"),
    ("go to the car opposite the bakery", "'opposite' is no relation that I compute"),
    ("what is under the mug?", "size of Mug"),
    ("where is the car not near the bakery?", "only as a condition on a list"),
    ("where is the car without a wheel?", "only as a condition on a list"),
    ("go to the kitchen and back", "about each of several objects"),
    ("how far is the car?", "A distance needs two objects"),
    ("where will the car be tomorrow?", "only past observations"),
    ("go to (3, 4)", "don't understand 'go to (3, 4)'"),
    ("pick up the mug", "don't understand 'pick up the mug'"),
    ("turn left", "'turn' is an action"),
    ("forget the mug", "'forget' is an action"),
    ("which cars were moved yesterday?", "I count what was seen in a time, not what left in it"),
    ("what are you looking at?", "'looking at' is an action"),
    ("wo ist das Auto", "only understand questions in English"),
    ("¿dónde están las llaves?", "only understand questions in English"),
    ("Qu'est-ce qui a changé depuis hier ?", "only understand questions in English"),
    ("is the door open?", "Whether something is 'open' is not stored"),
    ("where was the car before it was at the bakery?", "'before' needs a time, not an event"),
    ("are all cars and trucks red?", "called 'trucks red'"),
    ("is the mug in the kitchen or under it?", "I don't know what 'it' is"),
    ("did you see me?", "I don't know what 'me' is"),
    ("how many kinds of cars are there?", "Kinds of Car are not stored"),
    ("what is in the room where the mug is?", "Mug (memory 6) is in no area that is set"),
    ("how many cars left and how many came?", "one question at a time"),
    ("how many rooms are there?", "No areas are set"),
    ("how many doors does the frobnicator have", "I don't understand 'frobnicator'"),
    ("is the mug there in feet?", "fits only a distance"),
    ("how many legs does the mug have?", "'where is the mug?'"),
    ("where is the closest car?", "'where is the nearest car to (3, 1)?'"),
    ("go to the nearest car", "needs a point or an object"),
    ("go to the car you saw yesterday", "'pose_to' cannot be limited by time"),
    ("when did you first see the mug yesterday?", "'first_seen' cannot be limited by time"),
    ("what is near the letter?", "position of letter (memory 11) is not known"),
    ("what colour is the car?", "Colour is not stored; I can answer where, when and how many."),
    ("why is the sky blue?", "Ask for example: 'where is the car?'"),
    ("who moved the mug?", "does not know who did something"),
    ("where is it?", "I don't know what 'it' is"),
    ("Help!", "I answer questions about past observations. Ask for example: 'where is the car?'"),
    ("what can I ask you?", "I answer questions about past observations."),
]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Questions]:
    with MemoryStore.open(tmp_path_factory.mktemp("asked") / "store", dim=2) as store:
        store.add(ROWS)
        yield Questions(store)


@pytest.mark.parametrize("words", ["memory 6", "#6", "show memory 6", "what is memory 6?"])
def test_an_id_means_the_memory_itself(ask: Questions, words: str) -> None:
    found = reply(ask, ask.understand(words, NOW))
    assert found.sentence.startswith("Mug (memory 6) was last seen")


@pytest.mark.parametrize(("question", "id", "words"), ANSWERED)
def test_answered_about_the_right_thing(ask: Questions, question: str, id: int, words: str) -> None:
    found = reply(ask, ask.understand(question, NOW))
    assert found.answer.memory is not None  # type: ignore[attr-defined]
    assert found.answer.memory.id == id  # type: ignore[attr-defined]
    assert words in found.sentence


@pytest.mark.parametrize(("question", "words"), TOLD)
def test_told_what_is_known(ask: Questions, question: str, words: str) -> None:
    assert words in reply(ask, ask.understand(question, NOW)).sentence


@pytest.mark.parametrize(("question", "words"), REFUSED)
def test_refused_with_the_part_that_is_not_understood(ask: Questions, question: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:  # The words are compared below.
        reply(ask, ask.understand(question, NOW))
    assert words in str(caught.value)


def test_a_part_that_a_question_does_not_use_is_never_left_out(ask: Questions) -> None:
    for question, part in (
        ("have I been here before yesterday?", "between"),
        ("have I seen this before near the bakery?", "beside"),
        ("show situations similar to memory 6 since yesterday", "since"),
    ):
        with pytest.raises(QuestionError) as caught:
            reply(ask, ask.understand(question, NOW))
        assert caught.value.part == part


def test_a_number_in_a_caption_is_no_number_of_an_object(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        store.add(
            [
                Memory(time_ns=NOW, label="Car", caption="car moved 5 m in 3 s", kind="event"),
                Memory(time_ns=NOW, kind="place", caption="place with 5 cars in view"),
                Memory(time_ns=NOW, label="Bed", caption="bed 3 by the window"),
            ]
        )
        ask = Questions(store)
        for words in ("where is car 5?", "is car 5 still there?", "where did you see 5 cars?"):
            assert reply(ask, ask.understand(words, NOW)).sentence.startswith("I don't know an object called")
        assert "'where is memory 9?'" in reply(ask, ask.understand("where is car 9?", NOW)).sentence
        for words, id in (("where is bed 3?", 3), ("where is the place with 5 cars?", 2)):
            assert f"(memory {id})" in reply(ask, ask.understand(words, NOW)).sentence


def test_labels_of_other_languages_stay_names(tmp_path: Path) -> None:
    labels = ("Schlüssel", "das Boot", "ключ")
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        store.add([Memory(time_ns=NOW, label=label, position=(0, 0, 0)) for label in labels])
        ask = Questions(store)
        for id, label in enumerate(labels, start=1):
            for words in (label, f"{label}?", f"where is the {label}?"):
                assert reply(ask, ask.understand(words, NOW)).sentence.startswith(("1 memory of ", label))
                assert f"{label} (memory {id})" in reply(ask, ask.understand(words, NOW)).sentence
        for words, foreign in (("xe ở đâu?", True), ("鍵はどこですか", True), ("blue backpack", False)):
            sentence = reply(ask, ask.understand(words, NOW)).sentence
            assert ("only understand questions in English" in sentence) == foreign


@pytest.mark.parametrize(
    ("label", "other"), [("☕", "🐶"), ("自転車", "自動車"), ("чай", "чаи"), ("👩‍🚒", "👩‍🚀")]
)
def test_filters_tell_labels_of_all_scripts_apart(tmp_path: Path, label: str, other: str) -> None:
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        store.add([Memory(time_ns=1, label=label, position=(1.0, 0.0, 0.0))])
        assert [hit.memory.label for hit in store.query(Query(labels=[label]))] == [label]
        assert store.query(Query(labels=[other])) == []
        questions = Questions(store)
        assert questions.how_many(label).memories == 1
        assert questions.how_many(other).memories == 0
        assert questions.pose_to(other).memory is None


def test_labels_that_only_unicode_writes_differently_are_one(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        store.add([Memory(time_ns=at, label=label) for at, label in enumerate(("café", "cafe\u0301"))])
        questions = Questions(store)
        for label in ("café", "cafe\u0301", "Cafe", "cafés"):
            assert questions.how_many(label).memories == 2


def test_in_a_room_means_half_the_way_to_the_next_at_most(tmp_path: Path) -> None:
    rooms = [("kitchen", 0.0), ("hallway", 6.0)]
    rows = [Memory(time_ns=1, label=label, kind="place", position=(x, 0.0, 0.0)) for label, x in rooms]
    mugs = [Memory(time_ns=1, label="mug", position=(x, 0.0, 0.0)) for x in (1.0, 4.0)]
    with MemoryStore.open(tmp_path / "store", dim=2) as store:
        store.add([*rows, *mugs])
        questions = Questions(store)

        def counted(question: str) -> int:
            return reply(questions, questions.understand(question, NOW)).answer.memories  # type: ignore[attr-defined, no-any-return]

        assert counted("how many mugs are in the kitchen?") == 1
        assert counted("how many mugs are near the kitchen?") == 2
        assert counted("how many mugs are within 4.5 m of the kitchen?") == 2


def test_braces_are_no_syntax(ask: Questions) -> None:
    with pytest.raises(QuestionError, match=r"how are \{x\} \{\}"):
        reply(ask, ask.understand("how are {x} {}", NOW))


def test_a_place_is_known_by_its_pose_however_it_looks(tmp_path: Path) -> None:
    day = 86_400 * 10**9
    looks = np.eye(4, dtype=np.float32)

    def place(at: int, x: float, look: int | None, map_id: str = "default") -> Memory:
        vectors = {} if look is None else {"scene-encoder": looks[look]}
        return Memory(time_ns=at, kind="place", position=(x, 0.0, 0.0), embeddings=vectors, map_id=map_id)

    with MemoryStore.open(tmp_path / "store", dim=4) as store:
        questions = Questions(store)
        store.add([place(0, 0.0, 0), place(1, 200.0, 1)])
        (here,) = store.add([place(day, 0.44, 2)])
        found = questions.seen_before(here)
        assert (found.visits, found.closest_m) == (1, pytest.approx(0.44))
        assert "Yes: place (memory 3) was visited on 1 earlier visit" in str(found)
        assert "0.4 m from here by the poses of map default" in str(found)
        # Without a vector the pose is enough; where another map tells nothing, looks do.
        (bare,) = store.add([place(2 * day, 1.0, None)])
        assert questions.seen_before(bare).visits == 2
        (elsewhere, new) = store.add([place(3 * day, 900.0, 3), place(3 * day, 0.0, 3, "other")])
        assert questions.seen_before(elsewhere).visits == 0
        assert questions.seen_before(new).visits == 0
        (again,) = store.add([place(4 * day, 50.0, 1, "third")])
        assert questions.seen_before(again).visits == 1
