"""Relations between boxes of memories; each threshold is a constant of this module.

A memory has a box if its payload has ``size_m`` (length, width, height in metres), as ``recall import``
writes it. Without a size, a memory is a point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from memory.types import Memory

Relation = Literal[
    "on",
    "inside",
    "next to",
    "between",
    "under",
    "above",
    "left of",
    "right of",
    "in front of",
    "behind",
    "carrying",
]
RELATIONS: tuple[Relation, ...] = get_args(Relation)
#: Quantity that puts memories in order.
RankMeasure = Literal[
    "distance", "size", "length", "width", "height", "elevation", "speed", "observations", "duration",
    "first_seen", "last_seen",
]  # fmt: skip
RANK_MEASURES: tuple[RankMeasure, ...] = get_args(RankMeasure)
#: Quantity of a comparison, and which side is asked for.
Measure = Literal["count", "area"] | RankMeasure
MEASURES: tuple[Measure, ...] = ("count", *RANK_MEASURES)
Order = Literal["more", "less", "same"]
#: Maximum gap between neighbours, or this share of the landmark's longest side if that is more.
NEXT_TO_M, NEXT_TO_SHARE = 1.0, 0.5
#: An object on another one has its bottom from this share of the other's height to this much above its top.
ON_FROM, ON_ABOVE_M = 0.5, 0.15
#: Tolerance of footprints and heights, in metres.
MARGIN_M = 0.05
#: Maximum distance from the line of two centres of an object between them, or this share of the line. It lies
#: outside both outlines.
BETWEEN_M, BETWEEN_SHARE = 0.5, 0.15
#: Maximum distance of objects on a side of an object, and on a side of the robot.
BESIDE_M, AROUND_ROBOT_M = 5.0, 10.0
#: x, y in metres and yaw in radians of the robot.
RobotPose = tuple[float, float, float]


class Box(NamedTuple):
    """A box that stands upright; lengths in metres, ``yaw`` in radians, z at the centre."""

    x: float
    y: float
    z: float
    length: float
    width: float
    height: float
    yaw: float

    @property
    def bottom(self) -> float:
        """Height of its lower face."""
        return self.z - self.height / 2

    @property
    def top(self) -> float:
        """Height of its upper face."""
        return self.z + self.height / 2

    @property
    def volume(self) -> float:
        """In cubic metres."""
        return self.length * self.width * self.height

    @property
    def corners(self) -> NDArray[np.float64]:
        """(4, 2) corners of the footprint, in order."""
        half = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * (self.length / 2, self.width / 2)
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        turned: NDArray[np.float64] = half @ np.array([[cos, sin], [-sin, cos]]) + (self.x, self.y)
        return turned

    def covers(self, x: float, y: float) -> bool:
        """Return True if a point lies in the footprint."""
        cos, sin = math.cos(self.yaw), math.sin(self.yaw)
        dx, dy = x - self.x, y - self.y
        along, across = abs(cos * dx + sin * dy), abs(cos * dy - sin * dx)
        return along <= self.length / 2 + MARGIN_M and across <= self.width / 2 + MARGIN_M


def box_of(memory: Memory) -> Box | None:
    """Return the box of a memory; None if its position is unknown."""
    if memory.position is None:
        return None
    size = memory.payload.get("size_m")
    numbers = size if isinstance(size, list | tuple) and len(size) == 3 else (0.0, 0.0, 0.0)
    if not all(isinstance(number, int | float) and 0.0 <= number < math.inf for number in numbers):
        numbers = (0.0, 0.0, 0.0)
    length, width, height = map(float, numbers)
    return Box(*memory.position, length, width, height, memory.yaw)


def gap_m(one: Box, other: Box) -> float:
    """Return the distance between two footprints in metres; 0 if they overlap."""
    first, second = one.corners, other.corners
    if _overlap(first, second):
        return 0.0
    return min(_to_edges(first, second), _to_edges(second, first))


def _overlap(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    """Return True unless a side of one of two convex shapes separates them."""
    for corners in (first, second):
        edges = np.roll(corners, -1, axis=0) - corners
        normals = np.stack([-edges[:, 1], edges[:, 0]], axis=1)
        here, there = first @ normals.T, second @ normals.T
        if ((here.max(axis=0) < there.min(axis=0)) | (there.max(axis=0) < here.min(axis=0))).any():
            return False
    # Shapes without an area have no separating side.
    return bool(np.ptp(first, axis=0).min() > 0.0 or np.ptp(second, axis=0).min() > 0.0)


def _to_edges(points: NDArray[np.float64], corners: NDArray[np.float64]) -> float:
    """Return the smallest distance of some points from the sides of a shape."""
    edges = np.roll(corners, -1, axis=0) - corners
    away = points[:, None, :] - corners[None, :, :]
    squared = np.maximum((edges**2).sum(axis=1), 1e-12)
    along = np.clip((away * edges).sum(axis=2) / squared, 0.0, 1.0)
    return float(np.linalg.norm(away - along[..., None] * edges, axis=2).min())


def is_on(one: Box, landmark: Box) -> bool:
    """Return True if an object lies or stands on a landmark: above its half height, a seat for example."""
    lowest = landmark.bottom + ON_FROM * landmark.height - MARGIN_M
    return landmark.covers(one.x, one.y) and lowest <= one.bottom <= landmark.top + ON_ABOVE_M


def is_inside(one: Box, landmark: Box) -> bool:
    """Return True if the centre of a smaller object lies in a landmark, and its top not above it."""
    high = landmark.bottom - MARGIN_M <= one.z and one.top <= landmark.top + MARGIN_M
    return landmark.covers(one.x, one.y) and high and one.volume <= landmark.volume


def is_next_to(one: Box, landmark: Box) -> bool:
    """Return True if the gap between two footprints is small."""
    most = max(NEXT_TO_M, NEXT_TO_SHARE * max(landmark.length, landmark.width))
    return gap_m(one, landmark) <= most


def is_under(one: Box, landmark: Box) -> bool:
    """Return True if an object lies wholly below a landmark, or carries it; both need a size."""
    if not (one.volume and landmark.volume and _is_in_line(one, landmark)):
        return False
    return is_on(landmark, one) or one.top <= landmark.bottom + MARGIN_M


def _is_in_line(one: Box, other: Box) -> bool:
    """Return True if the centre of one box lies in the outline of the other."""
    return one.covers(other.x, other.y) or other.covers(one.x, one.y)


def is_above(one: Box, landmark: Box) -> bool:
    """Return True if an object lies wholly above a landmark, or on it; both need a size."""
    return is_under(landmark, one)


def may_be_under(one: Box, landmark: Box) -> bool:
    """Return True if boxes do not tell: the object is low in the outline, or one size is not known.

    The box of a table reaches to the floor, and so does that of a cupboard, with its contents inside.
    """
    if not _is_in_line(one, landmark) or is_under(one, landmark) or is_under(landmark, one):
        return False
    return not (one.volume and landmark.volume) or (one.z < landmark.z and one.volume <= landmark.volume)


def may_be_above(one: Box, landmark: Box) -> bool:
    """Return True if boxes do not tell whether an object is above a landmark."""
    return may_be_under(landmark, one)


def is_carrying(one: Box, landmark: Box) -> bool:
    """Return True if a landmark lies or stands on an object."""
    return is_on(landmark, one)


def is_between(one: Box, first: Box, second: Box) -> bool:
    """Return True if a centre is close to the line between two others, and between them."""
    line = np.array([second.x - first.x, second.y - first.y])
    length = float(np.linalg.norm(line))
    if length == 0.0:
        return False
    away = np.array([one.x - first.x, one.y - first.y])
    along = float(away @ line) / length
    across = abs(float(line[0] * away[1] - line[1] * away[0])) / length
    return 0.0 < along < length and across <= max(BETWEEN_M, BETWEEN_SHARE * length)


def side_of_robot(one: Box, pose: RobotPose) -> Relation | None:
    """Return on which side of the robot a centre lies, each side a quarter; None if it is far away."""
    x, y, yaw = pose
    dx, dy = one.x - x, one.y - y
    if not 0.0 < math.hypot(dx, dy) <= AROUND_ROBOT_M:
        return None
    return _quarter(math.atan2(dy, dx) - yaw)


def side_of(one: Box, landmark: Box, pose: RobotPose) -> Relation | None:
    """Return on which side of a landmark a centre lies, as the robot sees it; None if it is far from it."""
    dx, dy = one.x - landmark.x, one.y - landmark.y
    if not 0.0 < math.hypot(dx, dy) <= BESIDE_M:
        return None
    # Seen from the robot, what is nearer to it is in front of the landmark.
    sight = math.atan2(landmark.y - pose[1], landmark.x - pose[0])
    side = _quarter(math.atan2(dy, dx) - sight)
    return {"in front of": "behind", "behind": "in front of"}.get(side, side)  # type: ignore[return-value]


def _quarter(angle: float) -> Relation:
    turned = math.degrees(math.remainder(angle, math.tau))
    if abs(turned) <= 45.0:
        return "in front of"
    if abs(turned) >= 135.0:
        return "behind"
    return "left of" if turned > 0.0 else "right of"


#: Relations of two boxes that need no pose.
JUDGES: Mapping[Relation, Callable[[Box, Box], bool]] = {
    "on": is_on,
    "inside": is_inside,
    "next to": is_next_to,
    "under": is_under,
    "above": is_above,
    "carrying": is_carrying,
}
#: Objects that may be in the relation, though their boxes do not show it.
UNCERTAIN: Mapping[Relation, Callable[[Box, Box], bool]] = {"under": may_be_under, "above": may_be_above}
#: Relations that need the pose of the robot.
SIDES: tuple[Relation, ...] = ("left of", "right of", "in front of", "behind")
#: Relations that need the size of the landmark.
SIZED: tuple[Relation, ...] = ("on", "inside", "under", "above")
#: Threshold of each relation, in a sentence.
MEANINGS: Mapping[Relation, str] = {
    "on": f"On means in its outline, from half its height to {ON_ABOVE_M:g} m above it",
    "inside": "Inside means with the centre in its box",
    "next to": f"Next to means at most {NEXT_TO_M:g} m from its outline, or half its longest side",
    "between": (
        f"Between means at most {BETWEEN_M:g} m from the line of their centres, or {BETWEEN_SHARE:.0%} of it"
    ),
    "under": "Under means below its box in its outline, or carrying it",
    "above": "Above means over its box in its outline, or on it",
    "carrying": f"Carrying means that it is on it, from half the height to {ON_ABOVE_M:g} m above it",
    **dict.fromkeys(SIDES, f"Sides are as the robot sees them, within {BESIDE_M:g} m"),
}
