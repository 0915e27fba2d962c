"""Comparisons in the grammar: distances, sizes, and one count versus another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from memory.questions.boxes import Measure, Order, RankMeasure
from memory.questions.reading.arguments import pattern
from memory.questions.reading.grammar import Chunk, is_past

#: Classes of words that do not change a comparison.
_AROUND = frozenset({
    "AND", "ANYTHING", "BE", "BETWEEN", "DET", "DO", "FILLER", "HAVE", "HERE", "MODAL", "NOUN", "OF",
    "PERSON", "SEE", "STAY", "STOP", "THAN", "THERE", "THIS", "TO", "WHAT", "WHICH", "WHO",
})  # fmt: skip
#: Measure and order of each word of the class ``COMPARE``.
COMPARED_MEASURES: Mapping[str, tuple[RankMeasure, Order]] = {
    "bigger": ("size", "more"),
    "larger": ("size", "more"),
    "smaller": ("size", "less"),
    "longer": ("length", "more"),
    "wider": ("width", "more"),
    "narrower": ("width", "less"),
    "taller": ("height", "more"),
    "higher": ("elevation", "more"),
    "lower": ("elevation", "less"),
    "faster": ("speed", "more"),
    "slower": ("speed", "less"),
    "older": ("first_seen", "less"),
    "newer": ("first_seen", "more"),
    "more": ("observations", "more"),
    "less": ("observations", "less"),
}
_EQUAL_BY: Mapping[str, RankMeasure] = {
    "height": "height", "tall": "height", "high": "height", "width": "width", "wide": "width",
    "length": "length", "long": "length", "size": "size", "big": "size", "large": "size", "age": "first_seen",
    "old": "first_seen",
}  # fmt: skip
_BY = f"(?P<measure>{'|'.join(_EQUAL_BY)})"
_EQUAL = (
    pattern(
        rf"^(?:is|are) (?P<first>.+?) and (?P<second>.+?)(?: both)? (?:of |equal in )?(?:the same )?{_BY}$"
    ),
    pattern(rf"^(?:is|are) (?P<first>.+?) and (?P<second>.+?) (?:equally|just as|as) {_BY}$"),
    pattern(rf"^(?:is|are) (?P<first>.+?) (?:exactly |just )?as {_BY} as (?P<second>.+)$"),
    pattern(rf"^(?:is|are|does|do) (?P<first>.+?) (?:have )?(?:of )?the same {_BY} as (?P<second>.+)$"),
)
_ARTICLE = pattern(r"^(?:the|my|our|your|his|her|their) ")
#: Words that ask for the smaller number.
_LESS = ("fewer", "less", "fewest", "least", "emptiest", "closer", "nearer")
_SAME = ("as many", "same number")


@dataclass
class Comparing:
    """A comparison or superlative in words.

    Attributes:
        measure: what is compared.
        order: whether the first side has more, less or the same, or which one has.
        choices: words of the sides.
        anchor: words of the object that distances are measured from.
        yes_no: True if the question is whether the first side wins.
        nth: place in the order of a superlative, 1 for the first.
        maps: True if the maps of the store are compared, not its areas.
        among: memories of each side: those that are there, all, or those that left.
    """

    measure: Measure | RankMeasure
    order: Order
    choices: tuple[str, ...]
    anchor: str | None = None
    yes_no: bool = False
    nth: int = 1
    maps: bool = False
    among: Literal["there", "all", "left"] = "there"


class Halves(NamedTuple):
    """Words of the two counts of a comparison."""

    first: str
    second: str
    order: Order
    yes_no: bool
    past: bool


def equal_of(words: str) -> Comparing | None:
    """Return *are A and B the same height* and *is A as tall as B* as a comparison; None for others."""
    found = next((match for each in _EQUAL if (match := each.match(words)) is not None), None)
    if found is None:
        return None
    names = tuple(_ARTICLE.sub("", found[part]) for part in ("first", "second"))
    measure: RankMeasure = _EQUAL_BY[found["measure"].lower()]
    return Comparing(measure, "same", names, yes_no=True)


def order_of(words: str) -> Order:
    """Return what a word such as *fewer* asks for."""
    folded = words.lower()
    if any(word in folded for word in _SAME):
        return "same"
    return "less" if any(word in folded.split() for word in _LESS) else "more"


def distance_between(chunks: Sequence[Chunk]) -> tuple[str, ...] | None:
    """Return the objects of a question such as *how far is the bed from the sofa*; None for another one."""
    if not any(chunk.kind == "FAR" for chunk in chunks) or _strange(chunks, "FAR"):
        return None
    if not any(chunk.kind in ("BE", "BETWEEN", "TO", "FAR") for chunk in chunks):
        return None
    nouns = tuple(chunk.text for chunk in chunks if chunk.kind == "NOUN")
    return nouns if 1 <= len(nouns) <= 2 else None


def comparing_of(chunks: Sequence[Chunk]) -> Comparing | None:
    """Return a comparison of two objects by a measure; None for another question."""
    for kind in ("CLOSER", "COMPARE"):
        at = next((place for place, chunk in enumerate(chunks) if chunk.kind == kind), None)
        if at is None or _strange(chunks, kind):
            continue
        nouns = [chunk.text for chunk in chunks if chunk.kind == "NOUN"]
        before = sum(chunk.kind == "NOUN" for chunk in chunks[:at])
        yes_no = chunks[0].kind in ("BE", "DO", "HAVE") and any(chunk.kind == "THAN" for chunk in chunks)
        if kind == "COMPARE":
            measure, order = COMPARED_MEASURES[chunks[at].text.lower().split()[0]]
            staying = any(chunk.kind in ("STAY", "THERE") for chunk in chunks)
            if measure == "length" and staying:
                measure, order = "first_seen", "less"  # "Has been there longer" is about time.
            return Comparing(measure, order, tuple(nouns), None, yes_no) if len(nouns) == 2 else None
        if len(nouns) != 3:
            return None
        order = order_of(chunks[at].text)
        # "is A or B closer to C" measures from the last object, other orders from the first.
        anchor = nouns.pop(-1 if before == 2 else 0)
        return Comparing("distance", order, tuple(nouns), anchor, yes_no)
    return None


def halves_of(chunks: Sequence[Chunk]) -> Halves | None:
    """Return the sides of a question such as *are there more cars than vans*; None for another one."""
    at = next((place for place, chunk in enumerate(chunks) if chunk.kind == "MORE"), None)
    if at is None or any(chunk.kind not in _AROUND - {"NOUN"} for chunk in chunks[:at]):
        return None
    order = order_of(chunks[at].text)
    rest = chunks[at + 1 :]
    apart = next((place for place, chunk in enumerate(rest) if _separates(chunk, order)), None)
    either = next((place for place, chunk in enumerate(rest) if chunk.kind == "AND"), None)
    yes_no = apart is not None
    place = apart if apart is not None else either
    if place is None or not 0 < place < len(rest) - 1:
        return None
    second = [
        chunk for chunk in rest[place + 1 :] if chunk.kind not in ("MORE", "BE", "DO", "THERE", "PERSON")
    ]
    first = rest[:place]
    if not second:
        return None
    words = [" ".join(chunk.text for chunk in half) for half in (first, second)]
    return Halves(words[0], words[1], order, yes_no, is_past(chunks[:at]))


def _separates(chunk: Chunk, order: Order) -> bool:
    return chunk.kind == "THAN" or (order == "same" and chunk.text.lower() == "as")


def _strange(chunks: Sequence[Chunk], kind: str) -> bool:
    """Return True if a chunk has no place in a comparison."""
    return any(chunk.kind not in _AROUND | {kind} for chunk in chunks)
