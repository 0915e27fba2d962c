"""Frames as one HTML file: a 3D view, a table of the boxes, and a timeline.

The page is self-contained: style, scripts and points are inside it. The scripts (assets/viewer.js,
assets/player.js) are a few hundred lines of WebGL, because plotting libraries would add megabytes to every
file. Without WebGL, the table still lists the boxes.

The size is bounded: a point takes 9.3 bytes, all frames share 1.5 million points, and beyond a thousand
frames only every n-th is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from perception.track.tracks import Tracks
from perception.types import Boxes3D, Detections, PointCloud
from perception.visualise.packing import PackedPoints, pack_points
from perception.visualise.palette import CLASS_COLOURS, GROUND_TRUTH, OTHER_COLOURS, POINT_STOPS, class_colour
from perception.visualise.scene import DrawnBoxes, detected, frame_summary, frame_title, labelled
from sparse_core.common.files import write_file

#: Most points of a frame; more are thinned evenly, and the page reports it.
MAX_POINTS = 500_000
#: Most points of all frames of a page: 14 MB.
ALL_POINTS = 1_500_000
#: Least points per frame, so that objects stay recognizable: 37 kB per frame.
LEAST_POINTS = 4_000
#: Most frames; beyond, every n-th is kept, and the page reports it.
MAX_FRAMES = 1_000
#: Tracks cycle through these.
_TRACK_COLOURS = (*CLASS_COLOURS.values(), *OTHER_COLOURS)


class _PlayerFrame(NamedTuple):
    """A frame of the page."""

    name: str
    packed: PackedPoints
    found: DrawnBoxes
    truth: DrawnBoxes
    notes: tuple[str, ...]
    time_ns: int | None
    pose: np.ndarray[Any, np.dtype[np.float64]] | None


class Player(AbstractContextManager["Player"]):
    """A self-contained page that plays frames in 3D, written at the end of the block.

    Each frame may have 500,000 points and all frames together 1.5 million (14 MB), but every frame keeps at
    least 4,000. Beyond 1,000 frames, every n-th is kept. The page reports what it omits.

    Args:
        path: HTML file to write; missing folders are created. Without frames, no file is written.
        title: heading of the page.
        score_threshold: least score of shown detections.

    Raises:
        OSError: the path is a folder, or its folder cannot be created.
    """

    def __init__(self, path: Path | str, *, title: str, score_threshold: float = 0.0) -> None:
        self.path = Path(path)
        self._title, self._threshold = frame_title(title, None), score_threshold
        self._shown: list[_PlayerFrame | None] = []
        self._every, self._count = 1, 0
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder; choose a file name")
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def __exit__(self, *exception: object) -> None:
        # Also write the page of an interrupted run, with the frames so far.
        self.close()

    def add(
        self,
        cloud: PointCloud,
        detections: Detections | None,
        *,
        name: str | None = None,
        ground_truth: Boxes3D | None = None,
        time_ns: int | None = None,
    ) -> None:
        """Add a frame.

        Args:
            cloud: (N, 4) points, LiDAR frame, metres; may be empty. Points that are not finite, or more than
                1 km from the centre, are skipped.
            detections: boxes to list and draw; None shows none. Tracks get trails.
            name: of the frame; by default the file name of the cloud's source.
            ground_truth: boxes that the reader can toggle.
            time_ns: nanoseconds since the epoch; by default that of the cloud or of the detections.
        """
        if not self._counted():
            return
        most = _share(len(self._shown) + 1)
        times = (time_ns, cloud.timestamp_ns, None if detections is None else detections.timestamp_ns)
        self._shown.append(
            _PlayerFrame(
                frame_title(name, cloud.source),
                pack_points(cloud.points, most),
                detected(detections, self._threshold),
                labelled(ground_truth),
                () if detections is None else detections.warnings,
                next((one for one in times if one is not None), None),
                detections.pose if isinstance(detections, Tracks) else None,
            )
        )
        self._halve()

    def pass_over(self) -> None:
        """Count a frame that the page will not show, without its points; see :func:`frames_between`."""
        if self._counted():
            self._shown.append(None)
            self._halve()

    def _counted(self) -> bool:
        """True if the next frame is kept for now."""
        self._count += 1
        return (self._count - 1) % self._every == 0

    def _halve(self) -> None:
        if len(self._shown) > MAX_FRAMES:
            del self._shown[1::2]
            self._every *= 2

    def close(self) -> None:
        """Write the page.

        Raises:
            OSError: the file cannot be written.
        """
        if not any(self._shown):
            return
        most = _share(len(self._shown))
        shown = [one._replace(packed=one.packed.thinned(most)) for one in self._shown if one is not None]
        labels = {label for one in shown for label in (*one.found.labels, *one.truth.labels)}
        classes = sorted(labels)
        parts = {
            "title": escape(self._title),
            "style": _asset("viewer.css") + _colour_rules(classes),
            "script": _asset("viewer.js") + _asset("player.js"),
            "data": _script_json(self._page_data(shown, classes)),
            "points": "\n".join(
                f'<script type="text/plain" class="points">{one.packed.to_base64()}</script>' for one in shown
            ),
        }
        page = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("viewer.html"))
        write_file(self.path, page)

    def __str__(self) -> str:
        """Return file, number of frames and size, once it is written."""
        size_mb = self.path.stat().st_size / 1e6 if self._shown and self.path.exists() else 0.0
        frames = f"{len(self._shown)}{f' of {self._count}' if self._every > 1 else ''} frames"
        return f"{self.path}: {frames if self._count != 1 else '1 frame'}, {size_mb:.1f} MB"

    def _page_data(self, shown: Sequence[_PlayerFrame], classes: list[str]) -> dict[str, Any]:
        """Return the data for the scripts."""
        heights = np.array([one.packed.heights_m for one in shown if one.packed.near_count] or [(0.0, 1.0)])
        note = f"Showing {len(shown):,} of {self._count:,} frames, spread evenly." if self._every > 1 else ""
        return {
            "heights": [round(float(value), 3) for value in np.median(heights, axis=0)],
            "trackColours": len(_TRACK_COLOURS),
            "classes": len(classes),
            "frames": [_frame_data(one, classes, note) for one in shown],
        }


def frames_between(count: int) -> int:
    """Return n if a page of this many frames shows every n-th."""
    every = 1
    while -(-count // every) > MAX_FRAMES:
        every *= 2
    return every


def write_html(
    path: Path | str,
    cloud: PointCloud,
    detections: Detections | None,
    *,
    ground_truth: Boxes3D | None = None,
    title: str | None = None,
    score_threshold: float = 0.0,
) -> Path:
    """Write a self-contained page that shows one frame in 3D: a :class:`Player` of one frame.

    Args:
        path: HTML file to write; missing folders are created.
        cloud: (N, 4) points, LiDAR frame, metres; may be empty. Points that are not finite, or more than 1 km
            from the centre, are skipped; beyond 500,000 points every n-th is kept. The page reports both.
        detections: boxes to list and draw; None shows none.
        ground_truth: boxes that the reader can toggle.
        title: heading of the page; by default the file name of the cloud's source.
        score_threshold: least score of shown detections.

    Returns:
        The path of the file.

    Raises:
        OSError: the file cannot be written.
    """
    with Player(path, title=frame_title(title, cloud.source), score_threshold=score_threshold) as player:
        player.add(cloud, detections, ground_truth=ground_truth)
    return player.path


def _share(frames: int) -> int:
    """Return the number of points that each frame may have."""
    return min(MAX_POINTS, max(LEAST_POINTS, ALL_POINTS // frames))


def _frame_data(shown: _PlayerFrame, classes: list[str], note: str) -> dict[str, Any]:
    packed = shown.packed
    notes = (*packed.all_notes, *shown.notes, note)
    return {
        "name": shown.name,
        "summary": frame_summary(len(packed.steps), shown.found, shown.truth),
        "notes": [_encodable(one) for one in notes if one],
        # Text, because nanoseconds since the epoch exceed the precision of JavaScript numbers.
        "time": None if shown.time_ns is None else str(shown.time_ns),
        "pose": None if shown.pose is None else [round(float(value), 7) for value in shown.pose[:3].ravel()],
        "points": {
            "count": len(packed.steps),
            "origin": [round(float(value), 6) for value in packed.origin_m],
            "step": [float(f"{value:.9g}") for value in packed.step_m],
        },
        "detections": _box_records(shown.found, classes),
        "truth": _box_records(shown.truth, classes),
    }


def _box_records(drawn: DrawnBoxes, classes: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "box": [round(float(value), 4) for value in box],
            # Rounded as in records first, so that pages of records and of detections are equal.
            "score": None if drawn.scores is None else round(round(float(drawn.scores[row]), 6), 4),
            "label": _encodable(label),
            "colour": classes.index(label),
            **({} if drawn.track_ids is None else {"track": int(drawn.track_ids[row])}),
        }
        for row, (box, label) in enumerate(zip(drawn.boxes, drawn.labels, strict=True))
    ]


def _colour_rules(classes: list[str]) -> str:
    """Return CSS variables of the class, track and point colours, for both themes."""
    colours = {f"--class-{index}": class_colour(label) for index, label in enumerate(classes)}
    colours |= {f"--track-{index}": colour for index, colour in enumerate(_TRACK_COLOURS)}
    colours |= {f"--point-{index}": stop for index, stop in enumerate(POINT_STOPS)}
    colours["--truth"] = GROUND_TRUTH
    dark = "".join(f"{name}:{colour.dark};" for name, colour in colours.items())
    light = "".join(f"{name}:{colour.light};" for name, colour in colours.items())
    return f"\n:root{{{dark}}}\n@media (prefers-color-scheme: light){{:root{{{light}}}}}\n"


def _script_json(data: dict[str, Any]) -> str:
    """Return plain ASCII JSON in which no text can end the script element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _asset(name: str) -> str:
    return (files("perception") / "assets" / name).read_text(encoding="utf-8")
