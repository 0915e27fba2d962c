"""Structural filters: which memories match, exactly."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.persistence.deadline import check_deadline
from memory.persistence.places import Placed
from memory.types import (
    KINDS,
    STATES,
    Kind,
    State,
    check_choice,
    check_integer,
    check_numbers,
    check_polygon,
    check_text,
    check_words,
    distinct_words,
)


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Every part that is given must hold; the empty filter matches everything.

    Attributes:
        text: words that label and caption together must all have, in any form with their stem, at most
            ``MOST_WORDS`` different ones; case and accents do not matter. Nothing in it is syntax. Text
            without a letter or digit matches nothing.
        between_ns: first and last nanosecond, both included.
        labels, kinds, states: any of them; an empty list matches nothing.
        map_id: the map, exactly.
        min_confidence: least confidence.
        marked: only marked ones, or only others.
        box: x0, y0, x1, y1 in metres, edges included.
        circle: x, y and radius in metres, the rim included.
        polygon: corners (x, y) in metres, from three to ``MOST_CORNERS``, edges included; even-odd where it
            crosses itself.
    """

    text: str | None = None
    between_ns: tuple[int, int] | None = None
    labels: Sequence[str] | None = None
    kinds: Sequence[Kind] | None = None
    states: Sequence[State] | None = None
    map_id: str | None = None
    min_confidence: float = 0.0
    marked: bool | None = None
    box: tuple[float, float, float, float] | None = None
    circle: tuple[float, float, float] | None = None
    polygon: Sequence[tuple[float, float]] | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` or ``TypeError``, naming the part that is wrong."""
        if self.text is not None:
            check_words("text", self.text)
        if self.map_id is not None:
            check_text("map_id", self.map_id)
        if self.between_ns is not None:
            first, last = (check_integer("between_ns", value) for value in self.between_ns)
            if first > last:
                raise ValueError(f"between_ns must rise, got {first} and {last}")
            object.__setattr__(self, "between_ns", (first, last))
        choices = {"labels": None, "kinds": KINDS, "states": STATES}
        for name, allowed in choices.items():
            found = getattr(self, name)
            if isinstance(found, str):
                raise TypeError(f"{name} must be a list of strings, got the string {found!r}")
            for entry in found or ():
                check_text(name, entry) if allowed is None else check_choice(name, entry, allowed)
        object.__setattr__(
            self, "min_confidence", check_numbers("min_confidence", (self.min_confidence,), 1)[0]
        )
        if self.box is not None:
            box = check_numbers("box", self.box, 4)
            if box[0] > box[2] or box[1] > box[3]:
                raise ValueError(f"box must be x0, y0, x1, y1 with x0 <= x1 and y0 <= y1, got {box}")
            object.__setattr__(self, "box", box)
        if self.circle is not None:
            circle = check_numbers("circle", self.circle, 3)
            if circle[2] < 0.0:
                raise ValueError(f"the radius of circle must not be negative, got {circle[2]}")
            object.__setattr__(self, "circle", circle)
        if self.polygon is not None:
            object.__setattr__(self, "polygon", check_polygon(self.polygon))

    @property
    def bounds(self) -> tuple[float, float, float, float] | None:
        """x0, y0, x1, y1 around everything that matches; ``None`` without a place. x0 > x1: nothing does."""
        boxes: list[tuple[float, float, float, float]] = []
        if self.box is not None:
            boxes.append(self.box)
        if self.circle is not None:
            x, y, radius = self.circle
            # A little wider: the rim is judged by squares, which round.
            wide = radius * (1.0 + 1e-9) + 1e-9 * max(abs(x), abs(y))
            boxes.append((x - wide, y - wide, x + wide, y + wide))
        if self.polygon is not None:
            xs, ys = zip(*self.polygon, strict=True)
            boxes.append((min(xs), min(ys), max(xs), max(ys)))
        if not boxes:
            return None
        x0, y0, x1, y1 = zip(*boxes, strict=True)
        return max(x0), max(y0), min(x1), min(y1)


class Condition(NamedTuple):
    """A part of a WHERE clause over ``memory AS m``.

    Attributes:
        sql: with question marks.
        parameters: for them.
    """

    sql: str
    parameters: tuple[Any, ...]


def column_conditions(filter: Filter) -> list[Condition]:
    """What the columns of ``memory`` decide: everything but words and places."""
    found = []
    if filter.map_id is not None:
        found.append(Condition("m.map_id = ?", (filter.map_id,)))
    if filter.between_ns is not None:
        found.append(Condition("m.time_ns BETWEEN ? AND ?", filter.between_ns))
    for column, values in (("label", filter.labels), ("kind", filter.kinds), ("state", filter.states)):
        if values is not None:
            found.append(is_any(f"m.{column}", values))
    if filter.min_confidence > 0.0:
        found.append(Condition("m.confidence >= ?", (filter.min_confidence,)))
    if filter.marked is not None:
        found.append(Condition("m.marked = ?", (int(filter.marked),)))
    return found


def is_any(column: str, values: Sequence[Any]) -> Condition:
    """``column IN values``, any number of them."""
    if len(values) <= 100:
        return Condition(f"{column} IN ({', '.join('?' * len(values))})", tuple(values))
    return Condition(f"{column} IN (SELECT value FROM json_each(?))", (json.dumps(list(values)),))


def judge(placed: Placed, filter: Filter) -> NDArray[np.bool_]:
    """Which of the memories within the filter's bounds are within its circle and polygon."""
    points = placed.points
    kept = np.ones(len(points), np.bool_)
    if filter.circle is not None:
        kept &= in_circle(points, filter.circle)
    if filter.polygon is not None:
        rows = np.flatnonzero(kept)
        kept[rows] = in_polygon(points[rows], filter.polygon)
    return kept


def match_expression(text: str, *, any_word: bool = False) -> str | None:
    """The text as an FTS5 expression that asks for its words and has no syntax of the user's.

    Returns:
        ``None`` where nothing could be looked up.
    """
    words = distinct_words(text)
    if not words:
        return None
    quoted = ('"' + word.replace('"', '""') + '"' for word in words)
    return (" OR " if any_word else " ").join(quoted)


def in_circle(points: NDArray[np.float64], circle: tuple[float, float, float]) -> NDArray[np.bool_]:
    """Which of the (n, 2) points are inside or on the rim; exactly at the middle where the radius is 0."""
    x, y, radius = circle
    with np.errstate(over="ignore"):
        away_x, away_y = points[:, 0] - x, points[:, 1] - y
        if 1e-140 < radius < 1e140:
            found: NDArray[np.bool_] = away_x**2 + away_y**2 <= radius * radius
        else:  # Its square is nothing, or more than there is.
            found = np.hypot(away_x, away_y) <= radius
    return found


def in_polygon(points: NDArray[np.float64], polygon: Sequence[tuple[float, float]]) -> NDArray[np.bool_]:
    """Which of the (n, 2) points are inside or on an edge; even-odd rule.

    Each edge is compared with the points at its height only. Stops at the deadline of the thread.
    """
    corners = np.asarray(polygon, dtype=np.float64)
    (x0, y0), (x1, y1) = corners.min(axis=0), corners.max(axis=0)
    found = np.zeros(len(points), bool)
    x, y = points[:, 0], points[:, 1]
    rows = np.flatnonzero((x >= x0) & (x <= x1) & (y >= y0) & (y <= y1))
    rows = rows[np.argsort(y[rows], kind="stable")]
    x, y = x[rows], y[rows]
    inside, edge = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    following = np.roll(corners, -1, axis=0)
    low, high = np.minimum(corners[:, 1], following[:, 1]), np.maximum(corners[:, 1], following[:, 1])
    starts, stops = np.searchsorted(y, low, "left"), np.searchsorted(y, high, "right")
    crossed = np.flatnonzero(stops > starts).tolist()
    for at in crossed:
        check_deadline()
        part = slice(int(starts[at]), int(stops[at]))
        (xa, ya), (xb, yb) = corners[at].tolist(), following[at].tolist()
        on, spans = _beside_edge(x[part], y[part], xa, ya, xb, yb)
        edge[part] |= on
        inside[part] ^= spans
    found[rows] = inside | edge
    return found


def _beside_edge(
    x: NDArray[np.float64], y: NDArray[np.float64], xa: float, ya: float, xb: float, yb: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which points lie on an edge of a polygon, and which left of it at its height."""
    with np.errstate(over="ignore", invalid="ignore"):
        cross = (xb - xa) * (y - ya) - (yb - ya) * (x - xa)
        within = (min(xa, xb) <= x) & (x <= max(xa, xb))
        tolerance = 1e-12 * max(math.hypot(xb - xa, yb - ya), 1e-300) * np.maximum(1.0, np.hypot(x, y))
        edge = within & (np.abs(cross) <= tolerance)
        spans = (ya > y) != (yb > y)
        # Left of the edge at the point's height, without a division.
        left = spans & ((cross > 0.0) == (yb > ya))
    return edge, left
