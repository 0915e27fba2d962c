"""Random augmentation of training frames. Every function is pure and takes its random generator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from perception.config import AugmentConfig
from perception.train.data.frames import IGNORED, SensorKind, TrainingFrame
from perception.train.data.objects import (
    Bearings,
    ObjectSample,
    local_positions,
    points_in_box,
    points_of_object,
    shadowed,
)
from perception.train.data.sensors import change_sensor
from perception.types import FloatArray


def augment(
    frame: TrainingFrame,
    objects: Mapping[int, Sequence[ObjectSample]],
    config: AugmentConfig,
    classes: Sequence[str],
    random: np.random.Generator,
) -> TrainingFrame:
    """Paste and disturb objects, change the sensor, then flip, rotate, scale and shift the whole frame."""
    frame = paste_objects(frame, objects, config, classes, random)
    frame = disturb_objects(frame, config, random)
    frame = change_sensor(frame, config, random)
    frame = transform_scene(frame, config, random)
    return drop_points(frame, config.drop_points, random)


def paste_objects(
    frame: TrainingFrame,
    objects: Mapping[int, Sequence[ObjectSample]],
    config: AugmentConfig,
    classes: Sequence[str],
    random: np.random.Generator,
) -> TrainingFrame:
    """Paste objects of other frames until the frame has the configured number of each class."""
    boxes, labels, velocities = list(frame.boxes), list(frame.labels), list(frame.velocities)
    pasted: list[FloatArray] = []
    bearings = Bearings(frame.points)
    for index, name in enumerate(classes):
        pool = _pool(objects.get(index, ()), frame.sensor, config.paste_same_sensor)
        wanted = config.paste.get(name, config.paste_rest) - sum(label == index for label in labels)
        for _ in range(max(0, wanted) if pool else 0):
            sample = _moved(pool[int(random.integers(len(pool)))], config, random)
            if len(sample.points) < 5 or _collides(sample.box, boxes):
                continue
            sample = _on_ground(sample, frame.points[bearings.rows(sample.box, margin_m=3.6)])
            boxes.append(sample.box)
            labels.append(index)
            velocities.append(sample.velocity)
            pasted.append(sample.points)
    if not pasted:
        return frame
    covered = np.zeros(len(frame.points), dtype=bool)
    for box in boxes[len(frame.boxes) :]:
        rows = bearings.rows(box, margin_m=0.1)
        covered[rows[points_in_box(frame.points[rows], box, margin_m=0.05)]] = True
    points = np.concatenate([frame.points[~covered], *pasted]).astype(np.float32)
    filled = replace(
        frame,
        points=points,
        boxes=np.array(boxes, dtype=np.float32).reshape(-1, 7),
        labels=np.array(labels, dtype=np.int64),
        velocities=np.array(velocities, dtype=np.float32).reshape(-1, 2),
    )
    return cast_shadows(filled, first=len(frame.boxes)) if config.paste_shadows else filled


def cast_shadows(frame: TrainingFrame, *, first: int) -> TrainingFrame:
    """Remove the points that boxes from row ``first`` on hide from the origin.

    Objects that lose all of their points become ignored, because nothing in the scan shows them.
    """
    hidden = np.zeros(len(frame.points), dtype=bool)
    bearings = Bearings(frame.points)
    for box in frame.boxes[first:]:
        rows = bearings.rows(box)
        hidden[rows[shadowed(frame.points[rows], box)]] = True
    labels = frame.labels.copy()
    for row, box in enumerate(frame.boxes):
        rows = bearings.rows(box)
        if not hidden[rows].any():
            continue
        inside = rows[points_in_box(frame.points[rows], box)]
        if len(inside) and hidden[inside].all():
            labels[row] = IGNORED
    return replace(frame, points=frame.points[~hidden], labels=labels)


def _pool(objects: Sequence[ObjectSample], sensor: SensorKind, least: int) -> Sequence[ObjectSample]:
    """Return the objects of a frame's sensor if there are enough, else all."""
    own = [sample for sample in objects if sample.sensor == sensor] if least else []
    return own if least and len(own) >= least else objects


def _moved(sample: ObjectSample, config: AugmentConfig, random: np.random.Generator) -> ObjectSample:
    """Rotate an object around the sensor, and sometimes move it away and thin it as distance would."""
    points, box, velocity = sample.points, sample.box.copy(), sample.velocity
    if config.quarter_turns:
        quarters = int(random.integers(4))
        points, boxes = _quarter_turned(points, box[None], quarters)
        box, velocity = boxes[0], _quarter_rotation(quarters) @ velocity
    elif random.random() < 0.5:
        azimuth, view = np.arctan2(box[1], box[0]), config.paste_view_rad
        turn = float(random.uniform(-view, view) - azimuth)
        points, box = _rotated(points, box, turn)
        velocity = _rotation(turn) @ velocity
    if config.shift_m:
        points, shift = points.copy(), random.uniform(-config.shift_m, config.shift_m, 2).astype(np.float32)
        points[:, :2] += shift
        box[:2] += shift
    distance = float(np.hypot(box[0], box[1]))
    if random.random() < config.thin_objects and distance > 0:
        farther = float(random.uniform(distance, min(2.5 * distance, 68.0))) if distance < 60 else distance
        keep = random.random(len(points)) < (distance / farther) ** 2
        shift = np.append(box[:2] * (farther / distance - 1.0), 0.0).astype(np.float32)
        points = points[keep].copy()
        points[:, :3] += shift
        box[:3] += shift
    return ObjectSample(sample.label, box, points, velocity)


def _rotated(points: FloatArray, box: FloatArray, angle_rad: float) -> tuple[FloatArray, FloatArray]:
    turn = _rotation(angle_rad)
    points, box = points.copy(), box.copy()
    points[:, :2] = points[:, :2] @ turn.T
    box[:2] = turn @ box[:2]
    box[6] += angle_rad
    return points, box


def _quarter_turned(points: FloatArray, boxes: FloatArray, quarters: int) -> tuple[FloatArray, FloatArray]:
    """Rotate points (N, 4) and boxes (M, 7) along the axes by quarter turns; boxes keep their yaw."""
    turn = _quarter_rotation(quarters)
    points, boxes = points.copy(), boxes.copy()
    points[:, :2] = points[:, :2] @ turn.T
    boxes[:, :2] = boxes[:, :2] @ turn.T
    if quarters % 2:
        boxes[:, 3:5] = boxes[:, 4:2:-1]
    return points, boxes


def _rotation(angle_rad: float) -> FloatArray:
    cosine, sine = np.cos(angle_rad), np.sin(angle_rad)
    return np.array([[cosine, -sine], [sine, cosine]], dtype=np.float32)


def _quarter_rotation(quarters: int) -> FloatArray:
    """Return an exact rotation by quarter turns."""
    return np.rint(_rotation(quarters * np.pi / 2))


def _on_ground(sample: ObjectSample, scene: FloatArray) -> ObjectSample:
    """Move an object to the ground height at its new position, if enough points show it."""
    near = np.abs(scene[:, 0] - sample.box[0]) < 2.5
    near &= np.abs(scene[:, 1] - sample.box[1]) < 2.5
    if int(near.sum()) < 20:
        return sample
    ground = float(np.quantile(scene[near, 2], 0.05))
    shift = ground - float(sample.box[2] - sample.box[5] / 2)
    if abs(shift) > 1.0:
        return sample
    points, box = sample.points.copy(), sample.box.copy()
    points[:, 2] += shift
    box[2] += shift
    return ObjectSample(sample.label, box, points, sample.velocity)


def _collides(box: FloatArray, others: Sequence[FloatArray] | FloatArray) -> bool:
    """True if a box touches another in bird's-eye view (separating axes, with 0.1 m clearance)."""
    if not len(others):
        return False
    stack = np.asarray(others)
    reach = (np.hypot(stack[:, 3], stack[:, 4]) + np.hypot(box[3], box[4])) / 2
    near = np.hypot(stack[:, 0] - box[0], stack[:, 1] - box[1]) < reach
    return any(_overlap(box, other) for other in stack[near])


def _overlap(first: FloatArray, second: FloatArray, *, air_m: float = 0.1) -> bool:
    delta = second[:2] - first[:2]
    axes = np.array(
        [
            [np.cos(yaw + turn), np.sin(yaw + turn)]
            for yaw in (first[6], second[6])
            for turn in (0.0, np.pi / 2)
        ]
    )
    reach = np.zeros(len(axes))
    for box in (first, second):
        forward = np.array([np.cos(box[6]), np.sin(box[6])])
        side = np.array([-forward[1], forward[0]])
        reach += (np.abs(axes @ forward) * box[3] + np.abs(axes @ side) * box[4]) / 2
    return bool((np.abs(axes @ delta) < reach + air_m).all())


def disturb_objects(
    frame: TrainingFrame, config: AugmentConfig, random: np.random.Generator
) -> TrainingFrame:
    """Rotate and shift each object on its own, unless it would hit another."""
    if config.object_noise_m == 0 and config.object_noise_rad == 0:
        return frame
    points, boxes, velocities = frame.points.copy(), frame.boxes.copy(), frame.velocities.copy()
    bearings = Bearings(points)
    oldest_s = float(points[:, 4].max(initial=0.0)) if points.shape[1] > 4 else 0.0
    for row in range(len(boxes)):
        turn = 0.0 if config.quarter_turns else float(random.normal(0.0, config.object_noise_rad))
        shift = random.normal(0.0, config.object_noise_m, size=3).astype(np.float32) * [1.0, 1.0, 0.3]
        moved = boxes[row].copy()
        moved[:3] += shift.astype(np.float32)
        moved[6] += turn
        if _collides(moved, np.delete(boxes, row, axis=0)):
            continue
        # Older points of a moving object lie where it was then.
        speed = float(np.hypot(*np.nan_to_num(velocities[row])))
        rows = bearings.rows(boxes[row], margin_m=speed * oldest_s)
        inside = rows[points_of_object(points[rows], boxes[row], velocities[row])]
        local = local_positions(points[inside], boxes[row])
        local[:, :2] = local[:, :2] @ _rotation(float(moved[6])).T
        points[inside, :3] = local + moved[:3]
        boxes[row] = moved
        velocities[row] = _rotation(turn) @ velocities[row]
    return replace(frame, points=points, boxes=boxes, velocities=velocities)


def transform_scene(
    frame: TrainingFrame, config: AugmentConfig, random: np.random.Generator
) -> TrainingFrame:
    """Flip, rotate, scale and shift the whole frame."""
    points, boxes, velocities = frame.points.copy(), frame.boxes.copy(), frame.velocities.copy()
    if config.flip and random.random() < 0.5:
        points[:, 1] *= -1
        boxes[:, 1] *= -1
        boxes[:, 6] *= -1
        velocities[:, 1] *= -1
    if config.quarter_turns:
        quarters = int(random.integers(4))
        points, boxes = _quarter_turned(points, boxes, quarters)
        velocities = velocities @ _quarter_rotation(quarters).T
    else:
        angle = float(random.uniform(-config.rotation_rad, config.rotation_rad))
        turn = _rotation(angle)
        points[:, :2] = points[:, :2] @ turn.T
        boxes[:, :2] = boxes[:, :2] @ turn.T
        boxes[:, 6] += angle
        velocities = velocities @ turn.T
    factor = np.float32(random.uniform(1 - config.scale, 1 + config.scale))
    points[:, :3] *= factor
    boxes[:, :6] *= factor
    velocities *= factor
    shift = random.normal(0.0, config.translation_m, size=3).astype(np.float32)
    if config.shift_m:
        shift[:2] += random.uniform(-config.shift_m, config.shift_m, 2).astype(np.float32)
    points[:, :3] += shift
    boxes[:, :3] += shift
    return replace(frame, points=points, boxes=boxes, velocities=velocities)


def drop_points(frame: TrainingFrame, share: float, random: np.random.Generator) -> TrainingFrame:
    """Drop a random share of all points, at most ``share``."""
    if share == 0:
        return frame
    keep = random.random(len(frame.points)) >= random.uniform(0.0, share)
    return replace(frame, points=frame.points[keep])
