"""Conditions on the memories of a list: each is met, not met, or not known to be met."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from memory.areas import find_area
from memory.query import Filter
from memory.questions.answers import Answer
from memory.questions.asking import Questions
from memory.questions.boxes import MEANINGS, Order, RobotPose
from memory.questions.errors import QuestionError
from memory.questions.measuring import answer_related, area_of, time_of
from memory.questions.places import circle_of
from memory.questions.ranking import value_of, value_words
from memory.questions.reading.parsed import ObjectCondition, ParsedQuestion, Quantifier
from memory.questions.relations import MOST_CANDIDATES
from memory.questions.selections.answers import KindList, Selection
from memory.types import AWAY, STATES, Kind, Memory, State
from memory.wording.words import listed, name, point

#: Whether a memory meets a condition; ``None`` if it is not known.
Judge = Callable[[Memory], bool | None]


class AskedList(NamedTuple):
    """The answer to the question of a condition, the meanings of its words, and its sentence."""

    answer: Answer
    notes: tuple[str, ...]
    sentence: str


class ListOptions(NamedTuple):
    """Options of a list.

    Attributes:
        pose: x, y in metres and yaw in radians of the robot.
        labels, kinds, states: filters of the list.
        k: maximum number of memories that the answer holds.
        place: place of the list in words.
    """

    pose: RobotPose | None
    labels: Sequence[str] | None
    kinds: Sequence[Kind] | None
    states: Sequence[State] | None
    k: int
    place: str


class _Listed(NamedTuple):
    """The memories of a list, the unclear ones, and the number of memories that left."""

    words: str
    memories: list[Memory]
    unclear: tuple[Memory, ...]
    left: int


class _Judged(NamedTuple):
    """A condition in words, whether a memory meets it, its measured value, and what its words mean."""

    words: str
    judge: Judge
    value: Callable[[Memory], str] | None
    notes: tuple[str, ...]


def answer_selected(
    questions: Questions,
    parsed: ParsedQuestion,
    options: ListOptions,
    ask: Callable[[ParsedQuestion], AskedList],
) -> Selection:
    """Return the memories of a list that meet the conditions of a question.

    Args:
        questions: about the store.
        parsed: question with its place replaced by a point, an area or a relation.
        options: of the list.
        ask: answers the questions of the conditions.

    Raises:
        QuestionError: an object of a condition is not known, or its measure is not.
    """
    found = _listed(questions, parsed, options)
    judged = [_judged(questions, parsed, condition, ask) for condition in parsed.conditions]
    groups: dict[bool | None, list[Memory]] = {True: [], False: [], None: list(found.unclear)}
    for memory in found.memories:
        groups[_both(each.judge(memory) for each in judged)].append(memory)
    meeting, others, unclear = groups[True], groups[False], groups[None]
    value = next((each.value for each in judged if each.value is not None), None)
    shown = meeting[: options.k]
    means = () if parsed.relation is None else (f"{MEANINGS[parsed.relation]}.",)
    return Selection(
        what=found.words,
        place=options.place,
        between_ns=time_of(parsed),
        conditions=tuple(each.words for each in judged if each.words),
        quantifier=parsed.quantifier,
        holds=_holds(parsed.quantifier, groups),
        memories=tuple(shown),
        total=len(meeting),
        others=tuple(others[: options.k]),
        compared=len(meeting) + len(others) + len(unclear),
        unclear=tuple(unclear[: options.k]),
        values=() if value is None else tuple(value(memory) for memory in (*shown, *others[: options.k])),
        left=found.left,
        notes=tuple(dict.fromkeys((*means, *(note for each in judged for note in each.notes)))),
    )


def answer_kinds(questions: Questions, parsed: ParsedQuestion, place: str) -> KindList:
    """Return the labels of what is there, or was seen in a time.

    Args:
        questions: about the store.
        parsed: question with its place replaced by a point or an area.
        place: in words.

    Raises:
        QuestionError: the object is one label, whose kinds are not stored.
    """
    limits = Filter(
        map_id=parsed.map_id, area=parsed.area, circle=circle_of(parsed.near, parsed.radius_m),
        between_ns=time_of(parsed), kinds=("object",) if parsed.what is None else None,
    )  # fmt: skip
    words, found = questions.candidates(parsed.what, limits, past=parsed.past)
    if isinstance(parsed.what, str) and questions.label_of(parsed.what) is not None:
        raise QuestionError(
            "what",
            f"Kinds of {parsed.what} are not stored. Ask for example: 'how many {parsed.what}s are there?'",
        )
    counts = Counter(memory.label for memory in found)
    return KindList(words, place, dict(counts.most_common()))


def _listed(questions: Questions, parsed: ParsedQuestion, options: ListOptions) -> _Listed:
    """Return the memories of a list: what is there, or was seen in its time."""
    states: Sequence[State] | None = options.states or parsed.states
    timed = time_of(parsed)
    if parsed.relation is not None:
        every_state = STATES if parsed.past else None
        limited = replace(parsed, states=every_state if states is None else tuple(states))
        related = answer_related(questions, limited, options.pose, MOST_CANDIDATES)
        return _Listed(related.what, list(related.memories), related.unclear, 0)
    every = parsed.past or timed is not None
    kinds: Sequence[Kind] | None = options.kinds or parsed.kinds
    if parsed.what is None and kinds is None:
        kinds = ("object", "event") if every else ("object",)
    # An event of last week was not seen today either, but nobody looks for it.
    unseen = any(each.negated and any(map(time_of, each.asked)) for each in parsed.conditions)
    if unseen and timed is None and options.kinds is None and kinds is not None:
        kinds = [kind for kind in kinds if kind != "event"] or kinds
    circle = None if parsed.radius_m is None else circle_of(parsed.near, parsed.radius_m)
    limits = Filter(
        kinds=kinds, labels=options.labels, states=states, map_id=parsed.map_id, area=parsed.area,
        circle=circle, between_ns=timed,
    )  # fmt: skip
    words, found = questions.candidates(parsed.what, limits, past=True)
    found.sort(key=lambda memory: (memory.last_sight_ns, memory.id or 0), reverse=True)
    now = [memory for memory in found if memory.state not in AWAY]
    if parsed.quantifier == "both":
        now = _two(words, now if len(now) == 2 else found)
    elif every or states is not None or not now:
        now = found
    return _Listed(words, now, (), len(found) - len(now))


def _two(words: str, found: list[Memory]) -> list[Memory]:
    if len(found) != 2 and found:
        raise QuestionError(
            "text",
            f"'both' needs two objects, and the store has {len(found)} memories of {words}. Ask for example:"
            f" 'are all {words.lower()}s there?'",
        )
    return found


def _both(verdicts: Iterable[bool | None]) -> bool | None:
    """Return True if all are met, False if one is not."""
    found = list(verdicts)
    return False if False in found else None if None in found else True


def _holds(quantifier: Quantifier | None, groups: dict[bool | None, list[Memory]]) -> bool | None:
    """Return whether as many memories as a quantifier says meet the conditions."""
    if quantifier is None or not any(groups.values()):
        return None
    against = groups[False] if quantifier in ("all", "both") else groups[True]
    if against:
        return quantifier == "any"
    return None if groups[None] else quantifier != "any"


def _judged(
    questions: Questions,
    parsed: ParsedQuestion,
    condition: ObjectCondition,
    ask: Callable[[ParsedQuestion], AskedList],
) -> _Judged:
    """Return a condition that can be checked."""
    found = _in_lists(parsed, condition, ask) if condition.asked else _bounded(questions, parsed, condition)
    if not condition.negated:
        return found
    judge = found.judge

    def opposite(memory: Memory) -> bool | None:
        met = judge(memory)
        return None if met is None else not met

    return found._replace(judge=opposite)


def _in_lists(
    parsed: ParsedQuestion, condition: ObjectCondition, ask: Callable[[ParsedQuestion], AskedList]
) -> _Judged:
    """Return the condition that a memory is in one of several lists."""
    ids: set[int | None] = set()
    unclear: set[int | None] = set()
    notes: list[str] = []
    placed = False
    for question in condition.asked:
        what = parsed.what if question.what is None else question.what
        sub = replace(question, what=what, map_id=question.map_id or parsed.map_id, past=True)
        answer, meanings, sentence = ask(sub)
        if not isinstance(answer, Selection) or (question.what is not None and not answer.compared):
            raise QuestionError("what", sentence)
        ids |= {memory.id for memory in answer.memories}
        unclear |= {memory.id for memory in answer.unclear}
        notes += meanings
        if question.near is not None and question.radius_m is not None:
            notes.append(f"Near means within {question.radius_m:g} m of {point(question.near)}.")
        placed = placed or any(
            each is not None for each in (question.near, question.beside, question.robot, question.area)
        )

    def judge(memory: Memory) -> bool | None:
        if memory.id in ids:
            return True
        return None if memory.id in unclear or (placed and memory.position is None) else False

    return _Judged(condition.words, judge, None, tuple(notes))


def _bounded(questions: Questions, parsed: ParsedQuestion, condition: ObjectCondition) -> _Judged:
    """Return the condition that a value of a memory is within a bound."""
    measure, span = condition.measure, time_of(parsed)
    if measure is None:
        raise QuestionError("conditions", "a condition needs a question or a measure")
    order: Order = "less" if condition.bound in ("less", "at most") else "more"
    anchors: list[Memory] = []
    if condition.anchor is not None:
        anchors = questions.candidates(condition.anchor, Filter(map_id=parsed.map_id)).memories
    origins = _origins(questions, parsed, condition, anchors) if measure == "distance" else []
    words, low, high = condition.words, condition.value or 0.0, condition.value or 0.0

    def value(memory: Memory) -> float | None:
        if measure == "distance":
            far = [
                math.dist(memory.position[:2], at)
                for map_id, at in origins
                if memory.position is not None and map_id in (None, memory.map_id)
            ]
            return min(far, default=None)
        rank = value_of(memory, measure, order, None, span)
        return None if rank is None else rank.value

    if condition.anchor is not None and measure != "distance":
        known = [each for anchor in anchors if (each := value(anchor)) is not None]
        if not known:
            raise QuestionError("what", _unknown(questions, condition, anchors))
        low, high = min(known), max(known)
        ends = list(dict.fromkeys((value_words(measure, low), value_words(measure, high))))
        words = f"{words} ({listed([name(anchor) for anchor in anchors])}, {' to '.join(ends)})"

    def judge(memory: Memory) -> bool | None:
        found = value(memory)
        if found is None:
            return None
        certain, possible = {
            "more": (found > high, found > low),
            "at least": (found >= high, found >= low),
            "less": (found < low, found < high),
            "at most": (found <= low, found <= high),
            "exactly": (found == low, found == low),
        }[condition.bound]
        return True if certain else None if possible else False

    def said(memory: Memory) -> str:
        found = value(memory)
        return "" if found is None or measure is None else value_words(measure, found)

    return _Judged(words, judge, said, ())


def _unknown(questions: Questions, condition: ObjectCondition, anchors: Sequence[Memory]) -> str:
    if anchors:
        measure = str(condition.measure).replace("_", " ")
        return (
            f"The {measure} of {condition.anchor} is not known. Ask for example: 'where is the"
            f" {condition.anchor}?'"
        )
    return f"I don't know an object called '{condition.anchor}'. Ask for example: 'what is there?'"


def _origins(
    questions: Questions, parsed: ParsedQuestion, condition: ObjectCondition, anchors: Sequence[Memory]
) -> list[tuple[str | None, Sequence[float]]]:
    """Return the maps and points that distances are measured from."""
    if condition.near is not None:
        return [(parsed.map_id, condition.near[:2])]
    placed = [(memory.map_id, memory.position[:2]) for memory in anchors if memory.position is not None]
    if placed:
        return [*placed]
    where = area_of(questions, condition.anchor, parsed.map_id)
    if where is None or where.area is None:
        raise QuestionError("what", _unknown(questions, condition, ()))
    return [(where.map_id, find_area(questions.store.areas(), where.area, where.map_id).centre)]
