"""The grammar of questions: chunks, targets, landmarks, and words that no rule uses."""

from __future__ import annotations

import pytest

from memory.questions.reading.grammar import chunks_of, holds_function_word, parse
from memory.questions.reading.lexicon import PHRASES
from memory.questions.reading.understanding import understand


def kinds_of(text: str, names: tuple[str, ...] = ()) -> list[str]:
    return [chunk.kind for chunk in chunks_of(text, names)]


def test_a_question_is_cut_into_classes_and_noun_phrases() -> None:
    chunks = chunks_of("where did you see the red mug near the sofa")
    assert [chunk.kind for chunk in chunks] == [
        "WHERE", "DO", "PERSON", "SEE", "DET", "NOUN", "NEAR", "DET", "NOUN",
    ]  # fmt: skip
    assert [chunk.text for chunk in chunks if chunk.kind == "NOUN"] == ["red mug", "sofa"]


def test_labels_are_nouns_whatever_their_words_mean() -> None:
    assert kinds_of("where is the stop at line") == ["WHERE", "BE", "DET", "NOUN", "NEAR", "NOUN"]
    assert kinds_of("where is the stop at line", ("stop at line",)) == ["WHERE", "BE", "DET", "NOUN"]
    assert holds_function_word("stop at line")
    assert not holds_function_word("stop sign")


@pytest.mark.parametrize(
    ("text", "question", "target", "landmark"),
    [
        ("where is the letter from the bank", "last_seen", "letter from the bank", None),
        ("where is the bottle of water near the old sofa", "last_seen", "bottle of water", "old sofa"),
        ("the closest chair to the door", "nearest", "chair", "door"),
        ("which cars have left", "search", "cars", None),
        ("what is on the table", "near", None, "table"),
        ("when and where did you see the dog", "last_seen", "dog", None),
    ],
)
def test_target_and_landmark(text: str, question: str, target: str | None, landmark: str | None) -> None:
    found = parse(chunks_of(text))
    marks = [mark.text for mark in found.landmarks]
    assert (found.question, found.target, marks) == (question, target, [landmark] if landmark else [])
    assert found.unparsed == []


@pytest.mark.parametrize("text", ["pick up the mug", "is the cat on the sofa or the chair", "how are you"])
def test_words_that_no_rule_uses_are_reported(text: str) -> None:
    found = parse(chunks_of(text))
    assert found.question is None or found.unparsed or found.has("AND")


def test_words_that_look_like_a_command_are_none() -> None:
    assert understand("last-seen mug", 0).question == "last_seen"
    assert understand("last-many mugs", 0).question == "search"


def test_every_phrase_has_one_class() -> None:
    assert all(phrase and kind.isupper() for phrase, kind in PHRASES.items())
    assert PHRASES[("how", "many")] == "COUNT"
