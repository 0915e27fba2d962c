"""Refusals: the reason why a question has no answer, and a question that has one.

A part of a question that is not understood is never left out: the rest would be another question.
"""

from __future__ import annotations

import re

from memory.questions.grammar import Parse

#: Reasons by the class of a word, with the word itself and an object of the store.
_REASONS: dict[str, str] = {
    "FUTURE": "I know only what was seen, not the future. Ask for example: where is the {thing}?",
    "WHY": "I do not know reasons. I can answer where, when and how many: where is the {thing}?",
    "WHO": "I do not know who did something. Ask for example: has the {thing} moved?",
    "ADVICE": "I do not give advice, I only know what was seen. Ask for example: where is the {thing}?",
    "FAR": "I do not compute distances. Ask for example: what is within 10 m of the {thing}?",
    "ATTRIBUTE": "“{word}” is not stored. I can answer where, when and how many: where is the {thing}?",
    "SIDE": "I know positions, but not which side of each other objects are on. Ask for example: what is near"
    " the {thing}?",
    "COMPARE": "I do not compare. Ask for each object: how many {thing}s are there?",
    "NOT": "I cannot search for what is absent. Ask for the object itself: where is the {thing}?",
    "AND": "I can look for one thing at a time. Ask for each: where is the {thing}?",
    "STOP": "I can look for one thing at a time. Ask for each: where is the {thing}?",
}
LEFT_IN_A_TIME = (
    "I count what was seen in a time, not what left in it. Ask for example: what changed since yesterday?"
)
_EXAMPLE = "Ask for example: where is the {thing}?"
_PERSON = r"(?:me|you|us|myself|yourself|the robot)"
_SIDE = (
    r"(?:(?:to|on|at) the )?(?:left|right)(?: hand)?(?: side)? of|(?:to|on|at) the (?:left|right)"
    r"|behind|beyond|in front of|above|below|under|opposite|across from|facing|away from|far from"
)
#: Places that depend on where the robot is.
_OWN_PLACE = re.compile(
    r"\b(?:my|your|our) (?:left|right|back|front|side)\b"
    rf"|\b(?:{_SIDE}|near|close to|closest to|nearest to|next to|beside|around|by|from|within .+ of)"
    rf" {_PERSON}$"
    r"|^where (?:am i|are (?:you|we))\b|^what(?:'s| is) (?:my|your|our) (?:position|location|pose)$",
    re.IGNORECASE,
)


def check_own_place(words: str) -> None:
    """Refuse a question about a place that depends on the robot's pose, such as ``what is behind me``.

    Raises:
        ValueError: it is one.
    """
    found = _OWN_PLACE.search(words)
    if found is not None:
        raise ValueError(
            f"text: “{found[0]}” depends on the pose of the robot, which the memory does not know."
            " Give a point: what is near (3, 1)?"
        )


def reason_of(parsed: Parse, words: str) -> str | None:
    """Return why a question has no answer, with ``{thing}`` for an object of the store; None if it has one.

    Args:
        parsed: the question.
        words: as typed.
    """
    for chunk in parsed.functions:
        if chunk.kind in _REASONS:
            return _REASONS[chunk.kind].replace("{word}", chunk.text)
    if parsed.target is None and parsed.has("ANYONE"):
        return "Name what to look for, such as a person. Ask for example: where is the {thing}?"
    if parsed.unparsed:
        return f"I do not understand “{parsed.unparsed[0].text}” in “{words}”. {_EXAMPLE}"
    if parsed.question is None:
        return f"I do not understand “{words}”. {_EXAMPLE}"
    return None
