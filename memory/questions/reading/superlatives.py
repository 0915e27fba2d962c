"""Superlatives in the grammar: the first of several objects by one measure.

The words without the superlative are a question for a list. So every place, relation and time that limits a
list limits a superlative too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from memory.questions.boxes import Order, RankMeasure
from memory.questions.reading.arguments import pattern
from memory.questions.reading.grammar import PREPOSITIONS, Chunk
from memory.questions.reading.lexicon import ORDINALS, SUPERLATIVES

#: Questions for a list, as the rest of a superlative is one.
LISTS = ("between", "last_seen", "near", "nearest", "search", "summarise")
_MEASURES: Mapping[str, tuple[RankMeasure, Order]] = {
    "big": ("size", "more"),
    "large": ("size", "more"),
    "tall": ("height", "more"),
    "high": ("height", "more"),
    "wide": ("width", "more"),
    "long": ("length", "more"),
    "biggest": ("size", "more"),
    "largest": ("size", "more"),
    "bulkiest": ("size", "more"),
    "hugest": ("size", "more"),
    "smallest": ("size", "less"),
    "tiniest": ("size", "less"),
    "longest": ("length", "more"),
    "time": ("duration", "more"),
    "widest": ("width", "more"),
    "narrowest": ("width", "less"),
    "tallest": ("height", "more"),
    "highest": ("elevation", "more"),
    "lowest": ("elevation", "less"),
    "height": ("elevation", "more"),
    **dict.fromkeys(("up", "ground", "floor"), ("elevation", "more")),
    "fastest": ("speed", "more"),
    "slowest": ("speed", "less"),
    "ago": ("last_seen", "less"),
    "oldest": ("first_seen", "less"),
    "newest": ("first_seen", "more"),
    "often": ("observations", "more"),
    "frequently": ("observations", "more"),
    "most": ("observations", "more"),
    "least": ("observations", "less"),
    "fewest": ("observations", "less"),
    "first": ("first_seen", "less"),
    "earliest": ("first_seen", "less"),
    "last": ("last_seen", "more"),
    "latest": ("last_seen", "more"),
    "recent": ("last_seen", "more"),
    "recently": ("last_seen", "more"),
}
_IS_FIRST = pattern(
    r"^(?:is|are|was) (?:the|my|our|his|her|their) (?P<what>(?:(?!than\b)\w+ "
    r")+?)(?P<rest>the (?!same\b|first\b|last\b)\w+ .+)$"
)
#: Classes that may stand around a superlative.
_AROUND = frozenset({
    "ALL", "ANYTHING", "BE", "DET", "DO", "EVER", "FILLER", "FIND", "HAVE", "HERE", "MODAL", "NOUN", "NOW",
    "OF", "PERSON", "POSITION", "SEE", "SHOW", "STAY", "STOP", "THERE", "THIS", "TO", "WHAT", "WHERE",
    "WHICH", "WHO", *PREPOSITIONS,
})  # fmt: skip
#: Classes between a superlative and the words that it belongs to.
_SKIPPED = ("ALL", "DET", "FILLER", "OF")
_YES_NO = ("BE", "DO", "HAVE")
_ROOMS = ("room", "area", "place", "part")


class Superlative(NamedTuple):
    """A superlative, and the question without it.

    Attributes:
        measure: what puts the objects in order.
        order: whether the most or the least is meant.
        nth: 1 for the first, 2 for the second.
        rooms: True if rooms are meant, not objects.
        staying: True if only objects that are still there are meant.
        chunks: the other words.
    """

    measure: RankMeasure
    order: Order
    nth: int
    rooms: bool
    staying: bool
    chunks: list[Chunk]


def superlative_of(chunks: Sequence[Chunk]) -> Superlative | None:
    """Return the superlative of a question; None if there is none, or more than one."""
    marked = [place for place in range(len(chunks)) if _is_superlative(chunks, place)]
    if len(marked) != 1:
        return None
    (at,) = marked
    before = next((each.kind for each in reversed(chunks[:at]) if each.kind not in _SKIPPED), "")
    if before == "TO" or before in PREPOSITIONS:
        return None  # "Next to the biggest chair": the landmark is a question of its own.
    if chunks[at].kind == "NEAREST":
        # "How far is the nearest chair" asks for its distance, which the answer has.
        rest = [chunk for chunk in chunks if chunk.kind != "FAR"]
        return Superlative(
            "distance", _distance_order(chunks[at].text), _nth(chunks[at].text), False, False, rest
        )
    rest = [*chunks[:at], *chunks[at + 1 :]]
    if chunks[at].text.lower().startswith(("how ", "at ")):
        rest = [
            Chunk("WHAT", "how"),
            *rest,
        ]  # "How tall is the fridge" names the tallest one, and its height.
    strange = any(chunk.kind not in _AROUND for chunk in rest)
    if strange or (bool(rest) and rest[0].kind in _YES_NO):
        return None
    words = chunks[at].text.lower().split()
    measure, order = measure_of(chunks[at].text)
    if chunks[at].text.lower() == "how high" and any(chunk.kind == "STAY" for chunk in rest):
        measure = "elevation"  # How high is the sign mounted?
    staying = words[-1] == "longest" and not _names(chunks[at + 1 :])
    if staying:
        # "Has been there the longest" is about time, "the longest table" about its shape.
        if not any(chunk.kind in ("HERE", "STAY", "THERE") for chunk in rest):
            return None
        measure, order = "first_seen", "less"
    return Superlative(measure, order, _nth(chunks[at].text), _means_rooms(rest), staying, rest)


def named_winner(words: str) -> tuple[str, str] | None:
    """Return the object and the question of *is the sofa the biggest thing*; ``None`` for others."""
    found = _IS_FIRST.match(words)
    if found is None or not any(word in _MEASURES for word in found["rest"].lower().split()):
        return None
    rest = found["rest"]
    return found["what"].strip(), f"which {rest[4:]}" if " you " in rest else f"what is {rest}"


def measure_of(words: str) -> tuple[RankMeasure, Order]:
    """Return the measure of a superlative, and whether it means the most or the least."""
    said = words.lower().split()
    measure, order = next(_MEASURES[word] for word in reversed(said) if word in _MEASURES)
    return measure, "less" if {"least", "shortest"} & set(said) else order


def who_as_what(chunks: list[Chunk]) -> list[Chunk]:
    """Return *who is the tallest person* as *what is*, and *who was at the door* as *which person*."""
    kinds = [chunk.kind for chunk in chunks]
    if kinds[:2] == ["WHO", "BE"] and len(kinds) > 2 and kinds[2] in PREPOSITIONS:
        return [Chunk("WHICH", chunks[0].text), Chunk("NOUN", "person"), *chunks[1:]]
    if kinds[:2] == ["WHO", "BE"] and {"FIRST", "LAST", *SUPERLATIVES} & set(kinds):
        return [Chunk("WHAT", chunks[0].text), *chunks[1:]]
    return chunks


def _distance_order(words: str) -> Order:
    """Return whether the least or the most distant object is meant."""
    return "less" if {"nearest", "closest"} & set(words.lower().split()) else "more"


def _nth(words: str) -> int:
    return ORDINALS.get(words.lower().split()[0], 1)


def _names(chunks: Sequence[Chunk], *kinds: str) -> bool:
    """Return True if chunks begin with the name of an object, or with a chunk of these classes."""
    first = next((chunk.kind for chunk in chunks if chunk.kind not in _SKIPPED), "")
    return first in (kinds or ("NOUN", "ANYTHING"))


def _is_superlative(chunks: Sequence[Chunk], place: int) -> bool:
    """Return True for a superlative; *first*, *last* and *most* count only if no other row reads them."""
    chunk, after = chunks[place], chunks[place + 1 :]
    if chunk.kind in SUPERLATIVES:
        return True
    if chunk.kind == "LONG":
        return chunk.text.lower() == "how long" and _is_length(after)
    if chunk.kind not in ("FIRST", "LAST", "MOST"):
        return False
    kinds = {each.kind for each in chunks}
    if (
        chunk.kind == "LAST"
        and kinds & {"WHAT", "WHICH", "SHOW", "ANYTHING"}
        and not kinds & {"WHERE", "WHEN"}
    ):
        return True
    if chunk.kind == "FIRST" and chunk.text.lower() in ("first", "earliest"):
        seen = any(each.kind == "SEE" for each in chunks)
        return (
            seen
            and not _names(after, "NOUN")
            and any(each.kind in ("WHAT", "WHICH", "ANYTHING") for each in chunks)
        )
    if _means_rooms([*chunks[:place], *after]):
        return not _names(after)
    return chunk.kind == "MOST" and not _names(after) and any(each.kind == "SEE" for each in chunks)


def _is_length(chunks: Sequence[Chunk]) -> bool:
    """Return True after *how long* for *is the table*, and False for *is the car parked*."""
    return (
        bool(chunks)
        and chunks[0].text.lower() in ("is", "are")
        and {chunk.kind for chunk in chunks} <= {"BE", "DET", "NOUN"}
    )


def _means_rooms(chunks: Sequence[Chunk]) -> bool:
    """Return True for *which room were you in* and *which room did you visit*."""
    person = any(chunk.kind == "PERSON" for chunk in chunks)
    visited = any(chunk.kind in ("IN", "SEE") for chunk in chunks)
    rooms = any(chunk.kind == "WHERE" and chunk.text.lower().endswith(_ROOMS) for chunk in chunks)
    return person and visited and rooms and not any(chunk.kind == "NOUN" for chunk in chunks)
