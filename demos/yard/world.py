"""The yard: what stands where and when, and what a robot sees of it on a lap."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from memory import Memory

DIM = 32
SIGHT_M = 9.0
#: 2026-01-05 08:00 UTC.
START_NS = 1_767_600_000 * 10**9
MINUTE_NS = 60 * 10**9
LAP_MINUTES = 15
LAPS = 12
#: Laps during which the second robot has no network.
CUT = range(4, 8)
ROBOTS = ("robot-1", "robot-2", "robot-3")
#: Middle of each robot's round, half its length and width, in metres: neighbours overlap at the ends.
ROUNDS = {"robot-1": (-22.0, 0.0), "robot-2": (0.0, 0.0), "robot-3": (22.0, 0.0)}
_HALF = (13.0, 8.0)
#: Stations of the trolley by lap: who comes by last is not who saw it first.
TROLLEY = {0: (-30.0, 6.0), 3: (-12.0, -6.0), 5: (4.0, 6.0), 9: (30.0, -6.0)}


@dataclass(frozen=True)
class Thing:
    """Something in the yard.

    Attributes:
        name: that nobody is told; answers are judged by it.
        label: class.
        look: (DIM,) float32, what it looks like.
    """

    name: str
    label: str
    look: np.ndarray
    position: tuple[float, float]


class Yard:
    """Deterministic by its seed.

    Args:
        seed: of places and looks.
    """

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.things: list[Thing] = []
        for label, count in (("pallet", 24), ("door", 6), ("charger", 3)):
            for number in range(count):
                position = self._free(random)
                self.things.append(Thing(f"{label} {number}", label, random.normal(size=DIM), position))
        self._trolley = random.normal(size=DIM)

    def at(self, lap: int) -> list[Thing]:
        """What is there on a lap."""
        station = TROLLEY[max(start for start in TROLLEY if start <= lap)]
        return [*self.things, Thing("trolley", "trolley", self._trolley, station)]

    def sights(self, robot: str, lap: int, *, seed: int = 0) -> Iterator[Memory]:
        """What a robot sees on a lap, in order."""
        random = np.random.default_rng([seed, lap, ROBOTS.index(robot)])
        middle = ROUNDS[robot]
        steps = 24
        for step in range(steps):
            turn = 2 * math.pi * step / steps
            x, y = middle[0] + _HALF[0] * math.cos(turn), middle[1] + _HALF[1] * math.sin(turn)
            at_ns = START_NS + round((lap + step / steps) * LAP_MINUTES * MINUTE_NS)
            for thing in self.at(lap):
                away = math.hypot(thing.position[0] - x, thing.position[1] - y)
                if away > SIGHT_M or random.uniform() < 0.1:
                    continue
                seen = random.normal(thing.position, 0.08)
                yield Memory(
                    time_ns=at_ns,
                    position=(float(seen[0]), float(seen[1]), 0.0),
                    covariance=np.eye(3) * 0.08**2,
                    label=thing.label,
                    embedding=thing.look + random.normal(size=DIM) * 0.15,
                    confidence=0.9,
                    map_id="yard",
                    payload={"thing": thing.name},
                )

    def _free(self, random: np.random.Generator) -> tuple[float, float]:
        while True:
            x, y = float(random.uniform(-36, 36)), float(random.uniform(-10, 10))
            if all(math.hypot(x - thing.position[0], y - thing.position[1]) > 2.5 for thing in self.things):
                return x, y
