"""Result files of the nuScenes detection and tracking tasks: JSON, boxes in world axes by sample.

Format: nuScenes detection and tracking tasks, "Results format" (nuscenes-devkit, eval/detection/README and
eval/tracking/README).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.evaluate.box_table import BoxTable, Float64Array
from perception.evaluate.nuscenes.result import CLASS_RANGES_M, TRACKING_RANGES_M
from perception.evaluate.options import MissingResults
from sparse_core.common.files import write_file

Task = Literal["detection", "tracking"]
#: Most boxes of a sample, as in the devkit.
MAX_BOXES = 500
_CLASSES = {"detection": CLASS_RANGES_M, "tracking": TRACKING_RANGES_M}
_INPUTS = ("use_camera", "use_lidar", "use_radar", "use_map", "use_external")


def read_results(
    path: str | Path,
    ego: Mapping[str, npt.ArrayLike],
    *,
    missing_results: MissingResults = "error",
    task: Task = "detection",
) -> tuple[tuple[str, ...], BoxTable]:
    """Read the boxes of a result file.

    Args:
        path: JSON file. Samples that ``ego`` does not contain are ignored.
        ego: sample token to the vehicle's position in world axes, x and y first, in frame order.
        missing_results: treatment of samples without an entry: ``"error"``, ``"empty"`` or ``"skip"``.
        task: of the file.

    Returns:
        The samples, and their boxes in world axes with velocity, score, and attribute or ``track_id``. Track
        ids are numbered in file order.

    Raises:
        DataError: the file, a sample or a field is invalid (named).
    """
    path = Path(path)
    results = _results(path)
    absent = [token for token in ego if token not in results]
    if absent and (missing_results == "error" or len(absent) == len(ego)):
        raise DataError(
            f"{path}: no results for {len(absent)} of {len(ego)} samples ({', '.join(absent[:3])}, ...)."
            " Write an empty list for samples without detections, or add --missing empty or --missing skip"
        )
    wanted = [token for token in ego if missing_results != "skip" or token in results]
    frames = []
    identities: dict[str, int] = {}
    for token in wanted:
        entries = results.get(token, [])
        if not isinstance(entries, list) or len(entries) > MAX_BOXES:
            raise DataError(f"{path}: sample {token!r} must be a list of at most {MAX_BOXES} boxes")
        try:
            frames.append(_table(entries, np.asarray(ego[token], np.float64), task, identities))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: sample {token!r}: {_complaint(error)}") from error
    return tuple(wanted), BoxTable.joined(frames)


def write_results(
    path: str | Path, frame_ids: Sequence[str], found: BoxTable, *, task: Task = "detection"
) -> None:
    """Write boxes in world axes as a result file for nuscenes-devkit. Unknown velocities become 0.

    Args:
        path: of the file.
        frame_ids: sample token of each frame.
        found: boxes with scores, and ``track_id`` for tracking; ``frame`` indexes ``frame_ids``.
        task: of the file.
    """
    results: dict[str, list[dict[str, Any]]] = {token: [] for token in frame_ids}
    for row in range(len(found)):
        x, y, z, length, width, height, yaw = found.boxes[row].tolist()
        token = frame_ids[int(found.frame[row])]
        own = (
            {"attribute_name": str(found.attribute[row])}
            if task == "detection"
            else {"tracking_id": str(found.track_id[row])}
        )
        results[token].append(
            {
                "sample_token": token,
                "translation": [x, y, z],
                "size": [width, length, height],
                "rotation": [math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)],
                "velocity": np.nan_to_num(found.velocity[row]).tolist(),
                f"{task}_name": str(found.label[row]),
                f"{task}_score": float(found.score[row]),
                **own,
            }
        )
    meta = {name: name == "use_lidar" for name in _INPUTS}
    write_file(Path(path), json.dumps({"meta": meta, "results": results}) + "\n")


def yaw_of(rotation: npt.ArrayLike) -> Float64Array:
    """Return (M,) headings in radians of (M, 4) quaternions ``w, x, y, z``: the x axis on the ground."""
    w, x, y, z = np.asarray(rotation, np.float64).reshape(-1, 4).T
    yaw: Float64Array = np.arctan2(2 * (x * y + w * z), w * w + x * x - y * y - z * z)
    return yaw


def _results(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        results = content["results"]
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror}). Pass a nuScenes result file") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: not a nuScenes result file; expected JSON with the field 'results'"
        ) from error
    if not isinstance(results, dict):
        raise DataError(f"{path}: 'results' must map sample tokens to lists of boxes")
    return results


def _table(
    entries: list[dict[str, Any]], ego: Float64Array, task: Task, identities: dict[str, int]
) -> BoxTable:
    names = [entry[f"{task}_name"] for entry in entries]
    unknown = sorted(set(names) - set(_CLASSES[task]))
    if unknown:
        raise ValueError(f"{task}_name {unknown[0]!r} is unknown; use one of {', '.join(_CLASSES[task])}")
    centre = np.array([entry["translation"] for entry in entries], np.float64).reshape(-1, 3)
    size = np.array([entry["size"] for entry in entries], np.float64).reshape(-1, 3)
    yaw = yaw_of([entry["rotation"] for entry in entries])
    offset = centre[:, :2] - ego[:2]
    own: dict[str, Any] = (
        {"attribute": np.array([entry["attribute_name"] for entry in entries], np.str_)}
        if task == "detection"
        else {"track_id": _numbers([str(entry["tracking_id"]) for entry in entries], names, identities)}
    )
    table = BoxTable.of_frame(
        np.column_stack([centre, size[:, 1], size[:, 0], size[:, 2], yaw]),
        names,
        score=np.array([float(entry[f"{task}_score"]) for entry in entries]),
        velocity=np.array([entry["velocity"] for entry in entries], np.float64).reshape(-1, 2),
        distance_m=np.sqrt((offset**2).sum(axis=1)),
        **own,
    )
    if not np.isfinite(table.score).all():
        raise ValueError(f"a {task}_score is not finite; correct it")
    if (size <= 0).any():
        raise ValueError("a size is 0 or less; correct it")
    return table


def _numbers(words: list[str], names: list[str], identities: dict[str, int]) -> list[int]:
    """Number track ids, with equal numbers for equal ids."""
    if len(set(zip(words, names, strict=True))) < len(words):
        again = next(key for key, count in Counter(zip(words, names, strict=True)).items() if count > 1)
        raise ValueError(f"{again[1]}: tracking_id {again[0]!r} occurs twice; make ids unique per sample")
    return [identities.setdefault(word, len(identities)) for word in words]


def _complaint(error: Exception) -> str:
    return f"a box has no field {error}" if isinstance(error, KeyError) else str(error)
