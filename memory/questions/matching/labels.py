"""Labels of the store in place of the words of a question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memory.questions.asking import Questions
from memory.questions.errors import QuestionError
from memory.questions.places import names_place
from memory.questions.ranking import LENGTHS
from memory.questions.reading.parsed import ParsedQuestion
from memory.questions.sentences import example_of, refusal

_ROOMS = ("room", "rooms", "area", "areas", "map", "maps")
_PLACE_PARTS, _TIME_PARTS = ("near", "beside", "area"), ("between", "since")
#: Parts that a question supports. Others are refused, never dropped.
_SUPPORTED_PARTS: dict[str, tuple[str, ...]] = {
    "last_seen": _PLACE_PARTS,
    "first_seen": _PLACE_PARTS,
    "left": _PLACE_PARTS,
    "still_there": _PLACE_PARTS,
    "pose_to": _PLACE_PARTS,
    "how_often": (*_PLACE_PARTS, *_TIME_PARTS),
    "how_many": (*_PLACE_PARTS, *_TIME_PARTS),
    "near": (*_PLACE_PARTS, *_TIME_PARTS),
    "between": (*_PLACE_PARTS, *_TIME_PARTS),
    "search": (*_PLACE_PARTS, *_TIME_PARTS),
    "new_between": (*_PLACE_PARTS, *_TIME_PARTS),
    "changed_since": (*_PLACE_PARTS, "since"),
    "summarise": (*_PLACE_PARTS, "since"),
    "similar_situations": (),
    "seen_before": (),
    "been_here": (),
    "related": (*_PLACE_PARTS, *_TIME_PARTS),
    "distance": _PLACE_PARTS,
    "ranked": (*_PLACE_PARTS, *_TIME_PARTS),
    "select": (*_PLACE_PARTS, *_TIME_PARTS),
    "compare": (*_TIME_PARTS, "area"),
    "rooms": (),
    "same_room": (),
}


def match_labels(questions: Questions, parsed: ParsedQuestion) -> ParsedQuestion:
    """Replace the words of a question by labels of the store.

    Raises:
        QuestionError: a part is not understood.
    """
    if parsed.problem is not None and not questions.knows(str(parsed.typed)):
        raise QuestionError("text", refusal(questions, parsed.problem, parsed.nouns))
    for part in ("between", "since", "near", "beside", "area"):
        if getattr(parsed, part) is not None and part not in _SUPPORTED_PARTS[parsed.question]:
            limit = "place" if part in _PLACE_PARTS else "time"
            raise QuestionError(
                part,
                f"The question '{parsed.question}' cannot be limited by {limit}. Ask it without the {limit}",
            )
    if str(parsed.what).lower() in _ROOMS and questions.label_of(parsed.what) is None:
        raise QuestionError(
            "what",
            f"I answer questions about objects, not about {parsed.what}; 'recall area STORE' lists the areas."
            f" Ask for example: 'which room has the most {example_of(questions)}s?'",
        )
    if parsed.unit is not None and parsed.question != "distance" and not _is_length(parsed):
        raise QuestionError(
            "text",
            f"'in {parsed.unit}' fits only a distance or a size. Ask for example: 'how far is the"
            f" {example_of(questions)} from (3, 1)?'",
        )
    if parsed.described and isinstance(parsed.what, str) and questions.label_of(parsed.what) is not None:
        raise QuestionError(
            "what",
            f"'{parsed.what}' is the name of an object, not a word that describes one. Ask for example:"
            f" 'where is the {parsed.what}?'",
        )
    beside, too = _label_for(questions, parsed.beside), _label_for(questions, parsed.beside_too)
    parsed = replace(parsed, what=_label_for(questions, parsed.what), beside=beside, beside_too=too)
    if parsed.question == "last_seen" and parsed.many:
        known = questions.how_many(parsed.what, map_id=parsed.map_id).by_state
        if known.get("present", 0) > 1:
            return replace(parsed, question="search", states=("present",))
    return parsed


def _is_length(parsed: ParsedQuestion) -> bool:
    """Return True for *how wide* and *how big*, whose answers can have another unit."""
    return (
        parsed.question == "ranked" and parsed.comparing is not None and parsed.comparing.measure in LENGTHS
    )


def _label_for(questions: Questions, what: Any) -> Any:
    """Return the label that matches the words except for case and ending, or means the same; or the words."""
    if not isinstance(what, str) or names_place(questions.store, what):
        return what
    return questions.label_of(what) or questions.synonym_of(what) or what
