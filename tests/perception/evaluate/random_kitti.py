"""Random labels and results that reach every rule of the KITTI protocol. Numbers are rounded as in files."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from perception.data import CameraObject
from perception.data.kitti import write_objects

Frames = dict[str, list[CameraObject]]

_TYPES = (
    "Car",
    "Car",
    "Car",
    "Pedestrian",
    "Pedestrian",
    "Cyclist",
    "Cyclist",
    "Van",
    "Person_sitting",
    "Tram",
)
_SIZES = {"Pedestrian": (1.75, 0.65, 0.85), "Person_sitting": (1.3, 0.6, 0.8), "Cyclist": (1.75, 0.6, 1.75)}
_HEIGHTS_PX = (20.0, 24.99, 25.0, 25.01, 32.0, 39.99, 40.0, 40.01, 55.0, 80.0, 140.0)


def random_frames(
    seed: int, frame_count: int, *, orientation: bool = True, neat: bool = False
) -> tuple[Frames, Frames]:
    """Labels and results by frame id.

    Args:
        seed: seed of everything.
        frame_count: frames; some have no labels, some no detections.
        orientation: without it, one detection has the placeholder alpha -10.
        neat: mostly easy labels and good detections, so that curves get long.
    """
    random = np.random.default_rng(seed)
    labels: Frames = {}
    results: Frames = {}
    for index in range(frame_count):
        frame = [_label(random, neat) for _ in range(random.integers(0, 9))]
        frame += [_neighbour(random, item) for item in frame if random.random() < (0.05 if neat else 0.3)]
        regions = [_region(random) for _ in range(random.integers(0, 3))]
        found = [hit for item in frame for hit in _hits(random, item, neat)]
        found += [_false_positive(random) for _ in range(random.integers(0, 2 if neat else 6))]
        found += [_in_region(random, region) for region in regions if random.random() < 0.7]
        random.shuffle(found)  # type: ignore[arg-type]
        frame += regions
        random.shuffle(frame)  # type: ignore[arg-type]
        labels[f"{index:06d}"] = frame
        results[f"{index:06d}"] = found if random.random() < 0.95 else []
    if not orientation:
        results["000000"] = [replace(_false_positive(random), alpha=-10.0)]
    return labels, results


def write_frames(folder: Path, frames: Frames) -> Path:
    """One text file a frame."""
    folder.mkdir(parents=True, exist_ok=True)
    for frame_id, objects in frames.items():
        write_objects(folder / f"{frame_id}.txt", objects)
    return folder


def _label(random: np.random.Generator, neat: bool) -> CameraObject:
    name = str(random.choice(_TYPES))
    height_px = float(random.choice(_HEIGHTS_PX)) if random.random() < 0.7 else random.uniform(15, 200)
    if neat:
        height_px = random.uniform(30, 200)
    left, top = random.uniform(-5, 1100), random.uniform(100, 220)
    height, width, length = (size * random.uniform(0.85, 1.15) for size in _SIZES.get(name, (1.5, 1.65, 4.0)))
    if random.random() < 0.05:
        name = name.upper() if random.random() < 0.5 else name.lower()
    return _rounded(
        CameraObject(
            type=name,
            truncated=0.0 if neat else float(random.choice((0.0, 0.0, 0.15, 0.16, 0.3, 0.31, 0.5, 0.7))),
            occluded=int(random.choice((0, 0, 0, 1) if neat else (0, 0, 1, 2, 3))),
            alpha=random.uniform(-math.pi, math.pi),
            box_2d=(left, top, left + height_px * random.uniform(0.4, 2.0), top + height_px),
            height_m=height,
            width_m=width,
            length_m=length,
            location=(random.uniform(-20, 20), random.uniform(1.2, 2.0), random.uniform(5, 60)),
            rotation_y=random.uniform(-math.pi, math.pi),
        )
    )


def _neighbour(random: np.random.Generator, item: CameraObject) -> CameraObject:
    """Another label in nearly the same place, so that they compete for detections."""
    kinds = {"Car": ("Van", "Car"), "Pedestrian": ("Person_sitting", "Cyclist", "Pedestrian")}
    name = str(random.choice(kinds.get(item.type, (item.type,))))
    near = _shifted(random, replace(item, type=name), 0.08)
    return replace(near, occluded=int(random.choice((0, 1, 2, 3))))


def _region(random: np.random.Generator) -> CameraObject:
    left, top = random.uniform(0, 1100), random.uniform(100, 200)
    box = (left, top, left + random.uniform(20, 200), top + random.uniform(20, 120))
    name = "DontCare" if random.random() < 0.9 else "dontcare"
    unknown = CameraObject(name, -1, -1, -10, box, -1, -1, -1, (-1000, -1000, -1000), -10)
    if random.random() < 0.1:  # KITTI has none like this, but the program would use it
        place = (random.uniform(-20, 20), 1.5, random.uniform(5, 60))
        unknown = replace(unknown, height_m=3.0, width_m=9.0, length_m=9.0, location=place, rotation_y=0.4)
    return _rounded(unknown)


def _hits(random: np.random.Generator, item: CameraObject, neat: bool) -> list[CameraObject]:
    count = int(random.choice((0, 1, 1, 1, 1) if neat else (0, 1, 1, 2, 3)))
    hits = []
    for _ in range(count):
        noise = float(random.choice((0.0, 0.01, 0.03) if neat else (0.0, 0.02, 0.05, 0.1, 0.25)))
        hit = _shifted(random, replace(item, score=_score(random)), noise)
        chance = random.random()
        if chance < 0.05:
            hit = replace(hit, type=str(random.choice(_TYPES)))
        elif chance < 0.10:  # a box in the image only
            unknown = (-1000.0, -1000.0, -1000.0)
            hit = replace(hit, height_m=-1, width_m=-1, length_m=-1, location=unknown, rotation_y=-10)
        elif chance < 0.15:  # just above or below the minimum overlap; exactly on it, rounding would decide
            part = item.height_m * float(random.choice((0.5, 0.7))) + float(random.choice((-0.01, 0.01)))
            hit = replace(item, score=hit.score, height_m=part)
        elif chance < 0.20:  # upside down: the program takes the absolute height
            left, top, right, bottom = hit.box_2d
            hit = replace(hit, box_2d=(left, bottom, right, top))
        hits.append(_rounded(hit))
        if random.random() < 0.1:
            hits.append(hits[-1])
    return hits


def _shifted(random: np.random.Generator, item: CameraObject, noise: float) -> CameraObject:
    left, top, right, bottom = item.box_2d
    width, height = right - left, bottom - top
    box = np.array(item.box_2d) + noise * random.normal(size=4) * (width, height, width, height)
    size = np.array((item.height_m, item.width_m, item.length_m)) * (1 + 0.5 * noise * random.normal(size=3))
    place = np.array(item.location) + noise * random.normal(size=3) * (item.length_m, 0.5, item.length_m)
    left, top, right, bottom = box.tolist()
    return _rounded(
        replace(
            item,
            alpha=item.alpha + 4 * noise * random.normal(),
            box_2d=(left, top, right, bottom),
            height_m=float(size[0]),
            width_m=float(size[1]),
            length_m=float(size[2]),
            location=tuple(place.tolist()),
            rotation_y=item.rotation_y + noise * random.normal(),
        )
    )


def _false_positive(random: np.random.Generator) -> CameraObject:
    return replace(_label(random, neat=False), truncated=-1, occluded=-1, score=_score(random))


def _in_region(random: np.random.Generator, region: CameraObject) -> CameraObject:
    """A detection that lies in a DontCare region, more or less."""
    hit = _false_positive(random)
    hit = replace(hit, box_2d=_shifted(random, region, 0.1).box_2d)
    if random.random() < 0.3:
        hit = replace(
            hit, height_m=-1, width_m=-1, length_m=-1, location=(-1000, -1000, -1000), rotation_y=-10
        )
    return _rounded(hit)


def _score(random: np.random.Generator) -> float:
    """Coarse, so that ties are common; sometimes negative."""
    return round(random.uniform(-0.2, 1.0), int(random.choice((1, 2, 6))))


def _rounded(item: CameraObject) -> CameraObject:
    left, top, right, bottom = (round(value, 2) for value in item.box_2d)
    x, y, z = (round(value, 2) for value in item.location)
    return replace(
        item,
        alpha=round(item.alpha, 2),
        box_2d=(left, top, right, bottom),
        height_m=round(item.height_m, 2),
        width_m=round(item.width_m, 2),
        length_m=round(item.length_m, 2),
        location=(x, y, z),
        rotation_y=round(item.rotation_y, 2),
    )
