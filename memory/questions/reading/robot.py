"""Places that depend on where the robot is, such as *near me* or *on your left*."""

from __future__ import annotations

import re
from typing import NamedTuple

from memory.questions.boxes import Relation
from memory.questions.errors import QuestionError, pose_missing

_PERSON = r"(?:me|you|us|myself|yourself|the robot|robot)"
_HAND = r"(?: hand)?(?: side)?"
_SIDES: tuple[tuple[Relation, str], ...] = (
    ("left of", rf"(?:(?:to|on|at) )?(?:the |my |your |our )?left{_HAND}(?: of {_PERSON})?"),
    ("right of", rf"(?:(?:to|on|at) )(?:the |my |your |our )?right{_HAND}(?: of {_PERSON})?"),
    ("right of", rf"right{_HAND} of {_PERSON}"),
    ("in front of", rf"(?:in front of|ahead of) {_PERSON}|(?:straight |right )?ahead|in front"),
    ("behind", rf"(?:behind|in back of) {_PERSON}|(?:at|to) (?:my|your|our) back"),
)
_NOW = r"(?: (?:right now|now|currently|at the moment))?(?=$| in | at )"
_NEAR = re.compile(
    r"\b(?:(?:with)?in (?P<radius>\d+(?:\.\d+)?) ?(?:m|metres?|meters?) of|near|close to|closest to"
    rf"|nearest to|next to|beside|around|by|from) {_PERSON}{_NOW}",
    re.IGNORECASE,
)
#: "The nearest chair to me": the words "to me" alone are no place of another question.
_FARTHEST = re.compile(r"\b(?:nearest|closest|farthest|furthest|most distant)\b", re.IGNORECASE)
_TO_ROBOT = re.compile(rf"\bto {_PERSON}{_NOW}", re.IGNORECASE)
_SELF = re.compile(
    r"^where (?:am i|are (?:you|we))\b|^what(?:'s| is) (?:my|your|our) (?:position|location|pose)$"
    rf"|\b(?:above|below|under|beneath|opposite|across from|facing|away from|far from) {_PERSON}$",
    re.IGNORECASE,
)


class OwnPlace(NamedTuple):
    """Words that mean the place of the robot.

    Attributes:
        words: as typed.
        rest: the question without them.
        relation: side of the robot; None for its surroundings.
        radius_m: around the robot, if given.
    """

    words: str
    rest: str
    relation: Relation | None
    radius_m: float | None


def own_place(words: str) -> OwnPlace | None:
    """Return the part of a question that depends on where the robot is, or ``None``.

    Raises:
        QuestionError: the question is where the robot itself is, or about a side that is not computed.
    """
    itself = _SELF.search(words)
    if itself is not None:
        raise QuestionError("text", pose_missing(itself[0]))
    for relation, pattern in _SIDES:
        found = re.search(rf"\b(?:{pattern}){_NOW}", words, re.IGNORECASE)
        # "left" alone is a verb: what has left.
        if found is not None and found[0].lower() not in ("left", "right"):
            return OwnPlace(found[0], _without(words, found), relation, None)
    found = _NEAR.search(words)
    to = _TO_ROBOT.search(words) if found is None and _FARTHEST.search(words) else None
    if to is not None:
        return OwnPlace(to[0], _without(words, to), None, None)
    if found is None:
        return None
    # A word such as "closest" stays in the question.
    kept = found[0].split()[0] if found[0].lower().startswith(("closest", "nearest")) else ""
    radius = None if found["radius"] is None else float(found["radius"])
    return OwnPlace(found[0], _without(words, found, kept), None, radius)


def _without(words: str, found: re.Match[str], kept: str = "") -> str:
    return " ".join(f"{words[: found.start()]} {kept} {words[found.end() :]}".split())
