"""Refusals of questions: the reason, and a question that works.

A part of a question that is not understood is never dropped, because the rest would be another question.
"""

from __future__ import annotations

import re

from memory.questions.grammar import Parse

#: Questions that work, with an object of the store.
EXAMPLES = ("where is the {thing}?", "what is near the {thing}?", "what changed since yesterday?")
_EXAMPLE = "Ask for example: 'where is the {thing}?'"
#: Reasons by the class of a word; ``{word}`` is the word itself.
_REASONS: dict[str, str] = {
    "FUTURE": f"The store holds only past observations. {_EXAMPLE}",
    "WHY": f"Reasons are not stored. I can answer where, when and how many. {_EXAMPLE}",
    "WHO": "The store does not know who did something. Ask for example: 'has the {thing} moved?'",
    "ADVICE": f"I give no advice, I only know past observations. {_EXAMPLE}",
    "FAR": "Distances are not computed. Ask for example: 'what is within 10 m of the {thing}?'",
    "ATTRIBUTE": f"'{{word}}' is not stored. I can answer where, when and how many. {_EXAMPLE}",
    "SIDE": (
        "The store knows positions, but not directions such as left or behind. Ask for example:"
        " 'what is near the {thing}?'"
    ),
    "COMPARE": (
        "Comparisons are not supported. Ask about each object, for example: 'how many {thing}s are there?'"
    ),
    "NOT": f"Negations are not supported. {_EXAMPLE}",
    "AND": f"A question can name only one object. Ask about each object separately. {_EXAMPLE}",
    "STOP": f"A question can name only one object. Ask about each object separately. {_EXAMPLE}",
}
LEFT_IN_A_TIME = (
    "I count what was seen in a time, not what left in it. Ask for example: 'what changed since yesterday?'"
)
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


class QuestionError(ValueError):
    """A question that cannot be answered; the message suggests one that can.

    Attributes:
        part: the part of the question at fault.
    """

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


def check_own_place(words: str) -> None:
    """Raise ``QuestionError`` for a question relative to the robot, such as ``what is behind me``."""
    found = _OWN_PLACE.search(words)
    if found is not None:
        raise QuestionError(
            "text",
            f"'{found[0]}' depends on the robot's current pose, which the store does not know. Ask for"
            " example: 'what is near (3, 1)?'",
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
        return f"The kind of object is missing, such as a person. {_EXAMPLE}"
    if parsed.question is None and parsed.has("NEAREST"):
        return (
            "'nearest' needs a point or an object. Ask for example: 'where is the nearest {thing} to (3, 1)?'"
        )
    if parsed.unparsed:
        return f"I don't understand '{parsed.unparsed[0].text}' in '{words}'. {_EXAMPLE}"
    if parsed.question is None:
        return f"I don't understand '{words}'. {_EXAMPLE}"
    return None
