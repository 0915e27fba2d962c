"""Refusals of questions: the reason, and a question that works.

A part of a question that is not understood is never dropped, because the rest would be another question.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from memory.questions.phrases import pattern

_SIDE = (
    r"(?:(?:to|on|at) the )?(?:left|right)(?: hand)?(?: side)? of"
    r"|(?:to|on|at) the (?:left|right|side|back|front)|(?:in )?back of|behind|beyond|in front of|ahead of"
    r"|above|below|under|underneath|beneath|on top of|opposite|across from|across|facing|between"
    r"|(?:north|south|east|west)(?:east|west)? of|away from|far from"
)
_CLOSEST = r"(?:the )?(?:nearest|closest)(?: one)?(?: (?:to|from))?"
#: Relations that mean "within some metres".
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
        "the store holds only past observations. Ask for example: '{last}'",
    ),
    (
        pattern(r"^how far\b|^(?:what(?:'s| is) )?the distance\b"),
        "distances are not computed. Ask for example: '{within}'",
    ),
    (
        pattern(r"^(?:anyone|anybody|someone|somebody|who)$"),
        "the kind of object is missing. Ask for example: '{last}'",
    ),
    (
        pattern(rf"\b(?:{_CLOSEST})\b"),
        "'nearest' needs a point or an object at the end. Ask for example: 'where is the nearest {thing} to"
        " (3, 1)?'",
    ),
    (
        pattern(rf"\b(?:{_SIDE})\b"),
        "the store knows positions, but not directions such as left or behind. Ask for example: '{near}'",
    ),
    (
        pattern(r"\b(?:not|no|without|except|unless|other than|n't|but)\b"),
        "negations are not supported. Ask for example: '{last}'",
    ),
    (
        pattern(r"\b(?:and|or|then)\b|[,;]"),
        "a question can name only one object. Ask about each object separately, for example: '{last}'",
    ),
)
_RELATION = pattern(rf"^(?P<what>.+?) (?P<relation>{_NEAR}) (?:the |a |an |my |your )?(?P<where>.+)$")
#: Words between an object and its place that add nothing: the car (that is) (parked) near the door.
_FILLER = pattern(
    r"(?: (?:that|which|who)(?:'s)?)?(?: (?:is|are|was|were))?"
    r"(?: (?:parked|standing|lying|sitting|located|placed|somewhere|right))?$"
)
_ASKING = pattern(
    r"^(?:what|where|when|who|whom|whose|which|why|how|is|are|was|were|do|does|did|can|could|will|would|shall"
    r"|should|has|have|had|may|might|must|am)(?:'s|'re|n't)? "
)


class QuestionError(ValueError):
    """A question that cannot be answered; the message suggests one that can.

    Attributes:
        part: the part of the question at fault.
    """

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


class PlacePhrase(NamedTuple):
    """An object, and another object that it is near."""

    what: str
    where: str


def split_place(words: str) -> PlacePhrase | None:
    """Split ``car by the door`` into object and place; ``None`` if no place is named."""
    match = _RELATION.match(words)
    if match is None or (what := without_filler(match["what"])) == "":
        return None
    return PlacePhrase(what, match["where"].strip())


def without_filler(words: str) -> str:
    """Remove an ending such as ``that is parked``."""
    return _FILLER.sub("", words).strip()


def refuse_own_place(words: str) -> None:
    """Raise ``QuestionError`` for a question relative to the robot, such as ``what is behind me``."""
    found = _OWN_SIDE.search(words)
    if found is not None:
        raise QuestionError(
            "text",
            f"'{found[0]}' depends on the robot's current pose, which the store does not know. Ask for"
            " example: 'what is near (3, 1)?'",
        )


def why_not(words: str, thing: str = "car") -> str | None:
    """Return why a question cannot be answered and one that can; ``None`` if no reason is known.

    Args:
        words: part of a question that names nothing in the store.
        thing: label for the example.
    """
    examples = {
        "last": f"where is the {thing}?",
        "near": f"what is near the {thing}?",
        "within": f"what is within 10 m of the {thing}?",
        "thing": thing,
    }
    for found, reason in _REASONS:
        if found.search(words):
            return f"I cannot answer '{words}': {reason.format(**examples)}"
    return None


def is_asking(words: str) -> bool:
    """True if words begin like a question, so they are no name to search for."""
    return _ASKING.match(words) is not None
