"""First observations within a time, such as *what was new on Monday*.

The question without the words for *first* is a question for a list. A superlative (*what did you see first
today*) means the earliest observation of that time instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.questions.reading.grammar import PREPOSITIONS, Chunk, Parse, is_past, parse

#: Phrases that mean a first observation wherever they stand.
_FIRST_TIME = tuple(
    f"{start}{word} time" for start in ("for the ", "the ", "") for word in ("first", "very first")
)
_AROUND = frozenset({
    "ALL", "ANY", "ANYTHING", "APPEAR", "BE", "COUNT", "DET", "DO", "FILLER", "HAVE", "MODAL", "NOUN", "OF",
    "PERSON", "SEE", "SHOW", "STOP", "THERE", "TO", "WHAT", "WHICH", "WHO", *PREPOSITIONS,
})  # fmt: skip
_LISTS = ("between", "changed_since", "how_many", "last_seen", "near", "search", "summarise")


def first_sightings(chunks: Sequence[Chunk], *, over: bool) -> Parse | None:
    """Return the parts of a question for what was first seen in a time; None for another question.

    Args:
        chunks: of the question without its time.
        over: True if the time is over. *What is new today* is about what is still there.
    """
    marks = [place for place in range(len(chunks)) if _is_first(chunks, place)]
    appears = any(chunk.kind == "APPEAR" for chunk in chunks)
    asks = bool(chunks) and chunks[0].kind in ("SHOW", "WHAT", "WHICH", "WHO")
    asks = asks or any(chunk.kind == "ANYTHING" for chunk in chunks)
    if len(marks) > 1 or not (marks or (appears and asks)):
        return None
    if marks and chunks[marks[0]].kind != "FIRST" and not (over or appears or is_past(chunks)):
        return None
    rest = [chunk for place, chunk in enumerate(chunks) if place not in marks]
    if any(chunk.kind not in _AROUND for chunk in rest):
        return None
    seen = [Chunk("SEE", each.text) if each.kind == "APPEAR" else each for each in rest]
    # The words "to the door" need the verb in front of them.
    for words in (rest, seen):
        found = parse(words)
        if found.question in _LISTS and not found.unparsed:
            found.question = "new_between"
            return found
    return None


def _is_first(chunks: Sequence[Chunk], place: int) -> bool:
    """Return True for *new*, *for the first time*, and *first* before a verb of seeing or appearing."""
    chunk = chunks[place]
    if chunk.kind in ("CHANGE", "NOUN"):
        return chunk.text.lower() == "new"
    if chunk.kind != "FIRST":
        return False
    after = next((each.kind for each in chunks[place + 1 :] if each.kind != "FILLER"), "")
    return chunk.text.lower() in _FIRST_TIME or after in ("APPEAR", "SEE")
