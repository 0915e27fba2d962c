"""Rules that rewrite chunks of a question before it is parsed.

*What is the laptop standing on* becomes *what is carrying the laptop*. *What have you not seen for the
longest time* becomes *what have you seen least recently*, and *anything grey* becomes *grey*.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from memory.questions.reading.grammar import PREPOSITIONS, Chunk, parse
from memory.questions.reading.lexicon import THINGS

#: Prepositions at the end of a question, and those of the opposite relation.
_OPPOSITES = {"ON": "CARRYING", "NEXT": "NEXT", "UNDER": "ABOVE", "ABOVE": "UNDER", "NEAR": "NEAR"}
#: Words for what an object stands on, whatever it is.
_SURFACES = ("surface", "surfaces")
#: Classes of *do you have* and *did you see*, around an object and a place.
_HAVING = frozenset({"DET", "DO", "FILLER", "HAVE", "KNOW", "NOUN", "PERSON", "SEE", *PREPOSITIONS})
_LONGEST = (
    "for the longest time", "the longest time", "longest time", "for the longest", "in the longest time",
    "longest",
)  # fmt: skip
#: Words for objects beside which another word describes them.
_OBJECTS = (*THINGS, "anything", "something", "everything", "stuff")


def turned(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return *what (table) is the laptop (standing) on* as *what (table) is carrying the laptop*."""
    said = [chunk for chunk in chunks if chunk.kind not in ("DET", "FILLER")]
    if len(said) < 4 or said[0].kind not in ("WHAT", "WHICH") or said[-1].kind not in _OPPOSITES:
        return list(chunks)
    wanted = said[1:2] if said[1].kind in ("NOUN", "ANYTHING") else []
    be, *rest = said[1 + len(wanted) : -1]
    if be.kind != "BE" or not rest or rest[0].kind != "NOUN" or any(each.kind != "STAY" for each in rest[1:]):
        return list(chunks)
    wanted = [each for each in wanted if each.text.lower() not in _SURFACES]
    preposition = Chunk(_OPPOSITES[said[-1].kind], said[-1].text)
    return [said[0], *wanted, be, preposition, rest[0]]


def seen_least(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return *not seen for the longest time* and *gone unseen the longest* as *seen least recently*."""
    longest = next((each for each in chunks if each.text.lower() in _LONGEST), None)
    absent = [chunk for chunk in chunks if chunk.text.lower() == "not" or chunk.kind == "UNSEEN"]
    if longest is None or len(absent) != 1:
        return list(chunks)
    (no,) = absent
    kinds = {chunk.kind for chunk in chunks}
    been = {"IN", "WHERE"} <= kinds and any(chunk.text.lower() == "been" for chunk in chunks)
    if no.kind == "NOT" and not been and not kinds & {"SEE", "GO"}:
        return list(chunks)
    found: list[Chunk] = []
    for chunk in chunks:
        if chunk is longest:
            found.append(Chunk("SUPERLATIVE", "least recently"))
        elif chunk.text.lower() == "been" and been:
            found.append(Chunk("SEE", "visited"))
        elif been and chunk.kind == "IN" and found and found[-1].text == "visited":
            continue  # "Been in" a room means visited.
        elif chunk.kind == "UNSEEN":
            found += [Chunk("PERSON", "you"), Chunk("SEE", "seen")]  # The robot did not see it.
        elif chunk is not no:
            found.append(chunk)
    return found


def rephrased(chunks: Sequence[Chunk]) -> tuple[list[Chunk], bool]:
    """Return the chunks after these rules, and whether a word of captions is meant, as in *anything grey*."""
    plain = _described_last(turned(seen_least(_emptiest(chunks))))
    without = described(plain)
    if without is not None and without[0].kind == "BE" and without[1:2] and without[1].kind == "NOUN":
        without.insert(1, Chunk("THERE", "there"))  # "Is anything grey" asks whether there is something.
    if without is not None and {chunk.kind for chunk in without} <= _HAVING:
        # "Do you have anything grey" is about all of it, not about what was seen last.
        kept = [chunk for chunk in without if chunk.kind in (*PREPOSITIONS, "DET", "NOUN")]
        without = [Chunk("SHOW", "show"), *kept]
    if without is not None and parse(without).question in ("how_many", "search"):
        return without, True
    return plain, False


def _emptiest(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return *what is the emptiest room* as *which room is the emptiest*."""
    said = [chunk for chunk in chunks if chunk.kind not in ("DET", "FILLER")]
    kinds = [chunk.kind for chunk in said]
    named = len(said) == 4 and said[3].text.lower() in ("room", "area")
    if named and kinds[0] in ("WHAT", "WHICH", "WHERE") and kinds[1:] == ["BE", "EMPTIEST", "NOUN"]:
        return [Chunk("WHERE", f"which {said[3].text.lower()}"), said[1], said[2]]
    return list(chunks)


def _described_last(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return *which chairs are blue* as *which blue chairs*."""
    said = [chunk for chunk in chunks if chunk.kind not in ("DET", "FILLER")]
    kinds = [chunk.kind for chunk in said]
    if kinds == ["WHICH", "NOUN", "BE", "NOUN"] and " " not in said[3].text:
        return [said[0], Chunk("NOUN", f"{said[3].text} {said[1].text}")]
    return list(chunks)


def described(chunks: Sequence[Chunk]) -> list[Chunk] | None:
    """Return *anything grey*, *grey things* and *objects described as grey* as *grey*; None for others."""
    at = next((place for place, chunk in enumerate(chunks) if chunk.kind == "DESCRIBED"), None)
    if at is not None:
        return _captioned(chunks, at)
    for place, (first, second) in enumerate(pairwise(chunks)):
        if {first.kind, second.kind} != {"ANYTHING", "NOUN"}:
            continue
        thing, word = (first, second) if first.kind == "ANYTHING" else (second, first)
        before = next((each.kind for each in reversed(chunks[:place]) if each.kind != "DET"), "")
        named = thing.text.lower() in _OBJECTS and word.text.lower() != "new"
        if named and before not in PREPOSITIONS:
            return [*chunks[:place], word, *chunks[place + 2 :]]
    return None


def _captioned(chunks: Sequence[Chunk], at: int) -> list[Chunk] | None:
    """Return a question with the words after *described as* before the word that they describe."""
    end = next(
        (
            place
            for place in range(at + 1, len(chunks))
            if chunks[place].kind in (*PREPOSITIONS, "AND", "STOP")
        ),
        len(chunks),
    )
    words = " ".join(chunk.text for chunk in chunks[at + 1 : end])
    before = [*chunks[:at]]
    while before and before[-1].kind in ("BE", "FILLER", "THIS"):
        before.pop()
    if not words or not before or before[-1].kind not in ("ANYTHING", "NOUN"):
        return None
    subject = before.pop()
    if subject.kind == "NOUN":
        words = f"{words} {subject.text}"
    return [*before, Chunk("NOUN", words), *chunks[end:]]
