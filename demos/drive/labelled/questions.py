"""Questions about a labelled sequence, with answers from its labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from drive.frames import DAY_NS, START_NS
from drive.labelled.scans import PASSES
from drive.questions import BELIEVED, Question, StoreUnderTest
from drive.truth import Sight, Truth
from memory.query import Filter

#: Greatest deviation of a static object's labels from their median; fewest labels per pass for a question.
STANDS_M, LEAST_SIGHTS = 1.0, 3
#: Tolerance of answers about places and about times.
SAME_M, SAME_S = 2.0, 1.0
Place = tuple[float, float]


class AnswerSource(Protocol):
    """A memory that can answer questions."""

    def how_many(self, label: str, between_ns: tuple[int, int]) -> int:
        """Return the number of distinct objects of a label within a time."""

    def stood_at(self, label: str, place: Place) -> bool:
        """True if an object of a label stands within ``SAME_M`` of a place."""

    def last_seen(self, label: str, place: Place) -> int | None:
        """Return when an object of a label was last seen at a place, in nanoseconds."""

    def gone(self, label: str) -> int:
        """Return the number of objects of a label that stood somewhere and were found to be gone."""


class StoreAnswers:
    """Answers of a store."""

    def __init__(self, memories: StoreUnderTest) -> None:
        self._memories = memories

    def how_many(self, label: str, between_ns: tuple[int, int]) -> int:
        """See :class:`AnswerSource`."""
        return self._memories.questions.how_many(label, between_ns=between_ns).things

    def stood_at(self, label: str, place: Place) -> bool:
        """See :class:`AnswerSource`."""
        at = Filter(labels=(label,), kinds=("object",), states=BELIEVED, circle=(*place, SAME_M))
        return bool(self._memories.store.find(at, vectors=False))

    def last_seen(self, label: str, place: Place) -> int | None:
        """See :class:`AnswerSource`."""
        found = self._memories.latest_at(label, np.append(place, 0.0))
        return None if found is None else found.last_sight_ns

    def gone(self, label: str) -> int:
        """See :class:`AnswerSource`."""
        left = Filter(labels=(label,), kinds=("object",), states=("gone",))
        return len(self._memories.store.find(left, vectors=False))


@dataclass(frozen=True)
class LabelQuestion:
    """A question to any :class:`AnswerSource`; see :class:`drive.questions.Question`."""

    kind: str
    text: str
    expected: str
    position: Place | None
    answer: Callable[[AnswerSource], tuple[str, bool]]


def questions_of(truth: Truth, label: str = "Car") -> list[Question]:
    """Return the questions of :func:`label_questions`, for a store."""
    return [
        Question(
            about.kind,
            about.text,
            about.expected,
            about.position,
            lambda memories, answer=about.answer: answer(StoreAnswers(memories)),
        )
        for about in label_questions(truth, label)
    ]


def label_questions(truth: Truth, label: str = "Car") -> list[LabelQuestion]:
    """Return questions about counts, parked objects, times of last observation, and changes.

    Args:
        truth: of a sequence; with a single pass, there are no questions about places.
        label: of the objects.
    """
    passes = len(truth.days)
    of_label = [sights for sights in truth.sights.values() if sights[0].label == label]
    things = [sights for sights in of_label if len(sights) >= passes * LEAST_SIGHTS]
    found = [_how_many(of_label, label, day) for day in range(passes)]
    if passes == len(PASSES):
        parked = [sights for sights in things if stands(sights)]
        found += [_parked(sights, label) for sights in things]
        found += [_last_seen(sights, label) for sights in parked]
        found.append(_changed(label))
    return found


def stands(sights: list[Sight]) -> bool:
    """True if a labelled object is static."""
    places = np.array([sight.position for sight in sights])
    away = places - np.median(places, axis=0)
    return bool(np.hypot(away[:, 0], away[:, 1]).max() <= STANDS_M)


def span_of(day: int) -> tuple[int, int]:
    """Return the first and last nanosecond of a pass."""
    return START_NS + day * DAY_NS, START_NS + (day + 1) * DAY_NS - 1


def _how_many(things: list[list[Sight]], label: str, day: int) -> LabelQuestion:
    count = sum(any(sight.day == day for sight in sights) for sights in things)

    def answer(asked: AnswerSource) -> tuple[str, bool]:
        told = asked.how_many(label, span_of(day))
        return f"{told}", told == count

    text = f"How many different {label.lower()}s were passed on the way {PASSES[day]}?"
    return LabelQuestion("how many", text, f"{count}", None, answer)


def _parked(sights: list[Sight], label: str) -> LabelQuestion:
    place = _middle(sights)
    stood, drove = "it stood there", "it drove"
    expected = stood if stands(sights) else drove

    def answer(asked: AnswerSource) -> tuple[str, bool]:
        said = stood if asked.stood_at(label, place) else drove
        return said, said == expected

    text = f"Was the {label.lower()} at ({place[0]:.0f}, {place[1]:.0f}) parked?"
    return LabelQuestion("parked", text, expected, place, answer)


def _last_seen(sights: list[Sight], label: str) -> LabelQuestion:
    last, place = max(sight.time_ns for sight in sights), _middle(sights)

    def answer(asked: AnswerSource) -> tuple[str, bool]:
        found = asked.last_seen(label, place)
        if found is None:
            return "never", False
        late_s = (found - last) / 1e9
        return f"{late_s:+.1f} s from its last label", abs(late_s) <= SAME_S

    text = f"When was the {label.lower()} at ({place[0]:.0f}, {place[1]:.0f}) last seen?"
    return LabelQuestion("last seen", text, "with its last label", place, answer)


def _changed(label: str) -> LabelQuestion:
    """Return the question about departures; the answer is none, because both passes are the same sequence."""

    def answer(asked: AnswerSource) -> tuple[str, bool]:
        gone = asked.gone(label)
        return ("nothing" if not gone else f"{gone} parked {label.lower()}s", not gone)

    text = f"Which parked {label.lower()}s had left on the way back?"
    return LabelQuestion("changed", text, "nothing", None, answer)


def _middle(sights: list[Sight]) -> Place:
    x, y = np.median(np.array([sight.position for sight in sights]), axis=0).tolist()
    return x, y
