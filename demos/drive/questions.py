"""Questions about a drive, with answers from the simulator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from drive.frames import DAY_NS, START_NS, Place
from drive.truth import Truth, same_places
from memory import Memory, MemoryStore, Query
from memory.questions import Questions
from memory.questions.visits import visits_of
from memory.types import State

#: Tolerance of answers about times and about places.
RIGHT_S, SAME_PLACE_M = 30.0, 8.0
#: Greatest distance between a memory and the place of its object.
AT_M = 1.5
BELIEVED: tuple[State, ...] = ("present", "unknown")


class StoreUnderTest:
    """A store that answers questions.

    Args:
        store: open.
        since: number of its last operation before the last day.
    """

    def __init__(self, store: MemoryStore, since: int) -> None:
        self.store = store
        self.since = since
        self.questions = Questions(store)

    def at(self, label: str, position: NDArray[np.float64]) -> list[Memory]:
        """Return memories of a label at a place, closest first."""
        found = self.questions.near(tuple(position), AT_M, labels=[label], kinds=["object"], k=500)
        return [hit.memory for hit in found.hits]

    def latest_at(self, label: str, position: NDArray[np.float64]) -> Memory | None:
        """Return the most recently seen of them."""
        return max(self.at(label, position), key=lambda memory: memory.last_sight_ns, default=None)


@dataclass(frozen=True)
class Question:
    """A question and the check of its answer.

    Attributes:
        kind: of question.
        text: in words.
        expected: the right answer in words.
        position: of the place in question, or None.
        answer: returns a store's answer in words, and whether it is right.
    """

    kind: str
    text: str
    expected: str
    position: tuple[float, float] | None
    answer: Callable[[StoreUnderTest], tuple[str, bool]]


@dataclass(frozen=True)
class Answer:
    """An answer of a store.

    Attributes:
        kind, text, expected: of the question.
        said: the answer in words.
        right: True if the answer is right.
        ms: time to answer.
        position: of the place in question.
    """

    kind: str
    text: str
    expected: str
    said: str
    right: bool
    ms: float
    position: tuple[float, float] | None


def ask(memories: StoreUnderTest, questions: Sequence[Question]) -> list[Answer]:
    """Ask all questions."""
    answers = []
    for question in questions:
        started = time.perf_counter()
        said, right = question.answer(memories)
        took = 1e3 * (time.perf_counter() - started)
        answers.append(
            Answer(question.kind, question.text, question.expected, said, right, took, question.position)
        )
    return answers


def questions_about(
    truth: Truth, looks: Sequence[tuple[NDArray[np.float64], NDArray[np.float32]]], *, each: int, seed: int
) -> list[Question]:
    """Return questions of every kind; those about changes need two days.

    Args:
        truth: of the drive.
        looks: (2,) positions in metres that were not stored as places, with their vectors.
        each: most questions per kind.
        seed: of the selection.
    """
    rng = np.random.default_rng([seed, 31])
    found = [*_last_seen_labels(truth), *_last_seen_places(truth, each, rng), *_nearby(truth, each, rng)]
    if truth.last_day > 0:
        found += [*_changed(truth, each, rng), *_still_there(truth, each, rng)]
    found += [*_how_often(truth, each, rng), *_where_was_this(looks, each)]
    # A bay that changed cars is chosen twice; ask about it once.
    return list({(question.kind, question.text): question for question in found}.values())


def _last_seen_labels(truth: Truth) -> Iterator[Question]:
    sights = sorted((s for of in truth.sights.values() for s in of), key=lambda sight: sight.time_ns)
    for label in sorted({sight.label for sight in sights}):
        last = [sight for sight in sights if sight.label == label]
        yield last_seen_question(label, last[-1].time_ns)


def last_seen_question(label: str, expected_ns: int) -> Question:
    """Ask when any object of a label was last seen."""

    def answer(memories: StoreUnderTest) -> tuple[str, bool]:
        found = memories.questions.last_seen(label).time_ns
        return _moment(found), _same_time(found, expected_ns)

    return Question("last seen", f"When was a {label} last seen?", _moment(expected_ns), None, answer)


def _last_seen_places(truth: Truth, each: int, rng: np.random.Generator) -> Iterator[Question]:
    """Yield questions about objects of any day; half of them are gone by now."""
    now = {place.key for place in truth.there()}
    gone = [of[-1] for key, of in truth.sights.items() if key not in now]
    there = [of[-1] for key, of in truth.sights.items() if key in now]
    for sight in [*_some(gone, each // 2, rng), *_some(there, each - each // 2, rng)]:
        expected = truth.seen_at(sight.label, sight.position)[-1].time_ns
        yield last_seen_at_question(sight.label, sight.position, expected)


def last_seen_at_question(label: str, position: NDArray[np.float64], expected_ns: int) -> Question:
    """Ask when an object of a label was last seen at a place."""

    def answer(memories: StoreUnderTest) -> tuple[str, bool]:
        memory = memories.latest_at(label, position)
        found = None if memory is None else memories.questions.last_seen(memory.id or 0).time_ns
        return _moment(found), _same_time(found, expected_ns)

    text = f"When was the {label} at {_words(position)} last seen?"
    return Question("last seen", text, _moment(expected_ns), _pair(position), answer)


def _nearby(truth: Truth, each: int, rng: np.random.Generator, radius_m: float = 10.0) -> Iterator[Question]:
    """Yield questions about circles near parked cars, without a car at the edge."""
    cars = truth.there(labels=["Car"])
    middles = [car.position + rng.normal(0.0, 3.0, 2) for car in _some(cars, 4 * each, rng)]

    def sharp(middle: NDArray[np.float64]) -> bool:
        away = [float(np.hypot(*(car.position - middle))) for car in cars]
        return all(abs(distance - radius_m) > 1.0 for distance in away)

    for middle in [middle for middle in middles if sharp(middle)][:each]:
        inside = [car for car in cars if np.hypot(*(car.position - middle)) < radius_m]
        yield nearby_question(middle, radius_m, inside)


def nearby_question(middle: NDArray[np.float64], radius_m: float, expected: Sequence[Place]) -> Question:
    """Ask which cars are around a point; each must appear once, at its place."""

    def answer(memories: StoreUnderTest) -> tuple[str, bool]:
        found = memories.questions.near(tuple(middle), radius_m, labels=["Car"], kinds=["object"], k=500)
        there = [hit.memory for hit in found.hits if hit.memory.state in BELIEVED]
        return f"{len(there)}", same_places(there, expected)

    text = f"Which cars are within {radius_m:g} m of {_words(middle)}?"
    return Question("nearby", text, f"{len(expected)}", _pair(middle), answer)


def _changed(truth: Truth, each: int, rng: np.random.Generator, radius_m: float = 8.0) -> Iterator[Question]:
    """Yield questions about places where a car came or left, and about others."""
    before = truth.there(truth.last_day - 1, labels=["Car"])
    after = truth.there(labels=["Car"])
    came, left = _without(after, before), _without(before, after)
    touched = [*_some(came, each // 4, rng), *_some(left, each // 2 - each // 4, rng)]
    stayed = _without(after, came)
    for place in [*touched, *_some(stayed, each - len(touched), rng)]:

        def around(found: list[Place], middle: NDArray[np.float64] = place.position) -> list[Place]:
            return [other for other in found if np.hypot(*(other.position - middle)) < radius_m]

        edge = [abs(float(np.hypot(*(p.position - place.position))) - radius_m) for p in [*came, *left]]
        if min(edge, default=9.0) > 1.0:
            since = START_NS + truth.last_day * DAY_NS
            yield changed_question(place.position, radius_m, since, around(came), around(left))


def changed_question(
    middle: NDArray[np.float64],
    radius_m: float,
    since_ns: int,
    came: Sequence[Place],
    left: Sequence[Place],
) -> Question:
    """Ask which cars came and left around a point since a time."""

    def answer(memories: StoreUnderTest) -> tuple[str, bool]:
        changed = memories.questions.changed_since(
            since_ns, near=tuple(middle), radius_m=radius_m, after=memories.since
        )
        new = [memory for memory in changed.new if memory.label == "Car"]
        gone = [memory for memory in (*changed.gone, *changed.moved) if memory.label == "Car"]
        return f"{len(new)} new, {len(gone)} gone", same_places(new, came) and same_places(gone, left)

    text = f"Which cars came or left within {radius_m:g} m of {_words(middle)} since yesterday?"
    return Question("changed", text, f"{len(came)} new, {len(left)} gone", _pair(middle), answer)


def _still_there(truth: Truth, each: int, rng: np.random.Generator) -> Iterator[Question]:
    """Yield questions about yesterday's cars, half of which left if there are enough."""
    before, after = truth.there(truth.last_day - 1, labels=["Car"]), truth.there(labels=["Car"])
    stays = {
        car.key: any(np.hypot(*(car.position - other.position)) < 1.0 for other in after) for car in before
    }
    left = _some([car for car in before if not stays[car.key]], each // 2, rng)
    for car in [*left, *_some([car for car in before if stays[car.key]], each - len(left), rng)]:
        yield still_there_question(car.label, car.position, stays[car.key])


def still_there_question(label: str, position: NDArray[np.float64], expected: bool) -> Question:
    """Ask whether an object is still at its place; "unknown" counts as wrong."""

    def answer(memories: StoreUnderTest) -> tuple[str, bool]:
        memory = memories.latest_at(label, position)
        if memory is None or memory.id is None:
            return "no memory of it", False
        state = memories.questions.still_there(memory.id).state
        # If nobody looked since, the store's belief is judged instead.
        state = memory.state if state == "unknown" else state
        return state, (state == "present") if expected else (state in ("gone", "moved"))

    text = f"Is the {label} of yesterday still at {_words(position)}?"
    return Question("still there", text, "present" if expected else "gone", _pair(position), answer)


def _how_often(truth: Truth, each: int, rng: np.random.Generator) -> Iterator[Question]:
    for label in sorted({of[0].label for of in truth.sights.values()}):
        days = {s.day for of in truth.sights.values() for s in of if s.label == label}
        yield how_often_question(label, None, len(days))
    cars = [of[-1] for of in truth.sights.values() if of[-1].label == "Car"]
    for car in _some(cars, each, rng):
        days = {sight.day for sight in truth.seen_at("Car", car.position)}
        yield how_often_question("Car", car.position, len(days))


def how_often_question(label: str, position: NDArray[np.float64] | None, expected: int) -> Question:
    """Ask on how many days an object of a label was seen, anywhere or at a place."""

    def answer(memories: StoreUnderTest) -> tuple[str, bool]:
        if position is None:
            days = memories.questions.how_often(label).days
        else:
            days = len(visits_of(memories.at(label, position), gap_s=60.0).days)
        return f"{days}", days == expected

    where = "" if position is None else f" at {_words(position)}"
    text = f"On how many days was a {label} seen{where}?"
    return Question("how often", text, f"{expected}", None if position is None else _pair(position), answer)


def _where_was_this(
    looks: Sequence[tuple[NDArray[np.float64], NDArray[np.float32]]], each: int
) -> Iterator[Question]:
    for position, vector in looks[:: max(1, len(looks) // each)][:each]:
        yield place_question(position, vector)


def place_question(position: NDArray[np.float64], vector: NDArray[np.float32]) -> Question:
    """Ask for the pose of the most similar place."""

    def answer(memories: StoreUnderTest) -> tuple[str, bool]:
        hits = memories.store.query(Query(embedding=vector, kinds=["place"], k=1))
        if not hits:
            return "nowhere", False
        away = float(np.hypot(*(np.array(hits[0].memory.position[:2]) - position)))
        return f"{away:.1f} m away", away <= SAME_PLACE_M

    text = f"Where does it look like this? (from {_words(position)})"
    return Question("place", text, f"within {SAME_PLACE_M:g} m", _pair(position), answer)


def _some(found: Sequence, count: int, rng: np.random.Generator) -> list:
    """Return a random selection of at most ``count`` items."""
    return [found[k] for k in rng.permutation(len(found))[:count].tolist()]


def _without(places: Sequence[Place], others: Sequence[Place]) -> list[Place]:
    """Return the places that others do not contain as the same object at the same position."""
    return [
        place
        for place in places
        if not any(
            place.key == other.key and np.hypot(*(place.position - other.position)) < 1.0 for other in others
        )
    ]


def _same_time(found: int | None, expected_ns: int) -> bool:
    return found is not None and abs(found - expected_ns) <= RIGHT_S * 1e9


def _moment(time_ns: int | None) -> str:
    if time_ns is None:
        return "never"
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%a %d %H:%M:%S")


def _words(position: NDArray[np.float64]) -> str:
    return f"({position[0]:.0f}, {position[1]:.0f})"


def _pair(position: NDArray[np.float64]) -> tuple[float, float]:
    return float(position[0]), float(position[1])
