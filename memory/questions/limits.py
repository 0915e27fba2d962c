"""Questions that positions and times do not answer, with the reason and a question that works.

A part of a question that is not understood must never be left out: the rest would be another question.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from memory.questions.phrases import pattern

_POINT = "what is near (3, 1)"
_SIDE = (
    r"(?:(?:to|on|at) the )?(?:left|right)(?: hand)?(?: side)? of"
    r"|(?:to|on|at) the (?:left|right|side|back|front)|(?:in )?back of|behind|beyond|in front of|ahead of"
    r"|above|below|under|underneath|beneath|on top of|opposite|across from|across|facing|between"
    r"|(?:north|south|east|west)(?:east|west)? of|away from|far from"
)
_CLOSEST = r"(?:the )?(?:nearest|closest)(?: one)?(?: (?:to|from))?"
#: Relations that mean: within some metres.
_NEAR = r"near|nearby|close to|next to|beside|besides|around|by|at|in|inside|within|on|alongside|along"
_PERSON = r"(?:me|you|us|myself|yourself|the robot)"

_OWN_SIDE = pattern(
    r"\b(?:my|your|our) (?:left|right|back|front|side)\b"
    rf"|\b(?:{_SIDE}|near|close to|closest to|nearest to|next to|beside|around|by|from|within .+ of)"
    rf" {_PERSON}$"
    r"|^where (?:am i|are (?:you|we))\b|^what(?:'s| is) (?:my|your|our) (?:position|location|pose)$"
)
_REASONS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        pattern(
            r"^(?:will|would)\b|\bwill be\b|\bwill there\b|\btomorrow\b|\bnext (?:week|month|year|time)\b"
        ),
        "the future is not known, only what was seen. Ask such as: {last}",
    ),
    (
        pattern(r"^how far\b|^(?:what(?:'s| is) )?the distance\b"),
        "distances are not computed. Ask where it is, or what is within some metres: {within}",
    ),
    (
        pattern(r"^(?:anyone|anybody|someone|somebody|who)$"),
        "name what to look for, such as a person. Ask such as: {last}",
    ),
    (
        pattern(rf"\b(?:{_CLOSEST})\b"),
        "“nearest” needs a point or a thing at the end. Ask such as: where is the nearest car to (3, 1)?",
    ),
    (
        pattern(rf"\b(?:{_SIDE})\b"),
        "positions are known, but not which side of each other things are on. Ask what is near: {near}",
    ),
    (
        pattern(r"\b(?:not|no|without|except|unless|other than|n't|but)\b"),
        "what is not so cannot be asked for. Ask for the thing itself: {last}",
    ),
    (
        pattern(r"\b(?:and|or|then)\b|[,;]"),
        "only one thing can be asked for at a time. Ask for each by itself: {last}",
    ),
)
_RELATION = pattern(rf"^(?P<what>.+?) (?P<relation>{_NEAR}) (?:the |a |an |my |your )?(?P<where>.+)$")
#: Words between a thing and its place that add nothing: the car (that is) (parked) near the door.
_FILLER = pattern(
    r"(?: (?:that|which|who)(?:'s)?)?(?: (?:is|are|was|were))?"
    r"(?: (?:parked|standing|lying|sitting|located|placed|somewhere|right))?$"
)
_ASKING = pattern(
    r"^(?:what|where|when|who|whom|whose|which|why|how|is|are|was|were|do|does|did|can|could|will|would|shall"
    r"|should|has|have|had|may|might|must|am)(?:'s|'re|n't)? "
)


class Placed(NamedTuple):
    """Words about a thing and where it is.

    Attributes:
        what: the thing.
        where: a thing whose place is meant.
    """

    what: str
    where: str


def placed(words: str) -> Placed | None:
    """Split ``car by the door`` into the thing and its place; ``None`` where no place is named."""
    match = _RELATION.match(words)
    if match is None or (what := without_filler(match["what"])) == "":
        return None
    return Placed(what, match["where"].strip())


def without_filler(words: str) -> str:
    """The words without an empty end such as ``that is parked``."""
    return _FILLER.sub("", words).strip()


def refuse_own_place(words: str) -> None:
    """Refuse a question about a place that only the robot knows, such as ``what is behind me``.

    Args:
        words: of the question.

    Raises:
        ValueError: it is one.
    """
    found = _OWN_SIDE.search(words)
    if found is not None:
        raise ValueError(
            f"text: “{found[0]}” depends on where the robot is now and how it stands, which a memory does not"
            f" know. Give a point: {_POINT}?"
        )


def why_not(words: str, thing: str = "car") -> str | None:
    """Why words cannot be understood, with a question that works; ``None`` where no reason is known.

    Args:
        words: a part of a question that nothing in the store is called.
        thing: that the store knows, for the example.
    """
    examples = {
        "last": f"where is the {thing}?",
        "near": f"what is near the {thing}?",
        "within": f"what is within 10 m of the {thing}?",
    }
    for found, reason in _REASONS:
        if found.search(words):
            return f"“{words}” cannot be answered: {reason.format(**examples)}"
    return None


def is_asking(words: str) -> bool:
    """True if words begin as a question does, so that they are not a name to search for."""
    return _ASKING.match(words) is not None
