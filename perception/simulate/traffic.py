"""Labelled objects: parked and moving cars, pedestrians and cyclists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from perception.simulate.ground import Ground, Spot, Street
from perception.simulate.layout import SceneLayout
from perception.simulate.mesh import Mesh
from perception.simulate.objects.people import sample_cyclist, sample_pedestrian
from perception.simulate.objects.vehicles import sample_vehicle


@dataclass(frozen=True, eq=False)
class SceneObject:
    """One labelled object.

    Attributes:
        track_id: number of the object, constant in every scan of a scene.
        label: class name.
        mesh: shape; origin on the ground under the centre, x forward.
        spot: position at time 0 in street coordinates.
        speed_m_s: speed along the heading; 0 for parked objects.
    """

    track_id: int
    label: str
    mesh: Mesh
    spot: Spot
    speed_m_s: float = 0.0

    def world_from_object(self, ground: Ground, time_s: float) -> npt.NDArray[np.float64]:
        """Return the 4x4 pose at a time after the start of the scene."""
        distance, (u, v, heading) = self.speed_m_s * time_s, self.spot
        moved_u, moved_v = u + distance * float(np.cos(heading)), v + distance * float(np.sin(heading))
        return ground.pose(Spot(moved_u, moved_v, heading))


@dataclass
class TrafficBuilder:
    """Builder that places labelled objects on the streets of a layout.

    Attributes:
        layout: streets and occupied areas; updated.
        rng: source of every random choice.
        objects: objects placed so far.
    """

    layout: SceneLayout
    rng: np.random.Generator
    objects: list[SceneObject] = field(default_factory=list)

    def park_cars(self, fill: float) -> None:
        """Fill the parking strips; ``fill`` is the chance that a bay is occupied."""
        for street in self.layout.ground.streets:
            density = fill * float(self.rng.uniform(0.4, 1.3))
            for side, kind in zip((1.0, -1.0), street.parking, strict=True):
                if kind != "none":
                    self._park_row(street, side, kind, density)

    def park_on_drives(self, chance: float) -> None:
        """Park cars next to houses, at right angles to the street."""
        for street in self.layout.ground.streets:
            for side in (-1.0, 1.0):
                for along in np.arange(-self.layout.extent_m, self.layout.extent_m, 17.0):
                    if self.rng.random() < chance:
                        lateral = street.half_width_m + street.sidewalk_m + float(self.rng.uniform(2.8, 4.5))
                        heading = float(self.rng.choice([0.5, -0.5])) * np.pi
                        heading += float(self.rng.normal(0, 0.05))
                        place_m = float(along + self.rng.uniform(-5, 5))
                        place = street.spot(place_m, side * lateral, heading)
                        self._place_car(place, 0.0, off_road=True)

    def drive_cars(self, per_100m: float, speed_m_s: float) -> None:
        """Place cars in the lanes; those on streets that cross the first one wait."""
        for street in self.layout.ground.streets:
            moving = street.axis == "u"
            mean = per_100m * self.layout.character.traffic * self.layout.extent_m / 50.0
            for _ in range(int(self.rng.poisson(mean))):
                along = float(self.rng.uniform(-self.layout.extent_m, self.layout.extent_m))
                if not moving and self.layout.in_junction(street, along, 4.0):
                    continue
                self._place_car(self.lane_spot(street, along), speed_m_s if moving else 0.0, gap_m=2.0)

    def add_cyclists(self, per_100m: float, speed_m_s: float) -> None:
        """Place cyclists near the kerb or on the pavement."""
        for street in self._populated(per_100m):
            along = float(self.rng.uniform(-self.layout.extent_m, self.layout.extent_m))
            side = float(self.rng.choice([-1.0, 1.0]))
            lateral = side * (street.half_width_m + float(self.rng.choice([-0.9, -0.6, 1.0])))
            heading = (0.0 if side < 0 else np.pi) + float(self.rng.normal(0.0, 0.08))
            moving = speed_m_s if street.axis == "u" else 0.0
            self.place("Cyclist", sample_cyclist(self.rng), street.spot(along, lateral, heading), moving)

    def add_pedestrians(self, per_100m: float, speed_m_s: float) -> None:
        """Place pedestrians on pavements, alone or in small groups; a few cross the street."""
        for street in self._populated(per_100m):
            along = float(self.rng.uniform(-self.layout.extent_m, self.layout.extent_m))
            side = float(self.rng.choice([-1.0, 1.0]))
            for _ in range(int(self.rng.choice([1, 2, 3], p=[0.65, 0.25, 0.1]))):
                self._add_pedestrian(street, side, along + float(self.rng.uniform(-1.5, 1.5)), speed_m_s)

    def _add_pedestrian(self, street: Street, side: float, along_m: float, speed_m_s: float) -> None:
        walking = bool(self.rng.random() < 0.7)
        crossing = self.rng.random() < 0.12
        width = street.half_width_m
        lateral = side * (
            self.rng.uniform(0, width) if crossing else width + self.rng.uniform(0.3, street.sidewalk_m)
        )
        heading = float(self.rng.choice([0.0, np.pi])) + float(self.rng.normal(0.0, 0.15))
        if crossing:
            heading += np.pi / 2
        elif not walking:
            heading = float(self.rng.uniform(-np.pi, np.pi))
        mesh = sample_pedestrian(self.rng, walking=walking)
        speed = speed_m_s * float(self.rng.uniform(0.7, 1.2)) if walking else 0.0
        self.place("Pedestrian", mesh, street.spot(along_m, float(lateral), heading), speed)

    def _populated(self, per_100m: float) -> Iterator[Street]:
        mean = per_100m * self.layout.character.people * self.layout.extent_m / 50.0
        for street in self.layout.ground.streets:
            for _ in range(int(self.rng.poisson(mean))):
                yield street

    def _park_row(self, street: Street, side: float, kind: str, fill: float) -> None:
        along = -self.layout.extent_m + float(self.rng.uniform(0, 3))
        jitter = self.rng.normal
        while along < self.layout.extent_m:
            slot = 2.5 if kind == "perpendicular" else float(self.rng.uniform(4.9, 6.3))
            along += slot
            if self.rng.random() > fill or self.layout.in_junction(street, along, 6.0):
                continue
            direction = (0.0 if side < 0 else np.pi) + (np.pi if self.rng.random() < 0.2 else 0.0)
            if kind == "perpendicular":
                direction += np.pi / 2
            inset = 2.5 if kind == "perpendicular" else 1.08
            lateral = side * (street.half_width_m - inset + float(jitter(0, 0.1)))
            if kind == "parallel" and self.rng.random() < 0.08:
                lateral += side * 0.9  # two wheels on the pavement
            self._place_car(street.spot(along, lateral, direction + float(jitter(0, 0.025))), 0.0)

    def lane_spot(self, street: Street, along_m: float) -> Spot:
        """Return a spot in the lane of either direction."""
        side = float(self.rng.choice([-1.0, 1.0]))
        lateral = side * float(street.lanes_m / 2 + self.rng.normal(0, 0.2))
        heading = (0.0 if side < 0 else np.pi) + float(self.rng.normal(0, 0.02))
        return street.spot(along_m, lateral, heading)

    def _place_car(
        self, spot: Spot, speed_m_s: float, *, gap_m: float = 0.25, off_road: bool = False
    ) -> None:
        label, mesh = sample_vehicle(self.rng)
        if off_road and not self.layout.plots.is_free(spot.u, spot.v, 1.0, 1.0):
            return
        self.place(label, mesh, spot, speed_m_s, gap_m)

    def place(self, label: str, mesh: Mesh, spot: Spot, speed_m_s: float, gap_m: float = 0.15) -> None:
        """Place an object if there is room for it and ``gap_m`` around it; otherwise change nothing."""
        length, width, _ = mesh.vertices.max(0) - mesh.vertices.min(0)
        if max(abs(spot.u), abs(spot.v)) > self.layout.extent_m:
            return
        if self.layout.taken.claim(spot, float(length), float(width), gap_m):
            self.objects.append(SceneObject(len(self.objects), label, mesh, spot, speed_m_s))
