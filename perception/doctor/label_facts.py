"""Measurements of the labelled boxes of one frame against its scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perception.boxes import points_in_boxes, wrap_angle
from perception.data import Frame, boxes_from_objects
from perception.data.camera import DONT_CARE
from perception.io.transform import ScanTransform

Array = npt.NDArray[np.float64]

#: Points this far above the bottom of a box belong to the object, not to the ground.
OBJECT_ABOVE_BOTTOM_M = 0.3
#: A box with this many such points is supported by the scan.
SUPPORT_POINTS = 3
_GROUND_RING_M = 3.0
#: Boxes with so many points show which heading is right.
_CLEAR_POINTS = 10
#: Larger boxes are in another unit, which the check of sizes reports; their points are not counted.
_LARGEST_BOX_M = 100.0
#: Ground next to a box: number of points, thickness of their layer, its fraction of them, and the number of
#: quadrants around the box. 17 to 65 % of the boxes of KITTI, nuScenes and DAIR-V2X have it, boats at quays
#: do not.
_GROUND_POINTS, _GROUND_LAYER_M, _GROUND_SHARE, _GROUND_SIDES = 20, 0.3, 0.3, 3


@dataclass(frozen=True)
class Turn:
    """An alternative heading: ``sign * yaw + quarters * pi / 2``."""

    sign: int
    quarters: int
    message: str


TURNS = (
    Turn(1, 1, "The boxes contain many more points if turned by 90 degrees"),
    Turn(-1, 0, "The boxes contain many more points with the opposite sign of yaw"),
    Turn(-1, -1, "The boxes fit if rotation_y is the yaw in the LiDAR frame"),
)


#: Possible missing conversions of the scans, by what the scans seem to be.
AXES_CHANGES = {
    "to be in feet": ScanTransform(0.3048),
    "to be in centimetres": ScanTransform(0.01),
    "to be in millimetres": ScanTransform(0.001),
    "to be in camera axes": ScanTransform(axes="z,-x,-y"),
    "to have y up and z backward": ScanTransform(axes="-z,-x,y"),
    "to have x right and y forward": ScanTransform(axes="y,-x,z"),
    "to have x left and y backward": ScanTransform(axes="-y,x,z"),
    "to have x backward and y right": ScanTransform(axes="-x,-y,z"),
    "to have y to the right (mirrored)": ScanTransform(axes="x,-y,z"),
    "to have y right and z down": ScanTransform(axes="x,-y,-z"),
}


@dataclass(frozen=True, eq=False)
class LabelFacts:
    """Measurements of the boxes of one frame, without DontCare.

    Attributes:
        frame_id: name of the frame.
        types: M class names as written.
        sizes: (M, 3) length, width, height as written.
        rotations: (M,) rotation_y as written.
        placed: (M,) bool, boxes with usable numbers in a frame with scan and calibration. Attributes below
            have a row for each of these P boxes.
        points: (P,) points inside.
        supported: (P,) bool, enough points inside and above the ground.
        distance_m: (P,) distance from the surface of the box to the nearest point.
        ground_gap_m: (P,) height of the box's bottom above the ground; NaN without visible ground.
        centres: (P, 3) centres, metres in the LiDAR frame.
        heights_m: (P,) heights of the boxes.
        turned: (P, 3) points inside after each of ``TURNS``.
        changed: (P, 10) bool, supported after each of ``AXES_CHANGES``; (P, 0) if most boxes of the frame are
            supported anyway.
        same_as_another: number of repeated boxes.
        in_camera: True if the labels are written in a camera frame.
    """

    frame_id: str
    types: tuple[str, ...]
    sizes: Array
    rotations: Array
    placed: npt.NDArray[np.bool_]
    points: npt.NDArray[np.int64]
    supported: npt.NDArray[np.bool_]
    distance_m: Array
    ground_gap_m: Array
    centres: Array
    heights_m: Array
    turned: npt.NDArray[np.int64]
    changed: npt.NDArray[np.bool_]
    same_as_another: int
    in_camera: bool


def measure_labels(frame: Frame, xyz: Array) -> LabelFacts:
    """Measure the boxes of one frame.

    Args:
        frame: the frame.
        xyz: (N, 3) finite points in the LiDAR frame; without points, no box is placed.

    Raises:
        DataError: the labels are unreadable.
    """
    labelled = [item for item in frame.objects if item.type != DONT_CARE]
    types = [item.type for item in labelled] if frame.objects else frame.labels
    written = [
        (*item.location, item.length_m, item.width_m, item.height_m, item.rotation_y) for item in labelled
    ]
    rows = np.array(written if frame.objects else frame.boxes, np.float64).reshape(-1, 7)
    sizes = rows[:, 3:6]
    placed = np.asarray(((sizes > 0) & (sizes < _LARGEST_BOX_M)).all(axis=1)) & (len(xyz) > 0)
    boxes = rows[placed]
    if frame.objects and placed.any():
        usable = [item for item, place in zip(labelled, placed, strict=True) if place]
        boxes = boxes_from_objects(usable, frame.calibration).boxes.astype(np.float64)
    inside = _count_inside(xyz, boxes)
    supported = inside[:, 1] >= SUPPORT_POINTS
    return LabelFacts(
        frame_id=frame.frame_id,
        types=tuple(types),
        sizes=sizes,
        rotations=rows[:, 6],
        placed=placed,
        points=inside[:, 0],
        supported=supported,
        distance_m=_distance_to_points(xyz, boxes),
        ground_gap_m=_gap_to_ground(xyz, boxes),
        centres=boxes[:, :3],
        heights_m=boxes[:, 5],
        turned=inside[:, 2:],
        changed=_changed(xyz, boxes, supported),
        same_as_another=len(types) - len({(name, *row[:3]) for name, row in zip(types, rows, strict=True)}),
        in_camera=bool(frame.objects),
    )


class BetterTurn(NamedTuple):
    """A row of ``TURNS``, and the factor by which it increases the points in boxes."""

    row: int
    times: float


def points_by_class(facts: Sequence[LabelFacts]) -> dict[str, list[int]]:
    """Return the numbers of points in placed boxes, by class."""
    inside: dict[str, list[int]] = {}
    for frame in facts:
        placed = [name for name, place in zip(frame.types, frame.placed, strict=True) if place]
        for name, count in zip(placed, frame.points, strict=True):
            inside.setdefault(name, []).append(int(count))
    return inside


def better_turn(frames: Sequence[LabelFacts]) -> BetterTurn | None:
    """Find a heading with which long boxes contain many more points, or None."""
    points = np.concatenate([frame.points for frame in frames])
    turned = np.concatenate([frame.turned for frame in frames])
    sizes = np.concatenate([frame.sizes[frame.placed] for frame in frames])
    elongated = sizes[:, :2].max(axis=1) > 1.3 * sizes[:, :2].min(axis=1)
    clear = elongated & (np.maximum(points, turned.max(axis=1)) >= _CLEAR_POINTS)
    if clear.sum() < 3:
        return None
    points, turned = points[clear], turned[clear]
    # The log of the ratio gives all boxes the same weight, also distant ones with few points.
    gain = np.median(np.log((turned + 1.0) / (points + 1.0)[:, None]), axis=0)
    total = turned.sum(axis=0) / max(int(points.sum()), 1)
    best = int(np.argmax(total))
    if gain[best] < np.log(1.1) or total[best] < 1.25:
        return None
    return BetterTurn(best, float(total[best]))


def _near(xyz: Array, box: Array) -> Array:
    """Return the points around a box: those of any heading, and the ground nearby."""
    reach = np.hypot(box[3], box[4]) / 2 + _GROUND_RING_M
    x, y = xyz[:, 0] - box[0], xyz[:, 1] - box[1]
    return np.asarray(xyz[x * x + y * y < reach**2])


def _raised(box: Array) -> Array:
    """Return the box without its lowest part, which may contain ground."""
    margin = min(OBJECT_ABOVE_BOTTOM_M, box[5] / 2)
    return np.asarray(box + np.array([0, 0, margin / 2, 0, 0, -margin, 0]))


def _turned(box: Array, turn: Turn) -> Array:
    yaw_rad = wrap_angle(float(turn.sign * box[6] + turn.quarters * np.pi / 2))
    return np.array([*box[:6], yaw_rad])


def _count_inside(xyz: Array, boxes: Array) -> npt.NDArray[np.int64]:
    """Count points inside each box, inside its raised part, and after each turn: (M, 2 + len(TURNS))."""
    counts = np.zeros((len(boxes), 2 + len(TURNS)), np.int64)
    for row, box in zip(counts, boxes, strict=True):
        variants = np.stack([box, _raised(box), *(_turned(box, turn) for turn in TURNS)])
        row[:] = points_in_boxes(_near(xyz, box), variants).sum(axis=1)
    return counts


def _changed(xyz: Array, boxes: Array, supported: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    if not len(boxes) or supported.mean() >= 0.5:
        return np.zeros((len(boxes), 0), bool)
    changes = AXES_CHANGES.values()
    return np.stack([_supported(xyz @ change.matrix.T, boxes) for change in changes], axis=1)


def _supported(xyz: Array, boxes: Array) -> npt.NDArray[np.bool_]:
    """Return (M,) bool, boxes with points above the ground."""
    counts = [points_in_boxes(_near(xyz, box), _raised(box)[None]).sum() for box in boxes]
    return np.asarray(counts) >= SUPPORT_POINTS


def _distance_to_points(xyz: Array, boxes: Array) -> Array:
    """Return (M,) distances from the surface of each box to the nearest point; 0 with a point inside."""
    distance = np.zeros(len(boxes))
    for index, box in enumerate(boxes):
        offset = (xyz if not len(near := _near(xyz, box)) else near) - box[:3]
        cos, sin = np.cos(box[6]), np.sin(box[6])
        along, across = cos * offset[:, 0] + sin * offset[:, 1], cos * offset[:, 1] - sin * offset[:, 0]
        outside = np.abs(np.stack([along, across, offset[:, 2]], axis=1)) - box[3:6] / 2
        distance[index] = np.sqrt(np.square(np.maximum(outside, 0.0)).sum(axis=1).min())
    return distance


def _gap_to_ground(xyz: Array, boxes: Array) -> Array:
    """Return (M,) heights of box bottoms above the ground; NaN without visible ground.

    Ground is the lowest layer of the points around a box, if it contains many of them on several sides. Walls
    and quays are on one side only, and water returns few points.
    """
    gap = np.full(len(boxes), np.nan)
    for index, box in enumerate(boxes):
        near = _near(xyz, box)
        offset, cosine, sine = near[:, :2] - box[:2], np.cos(box[6]), np.sin(box[6])
        along = (cosine * offset[:, 0] + sine * offset[:, 1]) / box[3]
        across = (cosine * offset[:, 1] - sine * offset[:, 0]) / box[4]
        around = np.maximum(np.abs(along), np.abs(across)) > 0.5
        if around.sum() < _GROUND_POINTS:
            continue
        z = near[around, 2]
        lowest = np.percentile(z, 5)
        layer = np.abs(z - lowest) < _GROUND_LAYER_M
        quarters = 2 * (along[around][layer] > 0) + (across[around][layer] > 0)
        sides = int((np.bincount(quarters, minlength=4) >= SUPPORT_POINTS).sum())
        if layer.mean() >= _GROUND_SHARE and sides >= _GROUND_SIDES:
            gap[index] = box[2] - box[5] / 2 - lowest
    return gap
