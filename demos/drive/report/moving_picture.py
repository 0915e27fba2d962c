"""Animation of a labelled drive: observations and tracks above, memories below.

Both strips are seen from above. The upper strip moves with the robot, which looks to the right. The lower
strip is the map, rotated so that the drive lies along it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from drive.labelled.scans import Moment, Observation
from memory import Filter, Memory, MemoryStore
from memory.tracks import Sights
from perception.visualise.birds_eye import BACKGROUND
from perception.visualise.palette import POINT_STOPS, class_colour
from sparse_core.common.files import replacing

Points = NDArray[np.float64]

#: The picture is drawn at twice its size and scaled down, for smooth edges.
_SCALE = 2
_WIDTH, _SEEN_HEIGHT, _LINE = 960, 420, 34
_MAP_HEIGHTS = (110, 300)
_BEHIND_M, _AHEAD_M, _BESIDE_M = 2.0, 58.0, 17.0
_LEGEND = "{} objects remembered (circles: static, lines: moving)"
_TEXT, _FAINT = "#e6edf6", "#7f8da3"
#: Width of a point before scaling.
_DOT = 3
#: Heights at the ends of the colour scale, relative to the sensor.
_LOW_M, _HIGH_M = -1.8, 0.8
#: Repetitions of each final frame.
_HOLD = 14


@dataclass(frozen=True)
class Strip:
    """Part of the picture, with a conversion from metres to pixels.

    Attributes:
        origin: map position of the middle of the left edge, metres.
        angle: rotation of the map, radians.
        scale: pixels per metre.
        top, height: of the strip, in pixels.
    """

    origin: tuple[float, float]
    angle: float
    scale: float
    top: int
    height: int

    def pixels(self, points: Points) -> Points:
        """Convert (N, 2) map positions in metres to (N, 2) pixels: columns, rows."""
        turned = (np.asarray(points, np.float64)[:, :2] - self.origin) @ _turn(-self.angle).T
        return turned * (self.scale, -self.scale) + (0.0, self.top + self.height / 2)


class MovingPicture:
    """Recorder of the way there, written as an animation at the end.

    Args:
        path: of the sensor over the whole drive, (N, 2) metres; defines the extent of the map.
        every: draw every n-th moment.
        rate_hz: moments per second of the drive; the animation runs at the same speed.
    """

    def __init__(self, path: Points, *, every: int = 2, rate_hz: float = 10.0) -> None:
        self._every, self._rate_hz = every, rate_hz
        self._frames: list[Image.Image] = []
        self._trails: dict[int, list[tuple[float, float]]] = {}
        self._way: list[tuple[float, float]] = []
        self._map = _around(path)
        self._height = _SEEN_HEIGHT + self._map.height // _SCALE + 2 * _LINE
        fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        self._fonts = [ImageFont.truetype(fonts / "DejaVuSans.ttf", size * _SCALE) for size in (12, 15)]

    def watched(self, seen: Iterable[Observation], store: MemoryStore) -> Iterator[Observation]:
        """Yield the observations, and draw each with the store's content after it."""
        for one in seen:
            yield one
            self(one.moment, one.sights, store.find(Filter()))

    def __call__(self, moment: Moment, sights: Sights, memories: Sequence[Memory]) -> None:
        """Draw a moment of the way there, with the store's current memories."""
        if moment.day != 0:
            return
        pose = moment.pose
        self._way.append((float(pose[0, 3]), float(pose[1, 3])))
        for key, box in zip(sights.track_id, sights.boxes, strict=True):
            self._trails.setdefault(key, []).append((float(box[0]), float(box[1])))
        if moment.number % self._every == 0:
            seconds = moment.number / self._rate_hz
            canvas = self._canvas()
            self._draw_seen(canvas, moment, pose, sights)
            things = self._draw_map(canvas, memories)
            self._write(
                canvas,
                "seen",
                f"{seconds:4.1f} s: {len(sights.labels)} tracks in view",
                _LEGEND.format(things),
            )
            self._frames.append(_smaller(canvas))
            self._last = (moment, pose, sights)

    def save(self, file: Path, memories: Sequence[Memory], said: Sequence[str] = ()) -> Path:
        """Append the final memories with answers, and write the file.

        Args:
            file: .webp or .gif.
            memories: of the store after the drive.
            said: questions and answers, one per line, shown one after the other.

        Raises:
            ValueError: no moment was drawn.
        """
        if not self._frames:
            raise ValueError(f"{file}: the drive has no frames to draw; use a longer sequence")
        for line in said or ("",):
            canvas = self._canvas()
            self._draw_seen(canvas, *self._last)
            things = self._draw_map(canvas, memories)
            self._write(canvas, "asked", line, _LEGEND.format(things))
            self._frames += [_smaller(canvas)] * _HOLD
        options = {"quality": 55, "method": 6, "minimize_size": True} if file.suffix == ".webp" else {}
        first, *others = self._frames
        duration = round(1000 * self._every / self._rate_hz)
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as temporary:
            first.save(
                temporary,
                format=file.suffix[1:].upper(),
                save_all=True,
                append_images=others,
                duration=duration,
                loop=0,
                **options,
            )
        return file

    def _canvas(self) -> Image.Image:
        return Image.new("RGB", (_WIDTH * _SCALE, self._height * _SCALE), BACKGROUND)

    def _draw_seen(self, canvas: Image.Image, moment: Moment, pose: Points, sights: Sights) -> None:
        """Draw points, boxes with track ids, and trails around the robot."""
        yaw = float(np.arctan2(pose[1, 0], pose[0, 0]))
        scale = _WIDTH * _SCALE / (_BEHIND_M + _AHEAD_M)
        back = pose[:2, 3] - _BEHIND_M * np.array([np.cos(yaw), np.sin(yaw)])
        strip = Strip((float(back[0]), float(back[1])), yaw, scale, _LINE * _SCALE, _SEEN_HEIGHT * _SCALE)
        points = moment.frame.cloud.points.astype(np.float64)
        points = points[np.isfinite(points).all(axis=1)]
        _dots(canvas, strip.pixels(points[:, :3] @ pose[:3, :3].T + pose[:3, 3]), points[:, 2], strip)
        draw = ImageDraw.Draw(canvas)
        for key, label, box in zip(sights.track_id, sights.labels, sights.boxes, strict=True):
            colour = class_colour(label).dark
            _line(draw, strip.pixels(np.array(self._trails[key])), colour, 2)
            corners = strip.pixels(_corners(box))
            _line(draw, corners[[0, 1, 2, 3, 0]], colour, 2)
            _line(draw, strip.pixels(_nose(box)), colour, 2)
            draw.text(
                tuple(corners.min(axis=0) - (0, 20 * _SCALE)),
                f"{label} {key}",
                fill=colour,
                font=self._fonts[0],
            )
        _robot(draw, strip, pose, 7)

    def _draw_map(self, canvas: Image.Image, memories: Sequence[Memory]) -> int:
        """Draw the trajectory, static objects as circles and moving ones as lines; return the number of
        objects.
        """
        draw, strip = ImageDraw.Draw(canvas), self._map
        top = (_LINE * 2 + _SEEN_HEIGHT) * _SCALE
        draw.rectangle((0, top, canvas.width, canvas.height), fill=BACKGROUND)
        strip = Strip(strip.origin, strip.angle, strip.scale, top, strip.height)
        _line(draw, strip.pixels(np.array(self._way)), _FAINT, 1)
        things = [memory for memory in memories if memory.kind in ("object", "event")]
        for memory in things:
            colour = class_colour(memory.label).dark
            way = [(x, y) for _, x, y in memory.payload.get("way", ())]
            if len(way) > 1:
                _line(draw, strip.pixels(np.array(way)), colour, 2)
            at = strip.pixels(np.array([memory.position[:2]]))[0]
            radius = 5 * _SCALE if len(way) < 2 else 3 * _SCALE
            draw.ellipse((*(at - radius), *(at + radius)), outline=colour, width=2 * _SCALE)
        if self._way:
            at = strip.pixels(np.array(self._way[-1:]))[0]
            draw.ellipse((*(at - 3 * _SCALE), *(at + 3 * _SCALE)), fill=_TEXT)
        return len(things)

    def _write(self, canvas: Image.Image, title: str, seen: str, remembered: str) -> None:
        draw = ImageDraw.Draw(canvas)
        below = _LINE + _SEEN_HEIGHT
        for top, head, words in ((0, title, seen), (below, "remembered", remembered)):
            draw.rectangle((0, top * _SCALE, canvas.width, (top + _LINE) * _SCALE), fill=BACKGROUND)
            row = (top + 9) * _SCALE
            draw.text((12 * _SCALE, row), head, fill=_FAINT, font=self._fonts[1])
            draw.text((120 * _SCALE, row), words, fill=_TEXT, font=self._fonts[1])


def _turn(angle: float) -> Points:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _around(path: Points) -> Strip:
    """Return the map strip: the path runs from left to right, with its surroundings."""
    path = np.asarray(path, np.float64)[:, :2]
    along = path[-1] - path[0]
    if np.hypot(*along) < _AHEAD_M / 2:  # Do not rotate for a robot that stands or returns.
        along = np.array([1.0, 0.0])
    angle = float(np.arctan2(along[1], along[0]))
    turned = path @ _turn(-angle).T
    low = turned.min(axis=0) - (_BEHIND_M, _BESIDE_M)
    high = np.add(turned.max(axis=0), (_AHEAD_M, _BESIDE_M))
    scale = _WIDTH * _SCALE / (high[0] - low[0])
    least, most = _MAP_HEIGHTS
    height = int(np.clip((high[1] - low[1]) * scale, least * _SCALE, most * _SCALE))
    scale = min(scale, height / (high[1] - low[1]))
    left = _turn(angle) @ np.array([low[0], (low[1] + high[1]) / 2])
    return Strip((float(left[0]), float(left[1])), angle, scale, 0, height - height % _SCALE)


def _corners(box: Points) -> Points:
    half = np.asarray(box[3:5], np.float64) / 2
    return np.array([[1, 1], [1, -1], [-1, -1], [-1, 1]]) * half @ _turn(float(box[6])).T + box[:2]


def _nose(box: Points) -> Points:
    """Return the line from the centre to the front."""
    return np.array([[0.0, 0.0], [box[3] / 2, 0.0]]) @ _turn(float(box[6])).T + box[:2]


def _dots(canvas: Image.Image, at: Points, heights: Points, strip: Strip) -> None:
    """Draw points as squares, coloured by height."""
    columns, rows = at.astype(int).T
    inside = (columns >= 0) & (columns < canvas.width - _DOT)
    inside &= (rows >= strip.top) & (rows < strip.top + strip.height - _DOT)
    stops = np.array([[int(stop.dark[at : at + 2], 16) for at in (1, 3, 5)] for stop in POINT_STOPS], float)
    level = np.clip((heights - _LOW_M) / (_HIGH_M - _LOW_M), 0.0, 1.0) * (len(stops) - 1)
    colours = np.stack([np.interp(level, np.arange(len(stops)), channel) for channel in stops.T], axis=1)
    pixels = np.asarray(canvas).copy()
    order = np.flatnonzero(inside)[np.argsort(heights[inside], kind="stable")]
    for down in range(_DOT):
        for right in range(_DOT):
            pixels[rows[order] + down, columns[order] + right] = colours[order]
    canvas.paste(Image.fromarray(pixels))


def _line(draw: ImageDraw.ImageDraw, at: Points, colour: str, width: int) -> None:
    draw.line([tuple(point) for point in at], fill=colour, width=width * _SCALE, joint="curve")


def _robot(draw: ImageDraw.ImageDraw, strip: Strip, pose: Points, size: int) -> None:
    at, size = strip.pixels(pose[None, :2, 3])[0], size * _SCALE
    outline = at + np.array([[2.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]]) * size
    draw.polygon([tuple(corner) for corner in outline], fill=_TEXT)


def _smaller(canvas: Image.Image) -> Image.Image:
    return canvas.resize((canvas.width // _SCALE, canvas.height // _SCALE), Image.Resampling.LANCZOS)
