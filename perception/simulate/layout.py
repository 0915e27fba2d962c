"""Layout of scenes: street grids and occupied areas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from perception.simulate.ground import PARKING_DEPTH_M, Ground, Spot, Street
from perception.simulate.surface import Material


class Character(NamedTuple):
    """Kind of neighbourhood; all values are probabilities or multiples.

    Attributes:
        share: relative frequency.
        parking: chance that a street side has a parking strip.
        buildings: chance that a plot is built on.
        setback_m: least and largest distance of the fronts from the pavement.
        floors: least and largest number of floors.
        plants: multiple of the configured number of plants.
        traffic: multiple of the configured number of moving cars.
        people: multiple of the configured number of people.
        junctions: chance of a street crossing in each interval.
    """

    share: float
    parking: float
    buildings: float
    setback_m: tuple[float, float]
    floors: tuple[int, int]
    plants: float
    traffic: float
    people: float
    junctions: float

    @property
    def has_gardens(self) -> bool:
        """True if gardens fit between the pavements and the houses."""
        return self.setback_m[1] > 3.0


CHARACTERS: dict[str, Character] = {
    "residential": Character(0.5, 0.85, 0.85, (1.5, 7.0), (1, 3), 1.0, 0.5, 0.8, 0.8),
    "city": Character(0.28, 0.6, 0.95, (0.0, 2.0), (3, 6), 0.4, 1.4, 2.0, 0.9),
    "open": Character(0.22, 0.1, 0.15, (6.0, 20.0), (1, 3), 1.6, 1.3, 0.3, 0.3),
    # Not drawn by default; chosen by name only.
    "highway": Character(1.0, 0.0, 0.02, (25.0, 60.0), (1, 2), 0.4, 2.0, 0.0, 0.0),
}


class Occupancy:
    """Occupied axis-aligned rectangles in street coordinates."""

    def __init__(self) -> None:
        self._rectangles = np.zeros((0, 4))

    def is_free(self, u: float, v: float, half_u: float, half_v: float) -> bool:
        """True if a rectangle (centre, half sizes in metres) overlaps no occupied one."""
        taken = self._rectangles
        near = (np.abs(taken[:, 0] - u) < taken[:, 2] + half_u) & (
            np.abs(taken[:, 1] - v) < taken[:, 3] + half_v
        )
        return not bool(near.any())

    def take(self, u: float, v: float, half_u: float, half_v: float) -> None:
        """Mark a rectangle as occupied."""
        self._rectangles = np.vstack([self._rectangles, [u, v, half_u, half_v]])

    def claim(self, spot: Spot, length_m: float, width_m: float, margin_m: float = 0.2) -> bool:
        """Occupy the area of an object if it is free; return False and change nothing otherwise.

        Args:
            spot: centre and heading.
            length_m, width_m: size along and across the heading.
            margin_m: clearance around it.
        """
        cosine, sine = abs(np.cos(spot.heading_rad)), abs(np.sin(spot.heading_rad))
        half_u = (length_m * cosine + width_m * sine) / 2 + margin_m
        half_v = (length_m * sine + width_m * cosine) / 2 + margin_m
        if not self.is_free(spot.u, spot.v, half_u, half_v):
            return False
        self.take(spot.u, spot.v, half_u, half_v)
        return True


class SceneLayout(NamedTuple):
    """The plan shared by the builders of scenery and traffic.

    Attributes:
        ground: terrain with its streets; the robot is on the first one.
        character: kind of neighbourhood.
        extent_m: half side of the filled square.
        taken: areas of objects on and along streets.
        roads: the streets themselves, kerb to kerb.
        plots: streets with their pavements, where no house can stand.
    """

    ground: Ground
    character: Character
    extent_m: float
    taken: Occupancy
    roads: Occupancy
    plots: Occupancy

    def in_junction(self, street: Street, along_m: float, margin_m: float) -> bool:
        """True if a position along ``street`` is within ``margin_m`` of a crossing street's kerb."""
        return any(
            abs(along_m - other.center_m) < other.half_width_m + margin_m
            for other in self.ground.streets
            if other.axis != street.axis
        )


def plan_layout(
    extent_m: float, slope: float, bend_m: float, characters: tuple[str, ...], rng: np.random.Generator
) -> SceneLayout:
    """Draw the streets and the terrain of a scene.

    Args:
        extent_m: half side of the filled square.
        slope: largest fall of the terrain.
        bend_m: largest sideways bend of the streets.
        characters: names of ``CHARACTERS`` to choose from.
        rng: source of every random choice.
    """
    options = [CHARACTERS[name] for name in characters]
    shares = np.array([option.share for option in options])
    character = options[int(rng.choice(len(options), p=shares / shares.sum()))]
    streets = (_street("u", 0.0, character, rng), *_other_streets(extent_m, character, rng))
    ground = _ground(streets, slope, bend_m, character, rng)
    layout = SceneLayout(ground, character, extent_m, Occupancy(), Occupancy(), Occupancy())
    for street in streets:
        for occupancy, width in (
            (layout.roads, street.half_width_m),
            (layout.plots, street.half_width_m + street.sidewalk_m),
        ):
            half = (2 * extent_m, width) if street.axis == "u" else (width, 2 * extent_m)
            spot = street.spot(0.0, 0.0)
            occupancy.take(spot.u, spot.v, *half)
    return layout


def _street(axis: str, center_m: float, character: Character, rng: np.random.Generator) -> Street:
    parking = tuple(_parking(character, rng) for _ in range(2))
    lanes = float(rng.choice([2.6, 3.1, 3.6, 6.4], p=[0.3, 0.35, 0.2, 0.15]))
    strip = max(PARKING_DEPTH_M[kind] for kind in parking)
    sidewalk = float(rng.uniform(1.3, 3.5))
    return Street(
        "u" if axis == "u" else "v",
        center_m,
        lanes + strip + 0.3,
        (parking[0], parking[1]),
        sidewalk,
        bool(rng.random() < 0.5),
    )


def _parking(character: Character, rng: np.random.Generator) -> str:
    if rng.random() > character.parking:
        return "none"
    return str(rng.choice(["parallel", "perpendicular"], p=[0.85, 0.15]))


def _other_streets(extent_m: float, character: Character, rng: np.random.Generator) -> Iterator[Street]:
    """Yield streets that cross the first one, and some parallel to it."""
    along = float(rng.uniform(-extent_m, -extent_m + 60.0))
    while along < extent_m:
        if rng.random() < character.junctions:
            yield _street("v", along, character, rng)
        along += float(rng.uniform(48.0, 110.0))
    for side in (-1.0, 1.0):
        offset = float(rng.uniform(48.0, 90.0))
        while offset < extent_m:
            if rng.random() < character.junctions:
                yield _street("u", side * offset, character, rng)
            offset += float(rng.uniform(48.0, 90.0))


def _ground(
    streets: tuple[Street, ...], slope: float, bend_m: float, character: Character, rng: np.random.Generator
) -> Ground:
    wavelength = rng.uniform(35.0, 110.0, 5)
    angle = rng.uniform(0, 2 * np.pi, 5)
    amplitude = rng.uniform(0.0, 0.25 * slope, 5) * wavelength / (2 * np.pi)
    waves = np.stack(
        [
            amplitude,
            2 * np.pi / wavelength * np.cos(angle),
            2 * np.pi / wavelength * np.sin(angle),
            rng.uniform(0, 2 * np.pi, 5),
        ],
        axis=1,
    )
    bend = (
        float(rng.uniform(0.0, bend_m)),
        2 * np.pi / float(rng.uniform(120, 260)),
        float(rng.uniform(0, 6.28)),
    )
    fall = rng.uniform(-slope, slope, 2)
    verge = Material.GRASS if character.has_gardens else Material.PAVEMENT
    return Ground(
        streets,
        waves,
        (float(fall[0]), float(fall[1])),
        bend,
        verge,
        kerb_m=float(rng.uniform(0.03, 0.15)),
        asphalt=float(rng.uniform(0.18, 0.36)),
    )
