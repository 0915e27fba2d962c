"""Simulated months of a robot for the retention study: objects, drives, observations and the ground truth.

Objects stay, move, disappear, appear late or appear once. People pass, events happen, some with a reward, and
the detector makes false detections. The robot also parks for hours in front of a wall. No ray
is cast: what is near the robot is detected with a chance, its position and its vector with noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.memory.vectors import noisy_vector, random_directions, unit_vector
from memory import Memory
from memory.observe.views import Views
from memory.types import Kind

NS = 1_000_000_000
DAY_S = 86_400
#: False detections belong to no object.
NOTHING = -1
_MORNING_S = 9 * 3600
_AFTERNOON_S = 15 * 3600
_RANGE_M = 3.0
_SPEED_M_S = 0.5
_PLACES = {
    "house": ("kitchen", "hall", "office", "store room"),
    "street": ("north road", "market", "bridge", "yard"),
}
_SIDE_M = {"house": 6.0, "street": 8.0}
_CLASSES = {
    "house": ("chair", "table", "mug", "laptop", "plant", "box", "shoe", "toolbox", "lamp", "bag"),
    "street": ("car", "bicycle", "bin", "sign", "bench", "crate", "scooter", "cone", "barrel", "trolley"),
}
_COLOURS = ("red", "green", "blue", "white", "black", "yellow", "brown", "orange")
_PEOPLE = ("Ada", "Bela", "Chidi", "Dana", "Emil", "Fay")
#: Events and the reward that each brings on average.
_EVENTS = {"spill": -0.8, "bump": -1.5, "blocked way": -0.4, "delivery": 1.0, "alarm": -2.0, "greeting": 0.3}


@dataclass(frozen=True, kw_only=True)
class WorldOptions:
    """Size of the world.

    Attributes:
        days: with a drive through three places of the house and one through three of the street each.
        objects: in each place at first, without those that are there once.
        stops: long stops in front of a wall, one observation a second.
        stop_s: seconds of each.
        dim: of the vectors.
        noise: of a vector, per number.
        clutter: invented detections, as a share of the real ones.
        seed: of everything.
    """

    days: int = 60
    objects: int = 8
    stops: int = 6
    stop_s: int = 2400
    dim: int = 64
    noise: float = 0.03
    clutter: float = 0.01
    seed: int = 0


class Stay(NamedTuple):
    """An object at one position from one day until before another."""

    first_day: int
    end_day: int
    place: str
    position: tuple[float, float, float]


@dataclass(frozen=True)
class Thing:
    """Something in the world.

    Attributes:
        label: its class or name.
        words: of its caption, without the place.
        map_id: that it is in.
        kind: of its memories.
        direction: (dim,) unit vector that its observations scatter around.
        stays: where it is when; none for people and events.
        worth: beyond the questions, of having it in memory at all.
        reward: of an event.
        type_row: of an event, its row among the events' types; else -1.
    """

    label: str
    words: str
    map_id: str
    kind: Kind
    direction: NDArray[np.float64]
    stays: tuple[Stay, ...] = ()
    worth: float = 0.0
    reward: float = 0.0
    type_row: int = -1

    def at(self, day: int) -> Stay | None:
        """Return its position on a day."""
        return next((stay for stay in self.stays if stay.first_day <= day < stay.end_day), None)


class Observation(NamedTuple):
    """An observation for the store, and its true object."""

    memory: Memory
    thing: int
    day: int
    position: tuple[float, float, float]


class Drive(NamedTuple):
    """One drive: its map, day, places, and where the robot was when."""

    map_id: str
    day: int
    places: tuple[str, ...]
    views: Views


@dataclass(frozen=True)
class World:
    """Everything: ``observations`` are in order of time, and each memory's evidence is its row.

    Attributes:
        options: of the world.
        things: by number.
        observations: that the store is offered.
        drives: that they are from.
        today: observations of the last day, which no store has.
        today_drives: the drives of the last day, through every place.
        type_directions: (types, dim) of the events' types, and their mean rewards.
        type_rewards: (types,).
    """

    options: WorldOptions
    things: list[Thing]
    observations: list[Observation]
    drives: list[Drive]
    today: list[Observation]
    today_drives: list[Drive]
    type_directions: NDArray[np.float64]
    type_rewards: NDArray[np.float64]

    def row_of(self, memory: Memory) -> int:
        """Row of an observation; of a merged memory, of the most recent one in it."""
        return int(memory.evidence.rsplit("\n", 1)[-1])

    def thing_of(self, memory: Memory) -> int:
        """Number of the thing that a memory is of."""
        return self.observations[self.row_of(memory)].thing


def world_of(options: WorldOptions) -> World:
    """Simulate; the same options give the same world."""
    return _Simulation(options).run()


def centre_of(map_id: str, place: str) -> tuple[float, float]:
    """Middle of a place in its map, metres."""
    row = _PLACES[map_id].index(place)
    apart = 2.0 * _SIDE_M[map_id]
    return (apart * (row % 2), apart * (row // 2))


def places_of(map_id: str) -> tuple[str, ...]:
    """Places of a map."""
    return _PLACES[map_id]


def maps() -> tuple[str, ...]:
    """The maps."""
    return tuple(_PLACES)


def parked_day(seconds: int, events: int, *, dim: int = 64, seed: int = 0) -> list[Observation]:
    """A robot parked in front of one wall, one look a second; the light changes, and now and then something
    happens that never happened before.

    Args:
        seconds: of the day, spread evenly over 24 hours.
        events: unique ones, one observation each, at random times.
        dim: of the vectors.
        seed: of everything.
    """
    generator = np.random.default_rng(seed)
    wall, evening = random_directions(generator, 2, dim)
    happens = dict(zip(generator.choice(seconds, events, replace=False).tolist(), range(events), strict=True))
    found: list[Observation] = []
    for second in range(seconds):
        time_ns = round(second * DAY_S / seconds * NS)
        angle = 0.6 * math.sin(math.pi * second / seconds)
        seen = noisy_vector(generator, math.cos(angle) * wall + math.sin(angle) * evening, 0.02)
        memory = _memory(time_ns, (1.0, 1.0, 1.0), "house", "place", "wall", "a wall", seen, 0.95)
        found.append(Observation(memory, 0, 0, memory.place))
        if second in happens:
            direction = random_directions(generator, 1, dim)[0]
            event = _memory(
                time_ns, (1.2, 1.1, 0.5), "house", "event", "something", "something new", direction, 0.8
            )
            found.append(Observation(event, 1 + happens[second], 0, event.place))
    return found


class _Simulation:
    """The world while it is made."""

    def __init__(self, options: WorldOptions) -> None:
        self._options = options
        self._generator = np.random.default_rng(options.seed)
        self._things: list[Thing] = []
        self._found: list[Observation] = []
        self._classes = {
            label: direction
            for map_id in _CLASSES
            for label, direction in zip(
                _CLASSES[map_id],
                random_directions(self._generator, len(_CLASSES[map_id]), options.dim),
                strict=True,
            )
        }
        self._types = random_directions(self._generator, len(_EVENTS), options.dim)

    def run(self) -> World:
        options = self._options
        for map_id in _PLACES:
            self._furnish(map_id)
        people = self._add_people()
        walls = self._add_walls()
        drives: list[Drive] = []
        first = min(3, options.days - 1)
        last = max(first, options.days - 3)
        parked = set(np.linspace(first, last, options.stops).astype(int).tolist())
        for day in range(options.days):
            for map_id, start_s in (("house", _MORNING_S), ("street", _AFTERNOON_S)):
                some = self._generator.permutation(_PLACES[map_id])[:3].tolist()
                drives.append(self._drive(map_id, day, some, start_s, people))
            if day in parked and options.stop_s:
                self._park(day, walls[len(drives) % len(walls)])
        stored, self._found = self._found, []
        today = [
            self._drive(map_id, options.days, list(_PLACES[map_id]), start_s, people)
            for map_id, start_s in (("house", _MORNING_S), ("street", _AFTERNOON_S))
        ]
        rewards = np.array(list(_EVENTS.values()))
        return World(
            options, self._things, _numbered(stored), drives, self._found, today, self._types, rewards
        )

    def _furnish(self, map_id: str) -> None:
        """Objects with their fates: every pair of colour and class once in a map."""
        options, generator = self._options, self._generator
        pairs = [(colour, label) for label in _CLASSES[map_id] for colour in _COLOURS]
        order = generator.permutation(len(pairs)).tolist()
        count = options.objects * len(_PLACES[map_id])
        for number, pair in enumerate(order[:count]):
            colour, label = pairs[pair]
            place = _PLACES[map_id][number % len(_PLACES[map_id])]
            stays = self._fate(map_id, place)
            self._add(map_id, label, f"{colour} {label}", stays)
        for pair in order[count : count + max(1, options.days // 5)]:
            colour, label = pairs[pair]
            day = int(generator.integers(1, options.days))
            place = str(generator.choice(_PLACES[map_id]))
            self._add(
                map_id,
                label,
                f"{colour} {label}",
                (Stay(day, day + 1, place, self._spot(map_id, place)),),
                worth=2.0,
            )

    def _fate(self, map_id: str, place: str) -> tuple[Stay, ...]:
        """Stays, moves, disappears or appears late."""
        days, generator = self._options.days, self._generator
        forever = days + 2
        chance = generator.random()
        spot = self._spot(map_id, place)
        if chance < 0.6 or days < 4:
            return (Stay(0, forever, place, spot),)
        if chance < 0.78:
            cuts = sorted(generator.choice(np.arange(1, days), int(generator.integers(1, 4)), replace=False))
            ends = [*map(int, cuts), forever]
            stays, first = [], 0
            for end in ends:
                stays.append(Stay(first, end, place, spot))
                place = str(generator.choice(_PLACES[map_id]))
                spot, first = self._spot(map_id, place), end
            return tuple(stays)
        day = int(generator.integers(days // 4, days))
        return (Stay(0, day, place, spot),) if chance < 0.89 else (Stay(day, forever, place, spot),)

    def _add(
        self, map_id: str, label: str, words: str, stays: tuple[Stay, ...], *, worth: float = 0.0
    ) -> None:
        own = random_directions(self._generator, 1, self._options.dim)[0]
        direction = unit_vector(self._classes[label] + own)
        self._things.append(Thing(label, words, map_id, "object", direction, stays, worth))

    def _add_people(self) -> list[int]:
        directions = random_directions(self._generator, len(_PEOPLE) + 1, self._options.dim)
        first = len(self._things)
        for name, own in zip(_PEOPLE, directions[1:], strict=True):
            direction = unit_vector(directions[0] + own)
            self._things.append(Thing("person", f"{name}, a person", "house", "object", direction))
        return list(range(first, len(self._things)))

    def _add_walls(self) -> list[int]:
        first = len(self._things)
        for map_id in _PLACES:
            place = _PLACES[map_id][0]
            direction = random_directions(self._generator, 1, self._options.dim)[0]
            x, y = centre_of(map_id, place)
            stay = Stay(0, 0, place, (x + 1.0, y + 1.0, 1.0))
            self._things.append(
                Thing("wall", f"the wall of the {place}", map_id, "place", direction, (stay,))
            )
        return list(range(first, len(self._things)))

    def _spot(self, map_id: str, place: str) -> tuple[float, float, float]:
        x, y = centre_of(map_id, place)
        half = _SIDE_M[map_id] / 2
        dx, dy = self._generator.uniform(-half, half, 2)
        return (x + float(dx), y + float(dy), float(self._generator.uniform(0.0, 1.5)))

    def _drive(self, map_id: str, day: int, some: list[str], start_s: int, people: list[int]) -> Drive:
        """Straight through each place, one look a second."""
        generator = self._generator
        looks, times, yaws = [], [], []
        second = day * DAY_S + start_s + int(generator.integers(0, 600))
        half = _SIDE_M[map_id] / 2
        for place in some:
            centre = np.array(centre_of(map_id, place))
            yaw = float(generator.uniform(-math.pi, math.pi))
            along = np.array([math.cos(yaw), math.sin(yaw)])
            aside = np.array([-along[1], along[0]]) * float(generator.uniform(-1.0, 1.0))
            steps = int(2 * half / _SPEED_M_S)
            first = second
            for step in range(steps):
                here = centre + aside + along * (_SPEED_M_S * step - half)
                looks.append((float(here[0]), float(here[1]), 0.5))
                times.append(second * NS)
                yaws.append(yaw)
                self._look(map_id, day, here, second * NS, place)
                second += 1
            self._passers_by(map_id, day, place, first, steps, people)
            self._happenings(map_id, day, place, first, steps)
            second += 20
        views = Views(np.array(looks), np.array(yaws), np.array(times), range_m=_RANGE_M - 0.5)
        return Drive(map_id, day, tuple(some), views)

    def _look(self, map_id: str, day: int, here: NDArray[np.float64], time_ns: int, place: str) -> None:
        generator = self._generator
        for number, thing in enumerate(self._things):
            stay = thing.at(day) if thing.map_id == map_id and thing.stays else None
            if stay is None or stay.place != place:
                continue
            away = math.dist(here, stay.position[:2])
            if away > _RANGE_M or generator.random() > 0.9:
                continue
            self._observe(number, day, time_ns, stay.position, place, away)
            if generator.random() < self._options.clutter:
                self._invent(map_id, day, time_ns, here)

    def _passers_by(
        self, map_id: str, day: int, place: str, first: int, steps: int, people: list[int]
    ) -> None:
        for number in people:
            if self._generator.random() < 0.08:
                spot = np.array(self._spot(map_id, place))
                start = int(self._generator.integers(0, max(1, steps - 6)))
                for second in range(start, min(steps, start + int(self._generator.integers(3, 8)))):
                    spot = spot + np.array([0.3, 0.1, 0.0]) * self._generator.standard_normal(3)
                    x, y, z = spot.tolist()
                    self._observe(number, day, (first + second) * NS, (x, y, z), place, 2.0, map_id=map_id)

    def _happenings(self, map_id: str, day: int, place: str, first: int, steps: int) -> None:
        """An event on about one visit in six."""
        if self._generator.random() > 1 / 6:
            return
        self._happen(map_id, day, place, first + int(self._generator.integers(0, steps)))

    def _happen(self, map_id: str, day: int, place: str, second: int) -> None:
        generator = self._generator
        row = int(generator.integers(len(_EVENTS)))
        label = tuple(_EVENTS)[row]
        reward = tuple(_EVENTS.values())[row] + 0.15 * float(generator.standard_normal())
        own = random_directions(generator, 1, self._options.dim)[0]
        direction = unit_vector(self._types[row] + 0.4 * own)
        worth = float(generator.integers(1, 6))
        spot = self._spot(map_id, place)
        self._things.append(Thing(label, label, map_id, "event", direction, (), worth, reward, row))
        marked = generator.random() < 0.05
        for later in range(int(generator.integers(1, 4))):
            time_ns = (second + later) * NS
            self._observe(len(self._things) - 1, day, time_ns, spot, place, 1.0, marked=bool(marked))

    def _park(self, day: int, number: int) -> None:
        """In front of a wall, at night; now and then something happens there."""
        thing = self._things[number]
        stay = thing.stays[0]
        start = day * DAY_S + 20 * 3600
        for second in range(self._options.stop_s):
            self._observe(number, day, (start + second) * NS, stay.position, stay.place, 1.0)
            if self._generator.random() < 3 / self._options.stop_s:
                self._happen(thing.map_id, day, stay.place, start + second)

    def _invent(self, map_id: str, day: int, time_ns: int, here: NDArray[np.float64]) -> None:
        """Something that is not there."""
        generator = self._generator
        label = str(generator.choice(_CLASSES[map_id]))
        seen = random_directions(generator, 1, self._options.dim)[0]
        dx, dy = generator.uniform(-2, 2, 2)
        spot = (float(here[0] + dx), float(here[1] + dy), 0.5)
        memory = _memory(
            time_ns, spot, map_id, "object", label, f"a {label}", seen, float(generator.uniform(0.2, 0.5))
        )
        self._found.append(Observation(memory, NOTHING, day, spot))

    def _observe(
        self,
        number: int,
        day: int,
        time_ns: int,
        spot: tuple[float, float, float],
        place: str,
        away: float,
        *,
        map_id: str | None = None,
        marked: bool = False,
    ) -> None:
        generator, thing = self._generator, self._things[number]
        sigma = 0.05 + 0.04 * away
        x, y, z = (np.array(spot) + sigma * generator.standard_normal(3)).tolist()
        memory = _memory(
            time_ns,
            (x, y, z),
            map_id or thing.map_id,
            thing.kind,
            thing.label,
            f"{thing.words} in the {place}",
            noisy_vector(generator, thing.direction, self._options.noise),
            float(np.clip(0.95 - 0.1 * away + 0.05 * generator.standard_normal(), 0.3, 1.0)),
            sigma=sigma,
            reward=thing.reward,
            marked=marked,
        )
        self._found.append(Observation(memory, number, day, spot))


def _memory(
    time_ns: int,
    position: tuple[float, float, float],
    map_id: str,
    kind: Kind,
    label: str,
    caption: str,
    vector: NDArray[np.float64],
    confidence: float,
    *,
    sigma: float = 0.1,
    reward: float = 0.0,
    marked: bool = False,
) -> Memory:
    return Memory(
        time_ns=time_ns,
        position=position,
        covariance=np.eye(3) * sigma**2,
        map_id=map_id,
        kind=kind,
        label=label,
        caption=caption,
        embedding=vector.astype(np.float32),
        confidence=confidence,
        reward=reward,
        marked=marked,
        provenance="simulated detector",
    )


def _numbered(found: list[Observation]) -> list[Observation]:
    """In order of time, each memory's evidence its row."""
    ordered = sorted(found, key=lambda observation: observation.memory.time_ns)
    return [
        observation._replace(memory=replace(observation.memory, evidence=str(row)))
        for row, observation in enumerate(ordered)
    ]
