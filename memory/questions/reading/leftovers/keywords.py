"""Questions where one object is, or whether it is still there, in words that the grammar does not know.

*Where on earth has that cat curled up* asks for one known object, and its place answers it whatever the other
words mean. So these are left out. Words that ask for something else keep the question refused: numbers,
negations, comparisons, properties, actions, and where something comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memory.questions.reading.arguments import time_in
from memory.questions.reading.grammar import PREPOSITIONS, Chunk, chunks_of
from memory.questions.reading.leftovers.asides import Aside, remark_on
from memory.questions.reading.leftovers.modifiers import known_object
from memory.questions.reading.vocabulary import Vocabulary

#: Classes whose words may be left out, or are part of the question that remains.
_FREE = frozenset({
    "ANYONE", "BE", "DET", "DO", "EVER", "FILLER", "FIND", "GO", "HAPPEN", "HAVE", "HERE", "HOW", "KNOW",
    "LAST", "LEFT", "MODAL", "MOVE", "NOUN", "NOW", "OF", "PERSON", "POSITION", "SEE", "SHOW", "STAY",
    "STILL",
    "THERE", "THIS", "TO", "WHAT", "WHEN", "WHERE", *PREPOSITIONS,
})  # fmt: skip
#: Words that ask for something else than a place.
_OTHER = frozenset({
    "made", "make", "makes", "build", "built", "produced", "manufactured", "assembled", "invented",
    "designed",
    "sold", "sell", "ordered", "purchased", "repaired", "fixed", "born", "grown", "supposed", "meant",
    "usually", "normally", "originally", "typically", "generally", "always", "never", "ideally", "belong",
    "belongs", "plugged", "connected", "cost", "worth", "from", "instead", "best", "better", "next", "again",
    "if", "unless", "because", "should", "put back", "go back",
})  # fmt: skip
#: Adverbs of place that the store does not know.
_ADVERBS = ("downstairs", "upstairs", "outside", "outdoors", "indoors")
_FIRST = ("BE", "DO", "HAVE")
_SILENT = ("ALL", "DET", "FILLER", "THIS")


class _Asked(NamedTuple):
    """The kind of a question and the words that the rest of it is."""

    start: str
    end: str


def without_free_words(words: str, store: Vocabulary) -> Aside | None:
    """Return a question about the only known object of free words; ``None`` for other questions."""
    chunks = chunks_of(words, store.names())
    said = {word.strip(",;").lower() for word in words.split()}
    if "? " in words or any(character.isdigit() for character in words.replace(time_in(words) or "", "")):
        return None  # Points and numbers limit an answer, and another question has its own.
    if not {chunk.kind for chunk in chunks} <= _FREE or said & _OTHER:
        return None
    nouns = [place for place, chunk in enumerate(chunks) if chunk.kind == "NOUN"]
    if not nouns or _before(chunks, nouns[0]) in (*PREPOSITIONS, "OF", "TO"):
        return None
    # The first noun is what the question is about. Others only say more about it, behind a preposition.
    first, others = nouns[0], nouns[1:]
    adverbs = [place for place in others if chunks[place].text.lower() in _ADVERBS]
    if any(
        _before(chunks, place) not in (*PREPOSITIONS, "OF", "TO") for place in others if place not in adverbs
    ):
        return None
    found = known_object(chunks, first, store)
    places = [chunks[place].text for place in others if store.is_place(chunks[place].text)]
    asked = _asked(chunks, places)
    if found is None or asked is None or len(places) > 1:
        return None
    unread = [chunks[place].text for place in others if chunks[place].text not in places]
    time = time_in(words)
    question = f"{asked.start} {found.question} {asked.end}".strip()
    remark = " ".join([found.remark, *([remark_on(*unread)] if unread else [])]).strip()
    return Aside(question if time is None else f"{question} {time}", remark)


def _before(chunks: Sequence[Chunk], place: int) -> str:
    """Return the class of the last word before a noun that is no determiner."""
    return next((chunk.kind for chunk in reversed(chunks[:place]) if chunk.kind not in _SILENT), "")


def _asked(chunks: Sequence[Chunk], places: Sequence[str]) -> _Asked | None:
    """Return what a question asks about its object."""
    kinds = {chunk.kind for chunk in chunks}
    first = next(
        (chunk.kind for chunk in chunks if chunk.kind not in ("AND", "FILLER", "MODAL", "PERSON")), ""
    )
    there = f"in the {places[0]}" if places else "there"
    if "STILL" in kinds and first in _FIRST:
        return _Asked("is", f"still {there}")
    if "WHEN" in kinds and "SEE" in kinds and "WHERE" not in kinds:
        return _Asked("when did you last see", f"in the {places[0]}" if places else "")
    if "WHERE" in kinds or first == "FIND":
        return _Asked("where is", "")
    return None
