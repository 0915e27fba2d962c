"""Curves and scans of a report: inline SVG and small pictures, for light and dark backgrounds."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image

from drive.report.map import class_name
from drive.senses import LEAST_SCORE
from drive.viewers import Day, Example
from perception.visualise.scene import detected, finite_points, ground_corners

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 240, 52, 30, 14
#: View of an example: metres ahead and to either side, and metres per pixel.
_AHEAD_M, _ASIDE_M, _PIXEL_M = 40.0, 24.0, 0.1
#: Least score of drawn detections; lower ones are not remembered.
_SHOWN_SCORE = min(LEAST_SCORE.values())


def curves(
    title: str, series: Sequence[tuple[str, str, Sequence[float]]], days: Sequence[Day], *, unit: str = ""
) -> str:
    """Return curves over the scans, with the start of every day.

    Args:
        title: of the figure.
        series: name, colour and values, one per scan.
        days: of the drive.
        unit: of the values.
    """
    count = max((len(values) for _, _, values in series), default=0)
    if not count:
        return ""
    top = _round_up(max(max(values, default=0.0) for _, _, values in series))

    def place(scan: float, value: float) -> tuple[float, float]:
        across = _LEFT + (_WIDTH - _LEFT - 10) * scan / max(count - 1, 1)
        return across, _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / top

    parts = []
    for value in (0.0, top / 2, top):
        _, y = place(0, value)
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 10}" stroke="var(--line)"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for day in days:
        x, _ = place(day.first, 0)
        parts.append(
            f'<path d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="var(--line)" stroke-dasharray="3 3"/>'
            f'<text x="{x + 4:.1f}" y="{_TOP + 8}">day {day.number + 1}</text>'
        )
    for _, colour, values in series:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(k, v) for k, v in enumerate(values)))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"'
            ' stroke-linejoin="round"/>'
        )
    names = "".join(
        f'<span><i class="key" style="--key:{colour}"></i>{escape(name)}</span>' for name, colour, _ in series
    )
    return (
        f'<figure class="panel"><figcaption>{escape(title + (f" ({unit})" if unit else ""))}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="12" role="img" aria-label="{escape(title)}">'
        + "".join(parts)
        + f'<text x="{_WIDTH - 10}" y="{_HEIGHT - 8}" text-anchor="end">scan, of {count}</text></svg>'
        + f'<div class="legend">{names}</div></figure>'
    )


def example_figure(example: Example) -> str:
    """Return a scan from above, forward to the right, with its boxes and scores."""
    found = detected(example.detections, _SHOWN_SCORE)
    inside = [
        row
        for row, box in enumerate(found.boxes)
        if 0 <= float(box[0]) <= _AHEAD_M and abs(float(box[1])) <= _ASIDE_M
    ]
    shapes = []
    for row, corners in zip(inside, ground_corners(found.boxes[inside]), strict=True):
        label = found.labels[row]
        score = 0.0 if found.scores is None else float(found.scores[row])
        outline = " ".join(f"{x:.2f},{-y:.2f}" for x, y in corners.tolist())
        front = corners[:2].mean(axis=0)
        middle_x, middle_y = (float(value) for value in found.boxes[row, :2])
        colour = f"var(--class-{class_name(label)})"
        above = -float(corners[:, 1].max()) - 0.5
        shapes.append(
            f'<g stroke="{colour}" stroke-width=".22" fill="{colour}">'
            f'<polygon points="{outline}" fill-opacity=".18"><title>{escape(label)} {score:.2f}</title>'
            f'</polygon><path d="M{middle_x:.2f} {-middle_y:.2f}'
            f'L{float(front[0]):.2f} {-float(front[1]):.2f}"/>'
            f'<text x="{middle_x:.2f}" y="{above:.2f}" font-size="1.4" text-anchor="middle"'
            f' style="fill:{colour}" stroke="none">{score:.2f}'
            "</text></g>"
        )
    rings = "".join(
        f'<path d="M0 {-radius}A{radius} {radius} 0 0 1 0 {radius}" fill="none" stroke="var(--line)"'
        f' stroke-width=".12"/><text x="{radius + 0.3}" y="-.3" font-size="1.3">{radius} m</text>'
        for radius in (10, 20, 30)
    )
    counts = {label: found.labels.count(label) for label in sorted(set(found.labels))}
    what = ", ".join(f"{count} {label}" for label, count in counts.items()) or "no detections"
    return (
        f'<figure><svg viewBox="-1 {-_ASIDE_M} {_AHEAD_M + 1} {2 * _ASIDE_M}" role="img"'
        f' aria-label="Scan {escape(example.name)} from above: {escape(what)}">'
        f'<image x="0" y="{-_ASIDE_M}" width="{_AHEAD_M}" height="{2 * _ASIDE_M}"'
        f' href="data:image/png;base64,{_points_picture(example)}"/>{rings}'
        '<path d="M1.2 0L-.6 -.8V.8Z" fill="var(--ink)"/>'
        + "".join(shapes)
        + f"</svg><figcaption><b>{escape(example.name)}</b><br>{len(example.cloud):,} points; {escape(what)}"
        "</figcaption></figure>"
    )


def _points_picture(example: Example) -> str:
    """Return a transparent PNG in base64; denser pixels are more opaque."""
    points = finite_points(example.cloud.points)
    columns = np.floor(points[:, 0] / _PIXEL_M).astype(np.int64)
    rows = np.floor((_ASIDE_M - points[:, 1]) / _PIXEL_M).astype(np.int64)
    width, height = round(_AHEAD_M / _PIXEL_M), round(2 * _ASIDE_M / _PIXEL_M)
    inside = (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    counts = np.bincount(rows[inside] * width + columns[inside], minlength=width * height)
    # Four opacities of one grey keep the file at a few kilobytes.
    cover = np.array([0, 110, 170, 230], np.uint8)[np.minimum(counts, 3)].reshape(height, width)
    grey = np.full_like(cover, 128)
    written = io.BytesIO()
    Image.fromarray(np.stack([grey, cover], axis=-1), "LA").save(written, "PNG", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


def _round_up(value: float) -> float:
    """Return the next 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1.0, 2.0, 5.0, 10.0) if power * factor >= value)
