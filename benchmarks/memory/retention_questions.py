"""The questions of the retention study, when two answers to one agree, and what each needs.

Answers are brought into plain forms in which only what matters is left, and two of them agree when:

- ``sighting`` (last seen, first seen): the same thing, at most 0.5 m apart, at most an hour apart;
- ``things`` (near, between, changed since): the same set of things. False detections do not count. Objects
  within 0.5 m of the edge of the requested radius do not count either;
- ``often`` (how often): days with a sight that differ by one or a tenth at most, and first and last sight
  as above;
- ``state`` (still there): the same state of the same thing, and where it has moved to at most 0.5 m apart;
- ``reward`` (similar situations): expected rewards that differ by 0.2 at most;
- ``pose`` (a pose to drive to): the same thing, remembered at most 0.5 m apart;
- ``labels`` (summarise): the same set of labels.

The same comparison with the simulator's answer decides if an answer is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.memory.retention_world import (
    DAY_S,
    NOTHING,
    NS,
    Observation,
    World,
    centre_of,
    maps,
    places_of,
)
from memory import Memory
from memory.observe.views import Views
from memory.questions import Questions

POSITION_M = 0.5
TIME_S = 3600.0
REWARD = 0.2
#: Everything within a radius, however often it was seen.
_ALL = 1_000_000


class Sight(NamedTuple):
    """An object at a position and time; ``thing`` is None where nothing is remembered."""

    thing: int | None
    x: float = 0.0
    y: float = 0.0
    time_s: float = 0.0


class Often(NamedTuple):
    """Days with a sight, and the first and last one in seconds."""

    days: int
    first_s: float
    last_s: float


class Belief(NamedTuple):
    """A state of a thing, and where it has moved to."""

    thing: int | None
    state: str
    moved_to: tuple[float, float] | None = None


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        name: which of the questions people ask.
        form: in which answers are compared.
        ask: a store's questions for the answer, in its form.
        truth: the simulator's answer; ``None`` where it has none.
        needs: sets of observations; of each, any one is enough for the answer.
        merged: True for questions that only make sense after merging.
    """

    name: str
    form: str
    ask: Callable[[Questions], Any]
    truth: Any
    needs: tuple[frozenset[int], ...] = field(default=(), repr=False)
    merged: bool = False


def agree(form: str, first: Any, second: Any) -> bool:
    """Return True if two answers of one form agree; see the module."""
    if form == "sighting":
        return _same_sight(first, second)
    if form == "often":
        days = abs(first.days - second.days) <= max(1.0, 0.1 * max(first.days, second.days))
        ends = max(abs(first.first_s - second.first_s), abs(first.last_s - second.last_s))
        return bool(days and ends <= TIME_S)
    if form == "state":
        if (first.thing, first.state) != (second.thing, second.state):
            return False
        if first.moved_to is None or second.moved_to is None:
            return first.moved_to is second.moved_to
        return math.dist(first.moved_to, second.moved_to) <= POSITION_M
    if form == "reward":
        return first is not None and second is not None and abs(first - second) <= REWARD
    if form == "pose":
        return bool(first.thing == second.thing and math.dist(first[1:3], second[1:3]) <= POSITION_M)
    if form in ("things", "labels"):
        return bool(first == second)
    raise ValueError(f"unknown form {form!r}")


def _same_sight(first: Sight, second: Sight) -> bool:
    if first.thing is None or second.thing is None:
        return first.thing is second.thing
    return (
        first.thing == second.thing
        and math.dist(first[1:3], second[1:3]) <= POSITION_M
        and abs(first.time_s - second.time_s) <= TIME_S
    )


def questions_of(world: World, count: int, seed: int = 0) -> list[Question]:
    """About ``count`` questions of each sort, about things, places and times chosen at random."""
    return _Asker(world, count, seed).questions()


class _Asker:
    def __init__(self, world: World, count: int, seed: int) -> None:
        self._world = world
        self._count = count
        self._generator = np.random.default_rng([seed, 1])
        self._sights: dict[int, list[int]] = {}
        for row, observation in enumerate(world.observations):
            if observation.thing != NOTHING:
                self._sights.setdefault(observation.thing, []).append(row)
        self._objects = [
            number
            for number in self._sights
            if world.things[number].stays and world.things[number].kind == "object"
        ]
        self._people = [number for number in self._sights if world.things[number].label == "person"]
        self._events = [number for number in self._sights if world.things[number].kind == "event"]

    def questions(self) -> list[Question]:
        found: list[Question] = []
        for number in self._some([*self._objects, *self._people]):
            found += [self._last(number), self._first(number)]
        for number in self._some(self._objects):
            found += [self._often(number), self._pose(number)]
        for number in self._some([n for n in self._objects if len(self._sights[n]) > 3]):
            found.append(self._still(number))
        for _ in range(self._count):
            found += [self._near(), self._events_between(), self._people_between()]
            found += [self._changed(), self._summary(), self._situations(), self._drive_between()]
        return found

    def _some(self, numbers: Sequence[int]) -> list[int]:
        order = self._generator.permutation(len(numbers))[: self._count]
        return [numbers[row] for row in order.tolist()]

    def _place(self) -> tuple[str, tuple[float, float]]:
        map_id = str(self._generator.choice(maps()))
        x, y = centre_of(map_id, str(self._generator.choice(places_of(map_id))))
        dx, dy = self._generator.uniform(-1.5, 1.5, 2)
        return map_id, (x + float(dx), y + float(dy))

    def _what(self, number: int) -> Any:
        """Every other time by words, otherwise by a vector as a detector would give it today."""
        thing = self._world.things[number]
        if number % 2 and thing.label != "person":
            return thing.words
        noise = 0.03 * self._generator.standard_normal(len(thing.direction))
        return (thing.direction + noise).astype(np.float32)

    def _sight(self, memory: Memory | None, time_ns: int | None) -> Sight:
        if memory is None or time_ns is None:
            return Sight(None)
        return Sight(self._world.thing_of(memory), memory.place[0], memory.place[1], time_ns / NS)

    def _true_sight(self, row: int) -> Sight:
        observation = self._world.observations[row]
        return Sight(
            observation.thing,
            observation.position[0],
            observation.position[1],
            observation.memory.time_ns / NS,
        )

    def _like(self, rows: Sequence[int], row: int) -> frozenset[int]:
        """Those of the rows that give the same sight."""
        wanted = self._true_sight(row)
        return frozenset(other for other in rows if _same_sight(self._true_sight(other), wanted))

    def _last(self, number: int) -> Question:
        what, rows = self._what(number), self._sights[number]

        def ask(questions: Questions) -> Sight:
            answer = questions.last_seen(what)
            return self._sight(answer.memory, answer.time_ns)

        return Question(
            "last seen", "sighting", ask, self._true_sight(rows[-1]), (self._like(rows, rows[-1]),)
        )

    def _first(self, number: int) -> Question:
        what, rows = self._what(number), self._sights[number]

        def ask(questions: Questions) -> Sight:
            answer = questions.first_seen(what)
            return self._sight(answer.memory, answer.time_ns)

        return Question(
            "first seen", "sighting", ask, self._true_sight(rows[0]), (self._like(rows, rows[0]),)
        )

    def _often(self, number: int) -> Question:
        what, rows = self._what(number), self._sights[number]

        def ask(questions: Questions) -> Often:
            answer = questions.how_often(what)
            return Often(answer.days, (answer.first_ns or 0) / NS, (answer.last_ns or 0) / NS)

        observations = self._world.observations
        days: dict[int, list[int]] = {}
        for row in rows:
            days.setdefault(observations[row].day, []).append(row)
        first, last = (observations[row].memory.time_ns / NS for row in (rows[0], rows[-1]))
        truth = Often(len(days), first, last)
        return Question("how often", "often", ask, truth, tuple(map(frozenset, days.values())))

    def _pose(self, number: int) -> Question:
        what, rows = self._what(number), self._sights[number]

        def ask(questions: Questions) -> Sight:
            memory = questions.pose_to(what).memory
            return self._sight(memory, None if memory is None else memory.time_ns)

        # Anything at its last position will do.
        last = self._world.observations[rows[-1]].position
        same = frozenset(row for row in rows if self._world.observations[row].position == last)
        return Question("pose to", "pose", ask, self._true_sight(rows[-1]), (same,))

    def _still(self, number: int) -> Question:
        """After today's drive, which is at hand but not stored."""
        world, what = self._world, self._what(number)
        thing, rows = world.things[number], self._sights[number]
        drive = next(drive for drive in world.today_drives if drive.map_id == thing.map_id)
        views: Views = drive.views
        seen = [entry.memory for entry in world.today if entry.memory.map_id == thing.map_id]

        def ask(questions: Questions) -> Belief:
            answer = questions.still_there(what, map_id=thing.map_id, views=views, observations=seen)
            known = None if answer.memory is None else world.thing_of(answer.memory)
            moved = None if answer.moved_to is None else answer.moved_to.place[:2]
            return Belief(known, answer.state, moved)

        known = world.observations[rows[-1]].position
        stay = thing.at(drive.day)
        if stay is None:
            truth = Belief(number, "gone")
        elif stay.position == known:
            truth = Belief(number, "present")
        else:
            truth = Belief(number, "moved", stay.position[:2])
        same = frozenset(row for row in rows if world.observations[row].position == known)
        return Question("still there", "state", ask, truth, (same,))

    def _near(self) -> Question:
        map_id, centre = self._place()
        radius = 1.8
        edge, inside = self._around(map_id, centre, radius)

        def ask(questions: Questions) -> frozenset[int]:
            hits = questions.near(centre, radius, map_id=map_id, kinds=["object", "place"], k=_ALL).hits
            return self._things([hit.memory for hit in hits]) - edge

        needs = tuple(frozenset(rows) for rows in inside.values())
        return Question("near", "things", ask, frozenset(inside), needs)

    def _around(
        self, map_id: str, centre: tuple[float, float], radius: float, rows: Sequence[int] | None = None
    ) -> tuple[frozenset[int], dict[int, list[int]]]:
        """Things that were seen near the edge of a circle, and rows of those only seen well within it."""
        edge: set[int] = set()
        inside: dict[int, list[int]] = {}
        for row in range(len(self._world.observations)) if rows is None else rows:
            observation = self._world.observations[row]
            thing = observation.thing
            if observation.memory.map_id != map_id or thing == NOTHING:
                continue
            if self._world.things[thing].kind == "event":
                continue
            away = math.dist(centre, observation.position[:2])
            if abs(away - radius) < POSITION_M:
                edge.add(thing)
            elif away < radius:
                inside.setdefault(thing, []).append(row)
        return frozenset(edge), {thing: rows for thing, rows in inside.items() if thing not in edge}

    def _between(self, first_day: int, last_day: int) -> tuple[tuple[int, int], list[int]]:
        span = (first_day * DAY_S * NS, (last_day + 1) * DAY_S * NS - 1)
        rows = [
            row
            for row, observation in enumerate(self._world.observations)
            if span[0] <= observation.memory.time_ns <= span[1]
        ]
        return span, rows

    def _days(self, most: int) -> tuple[int, int]:
        first = int(self._generator.integers(self._world.options.days))
        return first, first + int(self._generator.integers(0, most))

    def _events_between(self) -> Question:
        """The events of a range of days."""
        span, rows = self._between(*self._days(7))
        map_id = str(self._generator.choice(maps()))

        def ask(questions: Questions) -> frozenset[int]:
            answer = questions.between(*span, map_id=map_id, kinds=["event"], limit=_ALL)
            return self._things(answer.memories)

        return self._set_question("between: events", ask, [r for r in rows if self._is("event", map_id, r)])

    def _people_between(self) -> Question:
        """Who came by on a day or two."""
        span, rows = self._between(*self._days(2))
        map_id = str(self._generator.choice(maps()))

        def ask(questions: Questions) -> frozenset[int]:
            answer = questions.between(*span, map_id=map_id, labels=["person"], limit=_ALL)
            return self._things(answer.memories)

        wanted = [row for row in rows if self._is("person", map_id, row)]
        return self._set_question("between: people", ask, wanted)

    def _drive_between(self) -> Question:
        """Objects seen in one place on one drive."""
        observations = self._world.observations
        drives = self._world.drives
        drive = drives[int(self._generator.integers(len(drives)))]
        x, y = centre_of(drive.map_id, str(self._generator.choice(drive.places)))
        span = (int(drive.views.time_ns[0]), int(drive.views.time_ns[-1]))
        rows = [r for r, entry in enumerate(observations) if span[0] <= entry.memory.time_ns <= span[1]]
        radius = 2.5
        edge, inside = self._around(drive.map_id, (x, y), radius, rows)

        def ask(questions: Questions) -> frozenset[int]:
            answer = questions.between(
                *span,
                map_id=drive.map_id,
                near=(x, y),
                radius_m=radius,
                kinds=["object", "place"],
                limit=_ALL,
            )
            return self._things(answer.memories) - edge

        needs = tuple(frozenset(found) for found in inside.values())
        return Question("between: a drive", "things", ask, frozenset(inside), needs)

    def _changed(self) -> Question:
        """New objects, queried after merging: before it each observation is a separate memory."""
        day = int(self._generator.integers(1, max(2, self._world.options.days)))
        time_ns, map_id = day * DAY_S * NS, str(self._generator.choice(maps()))

        def ask(questions: Questions) -> frozenset[int]:
            new = questions.changed_since(time_ns, map_id).new
            return self._things(
                [memory for memory in new if memory.kind == "object" and memory.label != "person"]
            )

        new: dict[tuple[int, tuple[float, float, float]], list[int]] = {}
        for number in self._objects:
            for row in self._sights[number]:
                observation = self._world.observations[row]
                if observation.memory.map_id == map_id:
                    new.setdefault((number, observation.position), []).append(row)
        late = {
            where: rows
            for where, rows in new.items()
            if self._world.observations[rows[0]].memory.time_ns >= time_ns
        }
        truth = frozenset(number for number, _ in late)
        needs = tuple(self._like(rows, rows[0]) for rows in late.values())
        return Question("changed since", "things", ask, truth, needs, merged=True)

    def _summary(self) -> Question:
        map_id, centre = self._place()
        radius = 2.0
        things = self._world.things
        edge, inside = self._around(map_id, centre, radius)
        doubtful = {things[thing].label for thing in edge} - {things[thing].label for thing in inside}

        def ask(questions: Questions) -> frozenset[str]:
            answer = questions.summarise(map_id=map_id, near=centre, radius_m=radius)
            events = {thing.label for thing in things if thing.kind == "event"}
            return frozenset(answer.by_label) - doubtful - events

        truth = frozenset(things[thing].label for thing in inside)
        needs = tuple(frozenset(rows) for rows in inside.values())
        return Question("summarise", "labels", ask, truth, needs)

    def _situations(self) -> Question:
        """The expected reward of an event that resembles a current one."""
        world = self._world
        row = int(self._generator.integers(len(world.type_rewards)))
        direction = world.type_directions[row]
        vector = (direction + 0.03 * self._generator.standard_normal(len(direction))).astype(np.float32)

        def ask(questions: Questions) -> float | None:
            return questions.similar_situations(vector, kinds=["event"]).expected_reward

        like = [number for number in self._events if world.things[number].type_row == row]
        truth = float(np.mean([world.things[number].reward for number in like])) if like else None
        needs = tuple(frozenset(self._sights[number]) for number in like)
        return Question("similar situations", "reward", ask, truth, needs)

    def _set_question(
        self, name: str, ask: Callable[[Questions], frozenset[int]], rows: Sequence[int]
    ) -> Question:
        by_thing: dict[int, list[int]] = {}
        for row in rows:
            by_thing.setdefault(self._world.observations[row].thing, []).append(row)
        needs = tuple(frozenset(found) for found in by_thing.values())
        return Question(name, "things", ask, frozenset(by_thing), needs)

    def _is(self, what: str, map_id: str, row: int) -> bool:
        observation: Observation = self._world.observations[row]
        memory = observation.memory
        return memory.map_id == map_id and what in (memory.kind, memory.label)

    def _things(self, memories: Sequence[Memory]) -> frozenset[int]:
        return frozenset(self._world.thing_of(memory) for memory in memories) - {NOTHING}
