"""A question as a JSON object, checked field by field.

Programs and language models can ask so; the object means the same as a question in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args

from memory.exchange.times import parse_time
from memory.questions.answers import between_words
from memory.questions.boxes import MEASURES, RANK_MEASURES, RELATIONS, Order
from memory.questions.errors import QuestionError
from memory.questions.reading.comparing import Comparing
from memory.questions.reading.parsed import (
    BOUNDS,
    NEARBY_M,
    QUANTIFIERS,
    Bound,
    ObjectCondition,
    ParsedQuestion,
    by_distance,
)
from memory.questions.reading.selections.bounds import BOUND_WORDS
from memory.questions.reading.selections.conditions import as_list
from memory.questions.reading.times import Span, until_now
from memory.questions.reading.understanding import MOST_CHARACTERS
from memory.types import AWAY, KINDS, STATES
from memory.wording.words import moment, point

#: Largest number of a place in an order.
MOST_NTH = 4
#: Names of questions, and what each asks.
QUESTIONS: Mapping[str, str] = {
    "last_seen": "where and when what was last seen",
    "first_seen": "where and when what was first seen, how long it has been there",
    "left": "when what left: its last observation, and when it was found gone",
    "still_there": "whether what is still there",
    "how_many": "how many of what there are, also: is there any",
    "how_often": "how often and how long what was seen",
    "near": "what is around a point, or around beside",
    "related": "what stands in relation to beside (and second)",
    "distance": "how far what is from beside or near",
    "compare": "which of choices is closer to what (measure distance) or has more; or in which area most"
    " of what are (count, without choices)",
    "select": "which of what meet the conditions, or with quantifier whether so many of them do",
    "ranked": "which of what is the first by measure: nearest or farthest from beside or near, largest, seen"
    " most often, seen last",
    "between": "what was seen in a time",
    "new_between": "what was seen for the first time in a time",
    "changed_since": "what is new, gone or moved since a time",
    "search": "all memories of what",
    "summarise": "a summary of an area, a map or everything",
    "pose_to": "where to drive to reach what",
}
#: Fields and what each means.
FIELDS: Mapping[str, str] = {
    "question": "one of the names",
    "what": "object that is asked for: a label, words of its caption, or the id of a memory",
    "near": "x, y in metres",
    "radius_m": "around near or beside, in metres",
    "beside": "object whose place is meant: words or id",
    "relation": f"to beside: {', '.join(RELATIONS)}",
    "second": "second object of the relation between",
    "area": "name of an area",
    "map_id": "name of a map",
    "between": "first and last time, ISO 8601",
    "since": "start time, ISO 8601",
    "kinds": f"any of {', '.join(KINDS)}",
    "states": f"any of {', '.join(STATES)}",
    "measure": f"of compare: {', '.join(MEASURES)}; of ranked: {', '.join(RANK_MEASURES)}",
    "order": f"of compare and ranked: {', '.join(get_args(Order))}; nearest is less",
    "nth": "of ranked: 2 for the second in this order",
    "choices": "of compare: names of two or more objects",
    "excluding": "of select and ranked: objects that do not count, words or ids",
    "conditions": "of select and ranked: objects, each with query (a query for a list that has to hold what"
    f" is meant), or with measure, bound ({', '.join(BOUNDS)}) and value (metres, m³, m/s, observations,"
    " seconds, or a time) or anchor (object to compare with, or to measure a distance from); also negated",
    "quantifier": f"of select: {', '.join(QUANTIFIERS)}",
}
#: Maximum conditions of a query.
MOST_CONDITIONS = 8
_TIMES = ("first_seen", "last_seen")
_WHEN: Mapping[Bound, str] = {
    "more": "after", "at least": "from", "less": "before", "at most": "until", "exactly": "at",
}  # fmt: skip
_CONDITION_FIELDS = ("query", "measure", "bound", "value", "anchor", "near", "negated")


def schema() -> dict[str, Any]:
    """Return the JSON schema of a structured query."""
    names = {"type": "array", "items": {"type": "string"}}
    numbers = {"type": "array", "items": {"type": "number"}}
    kinds: dict[str, dict[str, Any]] = {
        "question": {"enum": list(QUESTIONS)},
        "what": {"type": ["string", "integer"]},
        "near": numbers | {"minItems": 2, "maxItems": 3},
        "radius_m": {"type": "number", "minimum": 0},
        "beside": {"type": ["string", "integer"]},
        "relation": {"enum": list(RELATIONS)},
        "second": {"type": ["string", "integer"]},
        "between": names | {"minItems": 2, "maxItems": 2},
        "kinds": {"type": "array", "items": {"enum": list(KINDS)}},
        "states": {"type": "array", "items": {"enum": list(STATES)}},
        "measure": {"enum": list(MEASURES)},
        "order": {"enum": list(get_args(Order))},
        "nth": {"type": "integer", "minimum": 1, "maximum": MOST_NTH},
        "choices": names,
        "excluding": {"type": "array", "items": {"type": ["string", "integer"]}},
        "conditions": {"type": "array", "maxItems": MOST_CONDITIONS, "items": {"type": "object"}},
        "quantifier": {"enum": list(QUANTIFIERS)},
    }
    fields = {
        name: kinds.get(name, {"type": "string"}) | {"description": text} for name, text in FIELDS.items()
    }
    return {
        "type": "object",
        "properties": fields,
        "required": ["question"],
        "additionalProperties": False,
    }


def parse_query(values: Mapping[str, Any]) -> ParsedQuestion:
    """Return the question of a structured query.

    Args:
        values: fields as in :data:`FIELDS`; ``None`` counts as missing.

    Raises:
        QuestionError: a field is unknown, missing or invalid.
    """
    if not isinstance(values, Mapping):
        raise QuestionError("query", f"a query is a JSON object, got {type(values).__name__}")
    given = {name: value for name, value in values.items() if value is not None}
    for name in given:
        if name not in FIELDS:
            raise QuestionError("query", f"unknown field {name!r}. Fields: {', '.join(FIELDS)}")
    question = str(given.get("question"))
    if question not in QUESTIONS:
        raise QuestionError("question", f"question must be one of {', '.join(QUESTIONS)}; got {question!r}")
    parts = {name: _CHECKS[name](name, value) for name, value in given.items() if name != "question"}
    measure, order, choices, nth = (parts.pop(name, None) for name in ("measure", "order", "choices", "nth"))
    second, excluding = parts.pop("second", None), parts.pop("excluding", ())
    parts["conditions"] = (*parts.get("conditions", ()), *excluding)
    if question not in ("select", "ranked") and (parts["conditions"] or "quantifier" in parts):
        raise QuestionError("conditions", f"'{question}' has no conditions. Use select or ranked")
    if question == "ranked" and "quantifier" in parts:
        raise QuestionError("quantifier", "'ranked' has no quantifier. Use select")
    found = ParsedQuestion(question, beside_too=second, **parts)
    if question == "compare":
        if measure not in MEASURES or (measure != "count" and len(choices or ()) < 2) or nth:
            raise QuestionError(
                "measure", "'compare' needs measure, and at least two choices unless it counts"
            )
        found = replace(found, comparing=Comparing(measure, order or "more", choices or ()))
    elif question == "ranked":
        if measure not in RANK_MEASURES or order not in ("more", "less") or choices:
            raise QuestionError(
                "measure",
                f"'ranked' needs order more or less, and measure: {', '.join(RANK_MEASURES)}",
            )
        found = replace(found, comparing=Comparing(measure, order, (), nth=nth or 1))
    elif measure or order or choices or nth:
        raise QuestionError(
            "measure", f"'{question}' does not compare. Remove measure, order, nth and choices"
        )
    _check_relation(found)
    if found.radius_m is None and (found.near is not None or found.beside is not None):
        bounded = question not in ("related", "distance", "compare") and not by_distance(found)
        found.radius_m = NEARBY_M if bounded and found.relation is None else None
    return found


def _check_relation(found: ParsedQuestion) -> None:
    """Raise ``QuestionError`` for a missing relation, or one that the question does not use."""
    if found.question == "select" or (found.question == "ranked" and not by_distance(found)):
        if found.relation is not None and found.beside is None:
            raise QuestionError("beside", "a relation needs beside, the object that it refers to")
    elif (found.question == "related") != (found.relation is not None):
        raise QuestionError("relation", "'related' needs a relation, and other questions have none")


def query_of(asked: ParsedQuestion) -> dict[str, Any]:
    """Return the structured query of a question that the grammar understood."""
    found: dict[str, Any] = {"question": asked.question}
    for name in FIELDS:
        value = getattr(asked, "beside_too" if name == "second" else name, None)
        if value is not None and name != "question":
            found[name] = list(value) if isinstance(value, tuple) else value
    if asked.comparing is not None:
        found |= {"measure": asked.comparing.measure, "order": asked.comparing.order}
        if asked.comparing.nth > 1:
            found["nth"] = asked.comparing.nth
        if asked.comparing.choices:
            found["choices"] = list(asked.comparing.choices)
    found.pop("conditions", None)
    if asked.conditions:
        found["conditions"] = [_condition_query(each) for each in asked.conditions]
    return found


def _condition_query(condition: ObjectCondition) -> dict[str, Any]:
    """Return a condition as an object of a structured query."""
    negated = {"negated": True} if condition.negated else {}
    if condition.asked:
        queries = [query_of(each) for each in condition.asked]
        return {"query": queries if len(queries) > 1 else queries[0], **negated}
    value: Any = condition.value
    if value is not None and condition.measure in _TIMES:
        value = int(value)
    parts = {"value": value, "anchor": condition.anchor, "near": condition.near}
    given = {
        name: list(each) if isinstance(each, tuple) else each
        for name, each in parts.items()
        if each is not None
    }
    return {"measure": condition.measure, "bound": condition.bound, **given, **negated}


def _conditions(name: str, value: Any) -> tuple[ObjectCondition, ...]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MOST_CONDITIONS:
        raise QuestionError(name, f"{name} must be a list of 1 to {MOST_CONDITIONS} objects, got {value!r}")
    return tuple(_condition(name, each) for each in value)


def _condition(name: str, value: Any) -> ObjectCondition:
    """Return a condition of a structured query."""
    fields = ", ".join(_CONDITION_FIELDS)
    if not isinstance(value, Mapping) or not set(value) <= set(_CONDITION_FIELDS):
        raise QuestionError(name, f"a condition is an object with the fields {fields}; got {value!r}")
    negated = value.get("negated", False)
    if not isinstance(negated, bool) or ("query" in value) == ("measure" in value):
        raise QuestionError(name, f"a condition has either query or measure; negated is a boolean: {value!r}")
    prefix = "not " if negated else ""
    if "query" in value:
        queries = value["query"] if isinstance(value["query"], list) else [value["query"]]
        found = [as_list(parse_query(query)) for query in queries[:MOST_CONDITIONS]]
        lists = tuple(each for each in found if each is not None and not each.conditions)
        if not lists or len(lists) < len(queries):
            raise QuestionError(name, f"the query of a condition must be for a plain list, got {value!r}")
        words = " or ".join(map(_words_of, lists))
        return ObjectCondition(f"{prefix}{words}", lists, negated=negated)
    measure, bound = _choice(RANK_MEASURES)(name, value["measure"]), _choice(BOUNDS)(name, value.get("bound"))
    amount, anchor, near = value.get("value"), value.get("anchor"), value.get("near")
    given = [each is not None for each in (amount, anchor, near)]
    if given not in ([[1, 1, 0], [1, 0, 1]] if measure == "distance" else [[1, 0, 0], [0, 1, 0]]):
        raise QuestionError(
            name, f"a measure needs value or anchor, and distance needs value with anchor or near: {value!r}"
        )
    if measure in _TIMES and isinstance(amount, str):
        amount = _time(name, amount)
    amount = None if amount is None else _number(name, amount)
    anchor, near = (
        None if anchor is None else _name(name, anchor),
        None if near is None else _point(name, near),
    )
    origin = "" if measure != "distance" else f" from {anchor if near is None else point(near)}"
    if measure in _TIMES and amount is not None:
        limit = f"{_WHEN[bound]} {moment(int(amount))}"  # type: ignore[index]
    else:
        limit = f"{BOUND_WORDS[bound]} {anchor if amount is None else f'{amount:g}'}{origin}"  # type: ignore[index]
    words = f"{prefix}of {measure.replace('_', ' ')} {limit}"
    return ObjectCondition(words, (), measure, bound, amount, anchor, near, negated)  # type: ignore[arg-type]


def _words_of(asked: ParsedQuestion) -> str:
    """Return what a list holds, in words."""
    beside = "" if asked.beside is None else f"{asked.relation or 'near'} {asked.beside}"
    near = "" if asked.near is None else f"near {point(asked.near)}"
    area = "" if asked.area is None else f"in {asked.area}"
    span = asked.between or (None if asked.since is None else until_now(asked.since))
    when = "" if span is None else f"seen {between_words(span)}"
    left = "gone" if asked.states == AWAY else ""
    parts = (asked.what, left, beside, near, area, asked.map_id, when)
    return " ".join(str(part) for part in parts if part)


def _excluding(name: str, value: Any) -> tuple[ObjectCondition, ...]:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MOST_CONDITIONS:
        raise QuestionError(name, f"{name} must be a list of 1 to {MOST_CONDITIONS} objects, got {value!r}")
    asked = tuple(ParsedQuestion("select", what=_name(name, each)) for each in value)
    return (
        ObjectCondition(f"other than {' and '.join(str(each.what) for each in asked)}", asked, negated=True),
    )


def _name(name: str, value: Any) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63:
        return value
    return _text(name, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MOST_CHARACTERS or "\0" in value:
        raise QuestionError(name, f"{name} must be a short text, got {value!r}"[:MOST_CHARACTERS])
    return value.strip()


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise QuestionError(name, f"{name} must be a finite number, got {value!r}")
    return float(value)


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_NTH:
        raise QuestionError(name, f"{name} must be a whole number from 1 to {MOST_NTH}, got {value!r}")
    return value


def _radius(name: str, value: Any) -> float:
    radius = _number(name, value)
    if radius < 0.0:
        raise QuestionError(name, f"{name} must not be negative, got {value!r}")
    return radius


def _point(name: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or len(value) not in (2, 3):
        raise QuestionError(name, f"{name} must be x and y in metres, got {value!r}")
    return tuple(_number(name, number) for number in value)


def _time(name: str, value: Any, *, end: bool = False) -> int:
    try:
        return parse_time(_text(name, value), end=end)
    except ValueError as error:
        raise QuestionError(name, f"{name}: {error}") from error


def _span(name: str, value: Any) -> Span:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise QuestionError(name, f"{name} must be the first and the last time, got {value!r}")
    first, last = _time(name, value[0]), _time(name, value[1], end=True)
    if first > last:
        raise QuestionError(name, f"{name}: the first time is after the last. Swap them")
    return Span(first, last)


def _choice(allowed: tuple[str, ...]) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in allowed:
            raise QuestionError(name, f"{name} must be one of {', '.join(allowed)}; got {value!r}")
        return str(value)

    return check


def _choices(allowed: tuple[str, ...] | None) -> Callable[[str, Any], tuple[str, ...]]:
    def check(name: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not 1 <= len(value) <= 20:
            raise QuestionError(name, f"{name} must be a list of 1 to 20 names, got {value!r}")
        one = _text if allowed is None else _choice(allowed)
        return tuple(one(name, each) for each in value)

    return check


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "what": _name,
    "near": _point,
    "radius_m": _radius,
    "beside": _name,
    "relation": _choice(RELATIONS),
    "second": _name,
    "area": _text,
    "map_id": _text,
    "between": _span,
    "since": _time,
    "kinds": _choices(KINDS),
    "states": _choices(STATES),
    "measure": _choice(MEASURES),
    "order": _choice(get_args(Order)),
    "nth": _count,
    "choices": _choices(None),
    "excluding": _excluding,
    "conditions": _conditions,
    "quantifier": _choice(QUANTIFIERS),
}
