"""Frames as one HTML file: a 3D view to look around in, a table of the boxes, and a timeline.

The page loads nothing: style, scripts and points are inside it. The scripts (assets/viewer.js,
assets/player.js) are our own few hundred lines of WebGL because the plotting libraries that could
stand in weigh megabytes in every file. Where WebGL is missing the table still says what was found.

The size is bounded whatever the frames are: a point takes 9.3 bytes, all frames share
1.5 million points, and of more than a thousand frames every n-th is kept.
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

#: More points than this in a frame are thinned evenly; the page says so.
MAX_POINTS = 500_000
#: What all frames of a page share: 14 MB.
ALL_POINTS = 1_500_000
#: Many frames keep this many points each, so that things can still be told: 37 kB a frame.
LEAST_POINTS = 4_000
#: Of more frames than this every n-th is kept; the page says so.
MAX_FRAMES = 1_000
#: Tracks take these in turn.
_TRACK_COLOURS = (*CLASS_COLOURS.values(), *OTHER_COLOURS)


class _Shown(NamedTuple):
    name: str
    packed: PackedPoints
    found: DrawnBoxes
    truth: DrawnBoxes
    notes: tuple[str, ...]
    time_ns: int | None
    pose: np.ndarray[Any, np.dtype[np.float64]] | None


class Player(AbstractContextManager["Player"]):
    """A self-contained page that plays frames in 3D; it is written when the block is left.

    A page of many frames is as large as one of three: each may have 500,000 points, all together 1.5
    million (14 MB), but always 4,000 of each frame. Of more than 1,000 frames every n-th is
    kept. The page says what was left out.

    Args:
        path: HTML file to write; missing folders are made. Without frames there is none.
        title: heading of the page.
        score_threshold: detections with a lower score are not in the page.

    Raises:
        OSError: the path is a folder, or its folder cannot be made.
    """

    def __init__(self, path: Path | str, *, title: str, score_threshold: float = 0.0) -> None:
        self.path = Path(path)
        self._title, self._threshold = frame_title(title, None), score_threshold
        self._shown: list[_Shown | None] = []
        self._every, self._count = 1, 0
        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path}: is a folder; name a file")
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def __exit__(self, *exception: object) -> None:
        # Also where a run was interrupted: what was seen until then can be looked at.
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
        """The next frame.

        Args:
            cloud: (N, 4) points, LiDAR frame, metres; may be empty. Points that are not finite or lie more
                than 1 km from the middle are left out.
            detections: boxes to list and draw; None shows none. Tracks get trails.
            name: of the frame; the file name of the cloud's source if None.
            ground_truth: boxes that the reader can switch on and off.
            time_ns: nanoseconds since the epoch; that of the cloud or of the detections if None.
        """
        if not self._counted():
            return
        most = _share(len(self._shown) + 1)
        times = (time_ns, cloud.timestamp_ns, None if detections is None else detections.timestamp_ns)
        self._shown.append(
            _Shown(
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
        """Count a frame without its points: one that is left out in the end, see :func:`frames_between`."""
        if self._counted():
            self._shown.append(None)
            self._halve()

    def _counted(self) -> bool:
        """Whether the next frame is one of those that are kept for now."""
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
        """File, frames and size, once it is written."""
        size_mb = self.path.stat().st_size / 1e6 if self._shown and self.path.exists() else 0.0
        frames = f"{len(self._shown)}{f' of {self._count}' if self._every > 1 else ''} frames"
        return f"{self.path}: {frames if self._count != 1 else '1 frame'}, {size_mb:.1f} MB"

    def _page_data(self, shown: Sequence[_Shown], classes: list[str]) -> dict[str, Any]:
        """What the scripts read."""
        heights = np.array([one.packed.heights_m for one in shown if one.packed.near_count] or [(0.0, 1.0)])
        note = f"Showing {len(shown):,} of {self._count:,} frames, spread evenly." if self._every > 1 else ""
        return {
            "heights": [round(float(value), 3) for value in np.median(heights, axis=0)],
            "trackColours": len(_TRACK_COLOURS),
            "classes": len(classes),
            "frames": [_frame_data(one, classes, note) for one in shown],
        }


def frames_between(count: int) -> int:
    """Of so many frames a page shows the first and every one that is this far behind it."""
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
    """Write a self-contained page that shows a frame in 3D: a :class:`Player` of one frame.

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
    with Player(path, title=frame_title(title, cloud.source), score_threshold=score_threshold) as player:
        player.add(cloud, detections, ground_truth=ground_truth)
    return player.path


def _share(frames: int) -> int:
    """Points that each of so many frames may have."""
    return min(MAX_POINTS, max(LEAST_POINTS, ALL_POINTS // frames))


def _frame_data(shown: _Shown, classes: list[str], note: str) -> dict[str, Any]:
    packed = shown.packed
    notes = (*packed.all_notes, *shown.notes, note)
    return {
        "name": shown.name,
        "summary": frame_summary(len(packed.steps), shown.found, shown.truth),
        "notes": [_encodable(one) for one in notes if one],
        # As text: nanoseconds since the epoch are more than the script's numbers hold.
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
            # First as records have them, so that a page of records is that of what was detected.
            "score": None if drawn.scores is None else round(round(float(drawn.scores[row]), 6), 4),
            "label": _encodable(label),
            "colour": classes.index(label),
            **({} if drawn.track_ids is None else {"track": int(drawn.track_ids[row])}),
        }
        for row, (box, label) in enumerate(zip(drawn.boxes, drawn.labels, strict=True))
    ]


def _colour_rules(classes: list[str]) -> str:
    """CSS variables of the class, track and point colours, for both themes."""
    colours = {f"--class-{index}": class_colour(label) for index, label in enumerate(classes)}
    colours |= {f"--track-{index}": colour for index, colour in enumerate(_TRACK_COLOURS)}
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
