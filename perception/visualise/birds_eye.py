"""A frame seen from above, as a PNG: x (forward) points up, y (left) points left.

A histogram counts points per pixel, so the drawing time hardly depends on the number of points.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch
from matplotlib.patheffects import AbstractPathEffect, withStroke

from perception.types import Boxes3D, Detections, FloatArray, PointCloud
from perception.visualise.palette import GROUND_TRUTH, POINT_STOPS, class_colour
from perception.visualise.scene import (
    DrawnBoxes,
    detected,
    finite_points,
    frame_summary,
    frame_title,
    ground_corners,
    height_range,
    labelled,
    percentile_range,
)
from sparse_core.common.files import replacing

#: A distance in metres, or (x_min, y_min, x_max, y_max) in metres.
ViewRange = float | tuple[float, float, float, float]
Pixels = npt.NDArray[np.float64]

BACKGROUND = "#0b1018"
_GRID, _TEXT, _FAINT = "#243044", "#e6edf6", "#8a9bb2"
_DPI = 100
_LEFT_PX, _RIGHT_PX, _TOP_PX, _BOTTOM_PX = 70, 24, 84, 62
_WIDTH_PX, _MAX_HEIGHT_PX = 1306, 1400
_MIN_ASPECT, _MAX_ASPECT = 0.35, 0.92
_MAX_REACH_M = 500.0
_EMPTY_REACH_M = 40.0
_MAX_SCORE_LABELS = 200
_FONT = "DejaVu Sans"
_HALO: list[AbstractPathEffect] = [withStroke(linewidth=2.5, foreground=BACKGROUND)]
#: Strength of a point in its own pixel and its neighbours: a small round dot.
_SPLAT = (
    (0, 0, 1.0),
    *((row, column, 0.55) for row, column in ((0, 1), (1, 0), (0, -1), (-1, 0))),
    *((row, column, 0.25) for row in (-1, 1) for column in (-1, 1)),
)


def draw_bev(
    path: Path | str,
    cloud: PointCloud,
    detections: Detections | None,
    *,
    ground_truth: Boxes3D | None = None,
    range_m: ViewRange | None = None,
    title: str | None = None,
    score_threshold: float = 0.0,
    trails: Sequence[FloatArray] = (),
) -> Path:
    """Draw a frame from above: points by height, boxes with heading and score, range rings.

    Args:
        path: PNG file to write; missing folders are created.
        cloud: (N, 4) points, LiDAR frame, metres; may be empty. Points that are not finite are skipped.
        detections: boxes to draw solid, in the colour of their class; None draws none.
        ground_truth: boxes to draw dashed.
        range_m: distance to show, in metres, or (x_min, y_min, x_max, y_max) in metres. Narrow views are
            widened. By default the view fits the frame.
        title: first line of the picture; by default the name of the cloud's source.
        score_threshold: least score of drawn detections.
        trails: earlier positions of objects, (n, 2) x and y in metres each, LiDAR frame, oldest first.

    Returns:
        The path of the file.

    Raises:
        ValueError: ``range_m`` is not positive, not finite, or has a minimum at or above its maximum.
        OSError: the file cannot be written.
    """
    points = finite_points(cloud.points)
    found, truth = detected(detections, score_threshold), labelled(ground_truth)
    view = fit_view(points, found, truth, range_m)
    figure, axes = _new_figure(view)
    heights_m = height_range(points[:, 2])
    axes.imshow(point_image(points, view, heights_m), extent=view.extent, origin="upper", aspect="auto")
    axes.set(xlim=(view.y_max, view.y_min), ylim=(view.x_min, view.x_max))
    _draw_rings(axes, view)
    _draw_trails(axes, trails)
    _draw_boxes(axes, found)
    _draw_truth(axes, truth)
    _draw_scores(axes, view, found)
    if len(points):
        _draw_height_scale(axes, heights_m)
    _draw_legend(axes, found, truth)
    _draw_heading(figure, view, frame_title(title, cloud.source), points, found, truth)
    return _save(figure, Path(path))


@dataclass(frozen=True)
class Viewport:
    """The drawn rectangle of ground, and its size in pixels.

    Attributes:
        x_min, y_min, x_max, y_max: edges in metres, LiDAR frame.
        width_px, height_px: size of the drawing area.
    """

    x_min: float
    y_min: float
    x_max: float
    y_max: float
    width_px: int
    height_px: int

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top of an image whose first row is the farthest."""
        return self.y_max, self.y_min, self.x_min, self.x_max

    def to_pixels(self, xy: npt.NDArray[np.floating]) -> Pixels:
        """Convert (..., 2) x and y in metres, LiDAR frame, to (..., 2) float64 columns and rows from the top
        left.
        """
        column = (self.y_max - xy[..., 1].astype(np.float64)) * (self.width_px / (self.y_max - self.y_min))
        row = (self.x_max - xy[..., 0].astype(np.float64)) * (self.height_px / (self.x_max - self.x_min))
        return np.stack([column, row], axis=-1)


def fit_view(
    points: FloatArray, found: DrawnBoxes, truth: DrawnBoxes, range_m: ViewRange | None = None
) -> Viewport:
    """Choose the view of a frame.

    Args:
        points: (N, 4) finite points, LiDAR frame, metres.
        found, truth: boxes to include if ``range_m`` is None.
        range_m: see :func:`draw_bev`.

    Raises:
        ValueError: ``range_m`` is invalid.
    """
    if range_m is None:
        edges = _edges_of_frame(points, found, truth)
    elif isinstance(range_m, tuple | list):
        edges = _checked_edges(tuple(range_m))
    else:
        edges = _edges_of_distance(points, float(range_m))
    x_min, y_min, x_max, y_max = _with_readable_shape(*edges)
    pixels_per_m = min(_WIDTH_PX / (y_max - y_min), _MAX_HEIGHT_PX / (x_max - x_min))
    width_px, height_px = round((y_max - y_min) * pixels_per_m), round((x_max - x_min) * pixels_per_m)
    return Viewport(x_min, y_min, x_max, y_max, width_px, height_px)


def _checked_edges(edges: tuple[float, ...]) -> tuple[float, float, float, float]:
    if len(edges) != 4 or not np.isfinite(edges).all() or edges[0] >= edges[2] or edges[1] >= edges[3]:
        raise ValueError(f"range_m must be a distance or (x_min, y_min, x_max, y_max) in metres, got {edges}")
    return edges[0], edges[1], edges[2], edges[3]


def _edges_of_distance(points: FloatArray, distance_m: float) -> tuple[float, float, float, float]:
    """Return edges all around the sensor, or only ahead of it if hardly any point lies behind."""
    if not (np.isfinite(distance_m) and distance_m > 0):
        raise ValueError(f"range_m must be a positive distance in metres, got {distance_m}")
    behind, _ = percentile_range(points[:, 0], 0.5, 99.5)
    rear_m = distance_m if behind < -0.1 * distance_m else 0.06 * distance_m
    return -rear_m, -distance_m, distance_m, distance_m


def _edges_of_frame(
    points: FloatArray, found: DrawnBoxes, truth: DrawnBoxes
) -> tuple[float, float, float, float]:
    """Return edges around nearly all points, every box and the sensor, rounded to 5 m, up to 500 m."""
    if not (len(points) or found.labels or truth.labels):
        return (-_EMPTY_REACH_M, -_EMPTY_REACH_M, _EMPTY_REACH_M, _EMPTY_REACH_M)
    near = points[np.abs(points[:, :2]).max(axis=1, initial=0.0) <= _MAX_REACH_M]
    spans = [percentile_range(near[:, axis], 0.5, 99.5) for axis in (0, 1)]
    corners = ground_corners(np.concatenate([found.boxes, truth.boxes])).reshape(-1, 2)
    low = np.minimum([spans[0][0], spans[1][0]], corners.min(axis=0, initial=-2.0))
    high = np.maximum([spans[0][1], spans[1][1]], corners.max(axis=0, initial=2.0))
    low = np.clip(np.floor((low - 1.0) / 5.0) * 5.0, -_MAX_REACH_M, -5.0)
    high = np.clip(np.ceil((high + 1.0) / 5.0) * 5.0, 5.0, _MAX_REACH_M)
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def _with_readable_shape(
    x_min: float, y_min: float, x_max: float, y_max: float
) -> tuple[float, float, float, float]:
    """Widen the shorter side so that the picture is neither a column nor a strip."""
    depth, width = x_max - x_min, y_max - y_min
    more_width = max(0.0, depth / _MAX_ASPECT - width) / 2
    more_depth = max(0.0, width * _MIN_ASPECT - depth) / 2
    return x_min - more_depth, y_min - more_width, x_max + more_depth, y_max + more_width


def point_image(
    points: FloatArray, view: Viewport, heights_m: tuple[float, float]
) -> npt.NDArray[np.float32]:
    """Render points as an image: each pixel has the colour of its highest point, brighter with more points.

    Args:
        points: (N, 4) finite points, LiDAR frame, metres.
        view: of the picture.
        heights_m: heights at the two ends of the colour scale.

    Returns:
        (height_px, width_px, 4) float32 RGBA in [0, 1].
    """
    pixels = view.to_pixels(points[:, :2])
    inside = ((pixels >= 0) & (pixels < (view.width_px, view.height_px))).all(axis=1)
    column, row = pixels[inside].astype(np.int64).T
    index = row * view.width_px + column
    shape = view.height_px, view.width_px
    count = np.bincount(index, minlength=shape[0] * shape[1]).reshape(shape)
    highest = np.full(shape[0] * shape[1], -np.inf, np.float32)
    np.maximum.at(highest, index, points[inside, 2])
    strength = np.where(count > 0, 0.75 + 0.25 * np.minimum(count, 6) / 6, 0.0).astype(np.float32)
    strength, highest = _splat(strength, highest.reshape(shape))
    low, high = heights_m
    image = _height_colours()(np.clip((highest.astype(np.float64) - low) / (high - low), 0.0, 1.0)).astype(
        np.float32
    )
    image[..., 3] = strength
    return image


def _splat(strength: FloatArray, highest: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Grow each occupied pixel into a soft dot; the strongest dot determines the height."""
    padded_strength, padded_highest = np.pad(strength, 1), np.pad(highest, 1, constant_values=-np.inf)
    rows, columns = strength.shape
    best, height = np.zeros_like(strength), np.full_like(highest, -np.inf)
    for row, column, weight in _SPLAT:
        window = (slice(1 + row, 1 + row + rows), slice(1 + column, 1 + column + columns))
        candidate = padded_strength[window] * np.float32(weight)
        better = candidate > best
        best = np.where(better, candidate, best)
        height = np.where(better, padded_highest[window], height)
    return best, height


def _height_colours() -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list("height", [stop.dark for stop in POINT_STOPS])


def _new_figure(view: Viewport) -> tuple[Figure, Axes]:
    """Return a figure whose axes match the view's pixels exactly."""
    width, height = view.width_px + _LEFT_PX + _RIGHT_PX, view.height_px + _TOP_PX + _BOTTOM_PX
    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor=BACKGROUND)
    FigureCanvasAgg(figure)
    position = (_LEFT_PX / width, _BOTTOM_PX / height, view.width_px / width, view.height_px / height)
    axes = figure.add_axes(position, facecolor=BACKGROUND)
    axes.tick_params(colors=_FAINT, labelsize=9, labelfontfamily=_FONT, length=4)
    for spine in axes.spines.values():
        spine.set_color(_GRID)
    axes.set_xlabel("y, left of the sensor (m)", color=_FAINT, fontsize=9.5, family=_FONT)
    axes.set_ylabel("x, ahead of the sensor (m)", color=_FAINT, fontsize=9.5, family=_FONT)
    return figure, axes


def _draw_rings(axes: Axes, view: Viewport) -> None:
    """Draw labelled circles of equal distance, and the sensor."""
    reach = float(np.hypot(max(-view.x_min, view.x_max, 0.0), max(-view.y_min, view.y_max, 0.0)))
    shown = max(view.x_max, view.y_max, -view.x_min, -view.y_min)
    step = next((s for s in (2, 5, 10, 20, 50, 100) if shown / s <= 9), 250)
    for radius in np.arange(step, min(reach, 50.0 * step), step):
        axes.add_patch(Circle((0.0, 0.0), radius, fill=False, color=_GRID, linewidth=0.9, zorder=0.5))
        if radius < view.x_max - 0.02 * (view.x_max - view.x_min):
            axes.text(
                0.0, radius, f"{radius:.0f} m", color=_FAINT, fontsize=8.5, family=_FONT, ha="center",
                va="center", clip_on=True, path_effects=_HALO, zorder=2.0,
            )  # fmt: skip
    axes.plot(0.0, 0.0, marker="^", color=_TEXT, markersize=11, markeredgecolor=BACKGROUND, zorder=6)


def _draw_trails(axes: Axes, trails: Sequence[FloatArray]) -> None:
    lines = [np.asarray(trail)[:, [1, 0]] for trail in trails if len(trail) > 1]
    axes.add_collection(LineCollection(lines, colors=_TEXT, linewidths=1.4, alpha=0.55), autolim=False)


def _draw_boxes(axes: Axes, found: DrawnBoxes) -> None:
    """Draw filled outlines and heading lines over a dark halo."""
    corners = list(ground_corners(found.boxes)[..., ::-1])
    noses = list(_heading_lines(found.boxes)[..., ::-1])
    colours = [to_rgb(class_colour(label).dark) for label in found.labels]
    outlines = [np.concatenate([quad, quad[:2]]) for quad in corners]
    axes.add_collection(PolyCollection(corners, facecolors=colours, alpha=0.2, zorder=3.0), autolim=False)
    for lines, width in ((outlines, 2.2), (noses, 1.8)):
        halo = LineCollection(lines, colors=BACKGROUND, linewidths=width + 2.0, alpha=0.75, zorder=3.1)
        axes.add_collection(halo, autolim=False)
        axes.add_collection(
            LineCollection(lines, colors=colours, linewidths=width, zorder=3.2), autolim=False
        )


def _draw_truth(axes: Axes, truth: DrawnBoxes) -> None:
    corners = ground_corners(truth.boxes)[..., ::-1]
    lines = [np.concatenate([quad, quad[:1]]) for quad in corners] + list(
        _heading_lines(truth.boxes, 0.0)[..., ::-1]
    )
    dashes = LineCollection(
        lines, colors=GROUND_TRUTH.dark, linewidths=1.0, linestyles=[(0, (4.0, 3.2))], zorder=3.6
    )
    axes.add_collection(dashes, autolim=False)


def _heading_lines(boxes: FloatArray, beyond_m: float = 0.9) -> Pixels:
    """Return (M, 2, 2) float64 lines from each centre to ``beyond_m`` past the front, metres."""
    boxes = boxes.astype(np.float64)
    direction = np.stack([np.cos(boxes[:, 6]), np.sin(boxes[:, 6])], axis=-1)
    front = boxes[:, :2] + direction * (boxes[:, 3:4] / 2 + beyond_m)
    return np.stack([boxes[:, :2], front], axis=1)


def _draw_scores(axes: Axes, view: Viewport, found: DrawnBoxes) -> None:
    """Draw score and track id next to each box, best first; labels without a free place are dropped."""
    if found.scores is None:
        return
    quads = view.to_pixels(ground_corners(found.boxes))
    size_px = (31.0 if found.track_ids is None else 62.0, 14.0)
    places = place_labels(quads[:_MAX_SCORE_LABELS], size_px, (view.width_px, view.height_px))
    for row, (place, label) in enumerate(zip(places, found.labels, strict=False)):
        if place is not None:
            axes.annotate(
                found.figures(row), (place[0] / view.width_px, 1 - place[1] / view.height_px),
                xycoords="axes fraction", color=class_colour(label).dark, fontsize=9, family=_FONT,
                fontweight="bold", ha="center", va="center", path_effects=_HALO, zorder=5,
            )  # fmt: skip


def place_labels(
    quads: Pixels, size_px: tuple[float, float], area_px: tuple[int, int]
) -> list[tuple[float, float] | None]:
    """Place one label per box, overlapping no other label and, if possible, no box.

    Args:
        quads: (M, 4, 2) float64 corners in pixels; earlier boxes choose first.
        size_px: width and height of a label.
        area_px: width and height of the picture; labels stay inside.

    Returns:
        M centres (column, row), None for a label without a free place or a box out of view.
    """
    low, high = quads.min(axis=1, initial=np.inf), quads.max(axis=1, initial=-np.inf)
    taken: list[tuple[float, float]] = []
    places: list[tuple[float, float] | None] = []
    size, area = np.array(size_px), np.array(area_px)
    for own_low, own_high in zip(low, high, strict=True):
        candidates = _label_candidates(own_low, own_high, size)
        inside = ((candidates >= size / 2) & (candidates <= area - size / 2)).all(axis=1)
        apart = np.abs(candidates[:, None] - np.array(taken).reshape(-1, 2))
        free = inside & ~(apart < size + 1.0).all(axis=2).any(axis=1)
        over_box = ((candidates[:, None] + size / 2 > low) & (candidates[:, None] - size / 2 < high)).all(
            axis=2
        )
        cost = np.where(free, over_box.sum(axis=1), np.inf)
        best = int(np.argmin(cost))
        place = (float(candidates[best, 0]), float(candidates[best, 1])) if free[best] else None
        places.append(place)
        if place is not None:
            taken.append(place)
    return places


def _label_candidates(low: Pixels, high: Pixels, size: Pixels) -> Pixels:
    """Return (8, 2) centres around a box: right, left, below, above, then the corners."""
    centre, reach = (low + high) / 2, (high - low) / 2 + size / 2 + 3.0
    directions = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)]
    return np.asarray(centre + np.array(directions) * reach)


def _draw_height_scale(axes: Axes, heights_m: tuple[float, float]) -> None:
    """Draw a bar of the point colours with the heights of its ends."""
    scale = axes.inset_axes((0.79, 0.035, 0.18, 0.012))
    scale.imshow(np.linspace(0, 1, 128)[None], aspect="auto", cmap=_height_colours(), extent=(0, 1, 0, 1))
    scale.set(xticks=[0, 1], xticklabels=[f"{height:.1f} m" for height in heights_m], yticks=[])
    scale.tick_params(colors=_FAINT, labelsize=8.5, length=0, pad=3, labelfontfamily=_FONT)
    scale.set_title("height of points", color=_FAINT, fontsize=9, family=_FONT, pad=4)
    for text in (*scale.get_xticklabels(), scale.title):
        text.set_path_effects(_HALO)
    for spine in scale.spines.values():
        spine.set_visible(False)


def _draw_legend(axes: Axes, found: DrawnBoxes, truth: DrawnBoxes) -> None:
    handles: list[Patch | Line2D] = [
        Patch(
            facecolor=(*to_rgb(class_colour(label).dark), 0.3),
            edgecolor=class_colour(label).dark,
            label=f"{frame_title(label, None)} ({found.labels.count(label)})",
        )
        for label in sorted(set(found.labels))
    ]
    if truth.labels:
        handles.append(
            Line2D(
                [], [], color=GROUND_TRUTH.dark, linestyle=(0, (4.0, 3.2)), linewidth=1.0,
                label=f"ground truth ({len(truth.labels)})",
            )
        )  # fmt: skip
    handles.append(Line2D([], [], color=_TEXT, marker="^", linestyle="", markersize=8, label="sensor"))
    legend = axes.legend(
        handles=handles, loc="lower left", fontsize=9.5, labelcolor=_TEXT, facecolor=BACKGROUND,
        edgecolor=_GRID, framealpha=0.85, borderpad=0.8, labelspacing=0.6, prop={"family": _FONT},
    )  # fmt: skip
    legend.set_zorder(7)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _draw_heading(
    figure: Figure, view: Viewport, title: str, points: FloatArray, found: DrawnBoxes, truth: DrawnBoxes
) -> None:
    """Draw the title and a line of counts above the picture."""
    width, height = figure.get_size_inches() * _DPI
    counts = frame_summary(len(points), found, truth)
    longest = max(12, view.width_px // 12)
    shown = title if len(title) <= longest else f"{title[: longest - 1]}…"
    for text, row_px, size, colour in ((shown, 32, 15, _TEXT), (counts, 60, 10.5, _FAINT)):
        figure.text(
            _LEFT_PX / width, 1 - row_px / height, text, color=colour, fontsize=size, family=_FONT,
            va="center", parse_math=False,
        )  # fmt: skip


def _save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # Characters missing from the font are drawn as empty squares, without a warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        with replacing(path, durable=False) as temporary:
            figure.savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})
    return path
