"""A frame as one HTML file: a 3D view to look around in and a table of the boxes.

The page loads nothing: style, script and points are inside it. The script (assets/viewer.js) is our
own few hundred lines of WebGL because the plotting libraries that could stand in weigh megabytes
in every file. Tables are written here, so the page still says what was found where WebGL or
scripts are missing.

Points travel as little-endian int16 steps from an origin, then one byte of intensity each, in
base64: 7 bytes a point before encoding. 120 thousand points make a file of about 1.2 MB.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from perception.types import Boxes3D, Detections, FloatArray, PointCloud
from perception.visualise.palette import GROUND_TRUTH, POINT_STOPS, class_colour
from perception.visualise.scene import (
    DrawnBoxes,
    Float64Array,
    detected,
    even_rows,
    finite_points,
    frame_summary,
    frame_title,
    height_range,
    labelled,
)

#: More points than this are thinned evenly; the page says so.
MAX_POINTS = 500_000
#: Points farther than this from the middle of the cloud are left out: they would coarsen all others.
MAX_REACH_M = 1000.0
_STEPS = 32767


def write_html(
    path: Path | str,
    cloud: PointCloud,
    detections: Detections | None,
    *,
    ground_truth: Boxes3D | None = None,
    title: str | None = None,
    score_threshold: float = 0.0,
) -> Path:
    """Write a self-contained page that shows a frame in 3D.

    Args:
        path: HTML file to write; missing folders are made.
        cloud: (N, 4) points, LiDAR frame, metres; may be empty. Points that are not finite or lie more
            than 1 km from the middle are left out, and beyond 500,000 every n-th is kept; the page says so.
        detections: boxes to list and draw; None shows none.
        ground_truth: boxes that the reader can switch on and off.
        title: heading of the page; the file name of the cloud's source if None.
        score_threshold: detections with a lower score are not in the page.

    Returns:
        The path of the file.

    Raises:
        OSError: the file cannot be written.
    """
    found, truth = detected(detections, score_threshold), labelled(ground_truth)
    packed = pack_points(cloud.points)
    notes = packed.notes + (detections.warnings if detections is not None else ())
    classes = sorted(set(found.labels) | set(truth.labels))
    parts = {
        "title": escape(frame_title(title, cloud.source)),
        "summary": escape(frame_summary(len(packed.steps), found, truth)),
        "notes": "".join(f"<li>{escape(_encodable(note))}</li>" for note in notes),
        "style": _asset("viewer.css") + _colour_rules(classes),
        "script": _asset("viewer.js"),
        "detection_rows": _table_rows(found, classes, "d"),
        "truth_rows": _table_rows(truth, classes, "g"),
        "truth_hidden": "" if truth.labels else "hidden",
        "notes_hidden": "" if notes else "hidden",
        "none_hidden": "hidden" if found.labels else "",
        "table_hidden": "" if found.labels else "hidden",
        "data": _script_json(_page_data(packed, found, truth, classes)),
    }
    page = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("viewer.html"))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(page.encode("utf-8"))
    return path


@dataclass(frozen=True)
class PackedPoints:
    """Points as they travel in the page.

    Attributes:
        origin_m: (3,) float64, metres: what the steps count from.
        step_m: (3,) float64, metres: length of one step on each axis; half of it is the largest error.
        steps: (N, 3) int16.
        intensity: (N,) uint8, 255 stands for 1.
        heights_m: heights at the two ends of the colour scale.
        notes: what was left out, in words.
    """

    origin_m: Float64Array
    step_m: Float64Array
    steps: np.ndarray[Any, np.dtype[np.int16]]
    intensity: np.ndarray[Any, np.dtype[np.uint8]]
    heights_m: tuple[float, float]
    notes: tuple[str, ...]

    def to_base64(self) -> str:
        """All steps (little-endian int16), then all intensities."""
        raw = self.steps.astype("<i2").tobytes() + self.intensity.tobytes()
        return base64.b64encode(raw).decode("ascii")


def pack_points(points: FloatArray) -> PackedPoints:
    """Round points to 16 bits an axis, leaving out what cannot be shown.

    Args:
        points: (N, 4) float32: x, y, z in metres, intensity in [0, 1]; a cloud whose intensity exceeds 1
            is taken to count to 255.
    """
    finite = finite_points(points)
    notes = [_left_out(len(points) - len(finite), "not finite")]
    near = _near_points(finite)
    notes.append(_left_out(len(finite) - len(near), f"more than {MAX_REACH_M:.0f} m from the middle"))
    kept = near[even_rows(len(near), MAX_POINTS)]
    if len(kept) < len(near):
        notes.append(f"Showing {len(kept):,} of {len(near):,} points, spread evenly.")
    xyz = kept[:, :3].astype(np.float64)
    low, high = (xyz.min(axis=0), xyz.max(axis=0)) if len(xyz) else (np.zeros(3), np.zeros(3))
    origin_m = (low + high) / 2
    step_m = np.maximum((high - low) / 2, 0.001) / _STEPS
    steps = np.rint((xyz - origin_m) / step_m).astype(np.int16)
    intensity = kept[:, 3] / (255.0 if len(kept) and kept[:, 3].max() > 1.0 else 1.0)
    return PackedPoints(
        origin_m,
        step_m,
        steps,
        np.rint(np.clip(intensity, 0.0, 1.0) * 255).astype(np.uint8),
        height_range(kept[:, 2]),
        tuple(note for note in notes if note),
    )


def _near_points(points: FloatArray) -> FloatArray:
    if not len(points) or np.abs(points[:, :3]).max() <= MAX_REACH_M / 2:
        return points
    middle = np.median(points[:, :3].astype(np.float64), axis=0)
    near: FloatArray = points[(np.abs(points[:, :3] - middle) <= MAX_REACH_M).all(axis=1)]
    return near


def _left_out(count: int, reason: str) -> str:
    return f"{count:,} point{'s' if count != 1 else ''} left out: {reason}." if count else ""


def _page_data(
    packed: PackedPoints, found: DrawnBoxes, truth: DrawnBoxes, classes: list[str]
) -> dict[str, Any]:
    """What the script reads."""
    return {
        "points": {
            "count": len(packed.steps),
            "origin": [round(float(value), 6) for value in packed.origin_m],
            "step": [float(f"{value:.9g}") for value in packed.step_m],
            "heights": [round(value, 3) for value in packed.heights_m],
            "base64": packed.to_base64(),
        },
        "detections": _box_records(found, classes),
        "truth": _box_records(truth, classes),
    }


def _box_records(drawn: DrawnBoxes, classes: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "box": [round(float(value), 4) for value in box],
            "score": None if drawn.scores is None else round(float(drawn.scores[row]), 4),
            "label": _encodable(label),
            "colour": classes.index(label),
        }
        for row, (box, label) in enumerate(zip(drawn.boxes, drawn.labels, strict=True))
    ]


def _table_rows(drawn: DrawnBoxes, classes: list[str], kind: str) -> str:
    """Rows of the table of boxes; ``kind`` is ``d`` for detections, ``g`` for ground truth."""
    names = [
        label if drawn.track_ids is None else f"{label} #{drawn.track_ids[row]}"
        for row, label in enumerate(drawn.labels)
    ]
    return "\n".join(
        _table_row(
            row,
            box,
            (label, names[row]),
            None if drawn.scores is None else float(drawn.scores[row]),
            classes,
            kind,
        )
        for row, (box, label) in enumerate(zip(drawn.boxes, drawn.labels, strict=True))
    )


def _table_row(
    row: int, box: FloatArray, named: tuple[str, str], score: float | None, classes: list[str], kind: str
) -> str:
    label, name = named[0], escape(_encodable(named[1]))
    number = f"{'T' if kind == 'g' else ''}{row + 1}"
    distance_m = float(np.hypot(float(box[0]), float(box[1])))
    size = " × ".join(f"{float(value):.1f}" for value in box[3:6])
    score_cell = "" if score is None else f'<td class="number">{score:.2f}</td>'
    return (
        f'<tr data-box="{kind}{row}"><th scope="row"><button type="button" aria-pressed="false"'
        f' aria-label="Show {number}, {name}"><span class="swatch" style="--swatch:'
        f'var(--class-{classes.index(label)})"></span><span class="index">{number}</span> {name}'
        f'</button></th>{score_cell}<td class="number">{distance_m:.1f}</td>'
        f'<td class="number size">{size}</td></tr>'
    )


def _colour_rules(classes: list[str]) -> str:
    """CSS variables of the class and point colours, for both themes."""
    colours = {f"--class-{index}": class_colour(label) for index, label in enumerate(classes)}
    colours |= {f"--point-{index}": stop for index, stop in enumerate(POINT_STOPS)}
    colours["--truth"] = GROUND_TRUTH
    dark = "".join(f"{name}:{colour.dark};" for name, colour in colours.items())
    light = "".join(f"{name}:{colour.light};" for name, colour in colours.items())
    return f"\n:root{{{dark}}}\n@media (prefers-color-scheme: light){{:root{{{light}}}}}\n"


def _script_json(data: dict[str, Any]) -> str:
    """JSON that no text inside can end the script element of; plain ASCII."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _asset(name: str) -> str:
    return (files("perception") / "assets" / name).read_text(encoding="utf-8")
