"""Rooms that a question names by an object in them: *in the same room as the sofa*."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from memory.questions.reading.arguments import pattern
from memory.questions.reading.parsed import ObjectCondition, ParsedQuestion
from memory.questions.reading.selections.conditions import as_list

_SAME = pattern(r"\b(?:from |in )?(?:the )?same (?:room|area) (?:as|with) ")
_WHERE = pattern(
    r"\b(?:from|in) the (?:room|area) (?:where|in which) (?P<what>(?:(?!\b(?:is|are|was|were)\b).)+?)"
    r" (?:is|are|stands|stand)\b"
)
_WITH = pattern(r"\b(?:from|in) the (?:room|area) (?:with|of|that has|that contains|containing) ")


class RoomPhrase(NamedTuple):
    """A question with *in* an object in place of *in the room of* it.

    Attributes:
        text: the question.
        same: True for *the same room as*, where the object itself is no answer.
    """

    text: str
    same: bool


def room_phrase(words: str) -> RoomPhrase | None:
    """Return a question that names a room by an object in it; ``None`` for another question."""
    for phrase, by in ((_SAME, "in "), (_WHERE, r"in \g<what>"), (_WITH, "in ")):
        if len(phrase.findall(words)) == 1:
            return RoomPhrase(" ".join(phrase.sub(by, words).split()), phrase is _SAME)
    return None


def in_room_of(found: ParsedQuestion, room: RoomPhrase, words: str) -> ParsedQuestion:
    """Return a question about the room of an object.

    Args:
        found: the question about the inside of the object.
        room: how the room is named.
        words: the question as typed.
    """
    what = found.beside if found.room is None else found.room
    inside = found.room is not None or found.relation == "inside"
    if found.problem is not None or what is None or not inside:
        problem = f"I don't understand the room in '{words}'. Ask for example: 'what is near the {{thing}}?'"
        return ParsedQuestion("search", what=words, typed=words, problem=problem)
    found = replace(found, room_of=True)
    if not room.same or found.what is not None:
        return found
    name = f"memory {what}" if isinstance(what, int) else f"the {what}"
    asked = (ParsedQuestion("select", what=what),)
    itself = ObjectCondition(f"other than {name}", asked, negated=True)
    return as_list(found, itself) or found
