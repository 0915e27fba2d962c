"""KITTI's text files (object development kit, readme): labels, results and calibrations."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from perception.data.camera import CameraCalibration, CameraObject, Matrix
from perception.errors import DataError
from perception.io.text import parse_number, read_text, write_text

_FIELDS = (
    "type", "truncated", "occluded", "alpha", "left", "top", "right", "bottom",
    "height", "width", "length", "x", "y", "z", "rotation_y", "score",
)  # fmt: skip
#: Attribute of a calibration -> accepted spellings of its key, columns of its three rows.
_KEYS = {
    "image_from_camera": (("P2",), 4),
    "rectification": (("R0_rect", "R_rect"), 3),
    "camera_from_lidar_raw": (("Tr_velo_to_cam", "Tr_velo_cam"), 4),
}
_CALIBRATION_HINT = (
    "the calibration; without a camera, write one with"
    " perception.data.kitti.write_calibration(path, CameraCalibration.default())"
)


def read_objects(path: str | Path) -> list[CameraObject]:
    """Read a label file (15 fields per line) or result file (16 fields); an empty file has no objects.

    Raises:
        DataError: the file is missing, a line has another number of fields, or a field is no finite number.
    """
    path = Path(path)
    lines = read_text(path, "the labels of a frame").splitlines()
    return [
        parse_object(f"{path}: line {number}", line.split())
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def write_objects(path: str | Path, objects: Iterable[CameraObject]) -> None:
    """Write objects as labels, or as results if they have scores.

    Numbers get four decimals (KITTI's files have two), scores nine digits.

    Raises:
        ValueError: a type is empty or contains white space.
        DataError: writing failed.
    """
    lines = [_format_object(item) + "\n" for item in objects]
    write_text(Path(path), "".join(lines))


def parse_object(place: str, words: list[str]) -> CameraObject:
    """Parse the fields of a label (15) or result (16); ``place`` is file and line for messages.

    Raises:
        DataError: the number of fields differs, or one is not a finite number.
    """
    if len(words) not in (15, 16):
        raise DataError(
            f"{place}: {len(words)} fields; expected 15 (type truncated occluded alpha left top right bottom"
            " height width length x y z rotation_y) or 16 with a score. Correct the line."
        )
    values = [parse_number(place, name, word) for name, word in zip(_FIELDS[1:], words[1:], strict=False)]
    truncated, occluded, alpha, left, top, right, bottom, height, width, length, *rest = values
    if not occluded.is_integer():
        raise DataError(f"{place}: field occluded is {words[2][:40]!r}. Write a whole number from -1 to 3.")
    x, y, z, rotation_y, *score = rest
    return CameraObject(
        words[0], truncated, int(occluded), alpha, (left, top, right, bottom),
        height, width, length, (x, y, z), rotation_y, score[0] if score else None,
    )  # fmt: skip


def _format_object(item: CameraObject) -> str:
    if item.type.split() != [item.type]:
        raise ValueError(f"type must be one word, got {item.type!r}")
    numbers = (item.alpha, *item.box_2d, item.height_m, item.width_m, item.length_m, *item.location)
    words = [item.type, f"{item.truncated:.4f}", str(item.occluded)]
    words += [f"{number:.4f}" for number in (*numbers, item.rotation_y)]
    if item.score is not None:
        words.append(f"{item.score:.9g}")
    return " ".join(words)


def read_calibration(path: str | Path) -> CameraCalibration:
    """Read P2, R0_rect and Tr_velo_to_cam of a calibration file.

    Raises:
        DataError: the file or a key is missing, a number is invalid, or the transform from LiDAR to camera is
            not rigid.
    """
    path = Path(path)
    entries: dict[str, tuple[int, list[str]]] = {}
    text = read_text(path, _CALIBRATION_HINT)
    for number, line in enumerate(text.splitlines(), 1):
        key, *words = line.replace(":", " ", 1).split() or [""]
        entries[key] = (number, words)
    calibration = CameraCalibration(
        **{attribute: _matrix(path, entries, *key) for attribute, key in _KEYS.items()}
    )
    rotation = calibration.camera_from_lidar[:3, :3]
    if not np.allclose(rotation @ rotation.T, np.eye(3), atol=0.01) or np.linalg.det(rotation) < 0:
        raise DataError(
            f"{path}: R0_rect times Tr_velo_to_cam is not a rigid transform."
            " Check that their numbers are row by row and in metres."
        )
    return calibration


def write_calibration(path: str | Path, calibration: CameraCalibration) -> None:
    """Write a calibration file; raise ``DataError`` if that fails.

    It has all of KITTI's entries, because some programs read them by line number. P0 to P3 equal P2, and
    Tr_imu_to_velo is the identity.
    """
    rows = [(f"P{camera}", calibration.image_from_camera) for camera in range(4)]
    rows += [("R0_rect", calibration.rectification), ("Tr_velo_to_cam", calibration.camera_from_lidar_raw)]
    rows += [("Tr_imu_to_velo", np.eye(4)[:3])]
    lines = [f"{key}: " + " ".join(f"{value:.12e}" for value in matrix.ravel()) for key, matrix in rows]
    write_text(Path(path), "\n".join(lines) + "\n")


def _matrix(
    path: Path, entries: dict[str, tuple[int, list[str]]], spellings: tuple[str, ...], columns: int
) -> Matrix:
    found = next((entries[name] for name in spellings if name in entries), None)
    key, size = spellings[0], 3 * columns
    if found is None:
        raise DataError(
            f"{path}: key {key} is missing. Add the line '{key}:' with {size} numbers, row by row."
        )
    number, words = found
    place = f"{path}: line {number}"
    if len(words) != size:
        raise DataError(f"{place}: key {key} has {len(words)} numbers. Write {size} (3x{columns}).")
    return np.array([parse_number(place, key, word) for word in words]).reshape(3, columns)
