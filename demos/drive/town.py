"""A small town over several days: a ring of streets, cars that stay, leave and move, and people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perception.simulate import Scene, SceneObject, Spot, Street
from perception.simulate.frontage import build_frontage
from perception.simulate.ground import Ground
from perception.simulate.layout import CHARACTERS, Occupancy, SceneLayout
from perception.simulate.mesh import Mesh, merge_meshes
from perception.simulate.objects.people import sample_cyclist, sample_pedestrian
from perception.simulate.objects.vehicles import sample_vehicle
from perception.simulate.surface import Material

#: Length of a parking bay including the gap, and offset of parked cars from the kerb.
BAY_M, STRIP_M = 6.5, 1.08
LANES_M, HALF_WIDTH_M, SIDEWALK_M, TURN_M = 3.1, 5.5, 2.6, 8.0


@dataclass(frozen=True, kw_only=True)
class TownConfig:
    """Content of the town and its daily changes.

    Attributes:
        half_m: distance from the centre to the street centre lines, along x and y.
        filled: chance that a bay is occupied on the first day.
        leaves, moves: chance that a parked car is gone, or in another bay, the next day.
        arrives: chance that a new car takes a free bay the next day.
        standing: people who stand somewhere all day.
        walking: people who walk during one loop.
        once: cyclists at a kerb on every third day only, from the second day on.
    """

    half_m: tuple[float, float] = (45.0, 30.0)
    filled: float = 0.5
    leaves: float = 0.15
    moves: float = 0.15
    arrives: float = 0.12
    standing: int = 5
    walking: int = 3
    once: int = 2


class Town:
    """Permanent streets and scenery, and the objects of each day.

    Args:
        config: sizes and chances.
        days: number of prepared days.
        seed: the same seed gives the same town and days.
    """

    def __init__(self, config: TownConfig, days: int, seed: int) -> None:
        self.config = config
        streams = np.random.SeedSequence([seed, 21]).spawn(3)
        scenery, cars, people = (np.random.default_rng(stream) for stream in streams)
        self.streets = _streets(config)
        self.ground = Ground(
            self.streets, np.zeros((0, 4)), (0.0, 0.0), (0.0, 1.0, 0.0), Material.GRASS, asphalt=0.27
        )
        self.bays = list(self._bays())
        self._static, self._ground_triangles = self._build(scenery)
        self._numbers = 0
        self._cars = list(self._parked(days, cars))
        self._once_days = {day for day in range(days) if day % 3 == 1} or {0}
        self._standing = [self._people(day, people) for day in range(days)]

    def scene(self, day: int, walkers_seed: int) -> Scene:
        """Return the town on a day; the seed determines the walkers."""
        rng = np.random.default_rng([walkers_seed, 22])
        first = 1_000_000 + 1_000 * walkers_seed
        walkers = tuple(
            SceneObject(
                first + k,
                "Pedestrian",
                sample_pedestrian(rng, walking=True),
                self._pavement(rng, along=True),
                float(rng.uniform(0.9, 1.5)),
            )
            for k in range(self.config.walking)
        )
        objects = (*self._cars[day], *self._standing[day], *walkers)
        start = Spot(0.0, -self.config.half_m[1] - LANES_M / 2, 0.0)
        return Scene(self.ground, self._static, self._ground_triangles, objects, start)

    def route(self, step_m: float, *, start: float = 0.0, aside_m: float = 0.0) -> list[Spot]:
        """Return one loop in the right-hand lane, counter-clockwise.

        Args:
            step_m: between positions.
            start: of the first position, as a share of a step.
            aside_m: offset outwards from the centre of the lane.
        """
        a, b = (half + LANES_M / 2 for half in self.config.half_m)
        quarter = np.linspace(0.0, np.pi / 2, 24)
        corners = [(a, -b, -np.pi / 2), (a, b, 0.0), (-a, b, np.pi / 2), (-a, -b, np.pi)]
        line = np.concatenate(
            [
                np.column_stack(
                    [
                        x - np.sign(x) * TURN_M + TURN_M * np.cos(start + quarter),
                        y - np.sign(y) * TURN_M + TURN_M * np.sin(start + quarter),
                    ]
                )
                for x, y, start in corners
            ]
        )
        line = np.vstack([[0.0, -b], line, [0.0, -b]])
        reached = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
        along = np.arange(round(reached[-1] / step_m)) * step_m + start * step_m
        here, ahead = (
            np.column_stack([np.interp(at % reached[-1], reached, line[:, k]) for k in (0, 1)])
            for at in (along, along + 0.5)
        )
        heading = np.arctan2(*(ahead - here).T[::-1])
        here += aside_m * np.column_stack([np.sin(heading), -np.cos(heading)])
        return [Spot(float(u), float(v), float(h)) for (u, v), h in zip(here, heading, strict=True)]

    def _build(self, rng: np.random.Generator) -> tuple[Mesh, int]:
        extent = max(self.config.half_m) + 25.0
        layout = SceneLayout(
            self.ground, CHARACTERS["residential"], extent, Occupancy(), Occupancy(), Occupancy()
        )
        for street in self.streets:
            for occupancy, width in (
                (layout.roads, street.half_width_m),
                (layout.plots, street.half_width_m + street.sidewalk_m),
            ):
                half = (2 * extent, width) if street.axis == "u" else (width, 2 * extent)
                occupancy.take(*street.spot(0.0, 0.0)[:2], *half)
        ground = self.ground.mesh(extent + 10.0)
        scenery = build_frontage(layout, plants_per_100m=5.0, clutter_per_100m=4.0, rng=rng)
        return merge_meshes([ground, *scenery]), len(ground)

    def _bays(self) -> Iterator[Spot]:
        """Yield parking bays along the ring, on both sides of its streets."""
        for street in self.streets:
            across = self.config.half_m[0 if street.axis == "u" else 1]
            room = across - HALF_WIDTH_M - 8.0
            for along in np.arange(-room, room, BAY_M):
                for side in (1.0, -1.0):
                    yield street.spot(
                        float(along), side * (HALF_WIDTH_M - STRIP_M), 0.0 if side < 0 else np.pi
                    )

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _car(self, bay: int, rng: np.random.Generator) -> SceneObject:
        label, mesh = sample_vehicle(rng)
        while label != "Car" or np.ptp(mesh.vertices[:, 0]) > BAY_M - 1.2:
            label, mesh = sample_vehicle(rng)
        return SceneObject(self._number(), "Car", mesh, self._parked_at(bay, rng))

    def _parked_at(self, bay: int, rng: np.random.Generator) -> Spot:
        place = self.bays[bay]
        away = rng.normal(0.0, 0.1, 2)
        turn = float(rng.normal(0.0, 0.02))
        return Spot(place.u + float(away[0]), place.v + float(away[1]), place.heading_rad + turn)

    def _parked(self, days: int, rng: np.random.Generator) -> Iterator[list[SceneObject]]:
        """Yield the cars of each day."""
        config = self.config
        taken = {bay: self._car(bay, rng) for bay in range(len(self.bays)) if rng.random() < config.filled}
        yield list(taken.values())
        for _ in range(1, days):
            fate = rng.random(len(taken))
            left = [bay for bay, chance in zip(taken, fate, strict=True) if chance < config.leaves]
            moving = [
                bay
                for bay, chance in zip(taken, fate, strict=True)
                if config.leaves <= chance < config.leaves + config.moves
            ]
            cars = [taken[bay] for bay in moving]
            taken = {bay: car for bay, car in taken.items() if bay not in {*left, *moving}}
            free = [bay for bay in range(len(self.bays)) if bay not in taken]
            for car, bay in zip(cars, rng.permutation(free)[: len(cars)].tolist(), strict=False):
                taken[bay] = replace(car, spot=self._parked_at(bay, rng))
            for bay in free:
                if bay not in taken and rng.random() < config.arrives:
                    taken[bay] = self._car(bay, rng)
            yield list(taken.values())

    def _people(self, day: int, rng: np.random.Generator) -> list[SceneObject]:
        """Return the people who stand somewhere all day; cyclists only on some days."""
        people = [
            SceneObject(
                self._number(), "Pedestrian", sample_pedestrian(rng, walking=False), self._pavement(rng)
            )
            for _ in range(self.config.standing)
        ]
        if day in self._once_days:
            corner = self._pavement(rng)
            for k in range(self.config.once):
                forward = np.array([np.cos(corner.heading_rad), np.sin(corner.heading_rad)]) * 2.4 * k
                spot = Spot(corner.u + float(forward[0]), corner.v + float(forward[1]), corner.heading_rad)
                people.append(SceneObject(self._number(), "Cyclist", sample_cyclist(rng), spot))
        return people

    def _pavement(self, rng: np.random.Generator, *, along: bool = False) -> Spot:
        """Return a random spot on the pavements of the ring, heading along the street or anywhere."""
        street = self.streets[int(rng.integers(len(self.streets)))]
        room = self.config.half_m[0 if street.axis == "u" else 1] - HALF_WIDTH_M - 3.0
        # Stay near the kerb, because houses, fences and hedges begin behind the pavement.
        lateral = float(rng.choice([-1.0, 1.0])) * (HALF_WIDTH_M + float(rng.uniform(0.5, 1.2)))
        heading = float(rng.choice([0.0, np.pi])) if along else float(rng.uniform(-np.pi, np.pi))
        return street.spot(float(rng.uniform(-room, room)), lateral, heading)


def positions(scene: Scene, time_s: float) -> dict[int, tuple[str, NDArray[np.float64]]]:
    """Return label and (2,) centre of every object of a scene at a time, by number; metres in the map."""
    return {
        item.track_id: (item.label, item.world_from_object(scene.ground, time_s)[:2, 3])
        for item in scene.objects
    }


def _streets(config: TownConfig) -> tuple[Street, ...]:
    half_x, half_y = config.half_m
    places = (("u", -half_y), ("u", half_y), ("v", -half_x), ("v", half_x))
    return tuple(
        Street("u" if axis == "u" else "v", at, HALF_WIDTH_M, ("parallel", "parallel"), SIDEWALK_M)
        for axis, at in places
    )
