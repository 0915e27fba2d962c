"""KITTI label and result files: one object a line (KITTI object development kit, readme)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from perception.errors import DataError
from perception.io.text import parse_number, read_text, write_text

#: Label type of image regions whose objects were not labelled; never a box.
DONT_CARE = "DontCare"

_FIELDS = (
    "type", "truncated", "occluded", "alpha", "left", "top", "right", "bottom",
    "height", "width", "length", "x", "y", "z", "rotation_y", "score",
)  # fmt: skip


@dataclass(frozen=True)
class KittiObject:
    """One line of a KITTI label or result file, in KITTI's own convention.

    Attributes:
        type: class name, or ``"DontCare"``.
        truncated: part of the object outside the image, 0 to 1; -1 where unknown.
        occluded: 0 visible, 1 partly, 2 largely occluded, 3 unknown; -1 where not given.
        alpha: observation angle in radians: ``rotation_y`` less the bearing of the object.
        box_2d: left, top, right, bottom in pixels.
        height_m: size along the camera's y axis.
        width_m: size across the heading.
        length_m: size along the heading.
        location: x, y, z in metres of the bottom centre in the rectified camera frame.
        rotation_y: heading in radians about the camera's y axis; 0 is the camera's x axis.
        score: confidence of a detection, None for a label.
    """

    type: str
    truncated: float
    occluded: int
    alpha: float
    box_2d: tuple[float, float, float, float]
    height_m: float
    width_m: float
    length_m: float
    location: tuple[float, float, float]
    rotation_y: float
    score: float | None = None


def read_objects(path: str | Path) -> list[KittiObject]:
    """Read a label file (15 fields a line) or result file (16 fields); an empty file holds no objects.

    Raises:
        DataError: the file is missing, a line has another number of fields, or a field is no finite number.
    """
    path = Path(path)
    lines = read_text(path, "one text file of labels a frame").splitlines()
    return [
        _parse_object(f"{path}: line {number}", line.split())
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def write_objects(path: str | Path, objects: Iterable[KittiObject]) -> None:
    """Write objects, one a line: labels, or KITTI results where they carry a score.

    Numbers get four decimals (KITTI's own files have two), scores nine digits.

    Raises:
        ValueError: a type is empty or holds white space.
        DataError: the file cannot be written.
    """
    lines = [_format_object(item) + "\n" for item in objects]
    write_text(Path(path), "".join(lines))


def _parse_object(place: str, words: list[str]) -> KittiObject:
    if len(words) not in (15, 16):
        raise DataError(
            f"{place}: {len(words)} fields; expected 15 (type truncated occluded alpha left top right bottom"
            " height width length x y z rotation_y) or 16 with a score"
        )
    values = [parse_number(place, name, word) for name, word in zip(_FIELDS[1:], words[1:], strict=False)]
    occluded = values[1]
    if not occluded.is_integer():
        raise DataError(f"{place}: field occluded is {words[2][:40]!r}; expected a whole number: -1 to 3")
    left, top, right, bottom, height, width, length, x, y, z, rotation_y = values[3:14]
    return KittiObject(
        type=words[0],
        truncated=values[0],
        occluded=int(occluded),
        alpha=values[2],
        box_2d=(left, top, right, bottom),
        height_m=height,
        width_m=width,
        length_m=length,
        location=(x, y, z),
        rotation_y=rotation_y,
        score=values[14] if len(values) == 15 else None,
    )


def _format_object(item: KittiObject) -> str:
    if len(item.type.split()) != 1 or item.type.split()[0] != item.type:
        raise ValueError(f"type must be one word, got {item.type!r}")
    numbers = (item.alpha, *item.box_2d, item.height_m, item.width_m, item.length_m, *item.location)
    words = [item.type, f"{item.truncated:.4f}", str(item.occluded)]
    words += [f"{number:.4f}" for number in (*numbers, item.rotation_y)]
    if item.score is not None:
        words.append(f"{item.score:.9g}")
    return " ".join(words)
