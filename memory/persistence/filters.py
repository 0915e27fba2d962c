"""Exact structural filters, in SQL and over arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.areas import Region
from memory.persistence.deadline import check_deadline
from memory.persistence.sql import Condition
from memory.query import Filter


def column_conditions(
    filter: Filter, any_of: Callable[[str, Sequence[Any]], Condition], moving: str
) -> list[Condition]:
    """Return the conditions on columns of ``memory``: everything but words and places.

    Args:
        filter: filter to express in SQL.
        any_of: the engine's condition for one of many texts.
        moving: the engine's SQL that is true for a moving object, and NULL if its velocity is unknown.
    """
    found = []
    check_resolved(filter)
    if filter.map_id is not None:
        found.append(Condition("m.map_id = ?", (filter.map_id,)))
    if filter.between_ns is not None:
        found.append(Condition("m.time_ns BETWEEN ? AND ?", filter.between_ns))
    for column, values in (("label", filter.labels), ("kind", filter.kinds), ("state", filter.states)):
        if values is not None:
            found.append(any_of(f"m.{column}", values))
    if filter.min_confidence > 0.0:
        found.append(Condition("m.confidence >= ?", (filter.min_confidence,)))
    if filter.marked is not None:
        found.append(Condition("m.marked = ?", (int(filter.marked),)))
    if filter.moving is not None:
        found.append(Condition(moving if filter.moving else f"NOT {moving}", ()))
    return found


def judge(points: NDArray[np.float64], filter: Filter, kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of the kept (n, 2) points, already within the bounds, are in the circle and polygon."""
    if filter.circle is not None:
        kept &= in_circle(points, filter.circle)
    if filter.polygon is not None:
        rows = np.flatnonzero(kept)
        kept[rows] = in_polygon(points[rows], filter.polygon)
    if filter.region is not None:
        rows = np.flatnonzero(kept)
        kept[rows] = in_region(points[rows], filter.region)
    return kept


def check_resolved(filter: Filter) -> None:
    """Raise for a filter whose area was not replaced, because the area would be ignored."""
    if filter.area is not None:
        raise ValueError(f"area {filter.area!r} was not looked up. Ask the store, not its tables")


def in_region(points: NDArray[np.float64], region: Region) -> NDArray[np.bool_]:
    """Return which of the (n, 2) points are in a region or on its edge."""
    found = in_polygon(points, region.polygon) if region.polygon else np.zeros(len(points), np.bool_)
    for circle in region.circles:
        found |= in_circle(points, circle)
    return found


def in_circle(points: NDArray[np.float64], circle: tuple[float, float, float]) -> NDArray[np.bool_]:
    """Return which of the (n, 2) points are in the circle or on it; radius 0 means exactly at its centre."""
    x, y, radius = circle
    with np.errstate(over="ignore"):
        away_x, away_y = points[:, 0] - x, points[:, 1] - y
        if 1e-140 < radius < 1e140:
            found: NDArray[np.bool_] = away_x**2 + away_y**2 <= radius * radius
        else:  # Its square underflows or overflows.
            found = np.hypot(away_x, away_y) <= radius
    return found


def in_polygon(points: NDArray[np.float64], polygon: Sequence[tuple[float, float]]) -> NDArray[np.bool_]:
    """Return which of the (n, 2) points are in the polygon or on an edge, by the even-odd rule.

    Each edge is compared only with the points at its height. Stops at the thread's deadline.
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
        on, spans = _sides_of_edge(x[part], y[part], xa, ya, xb, yb)
        edge[part] |= on
        inside[part] ^= spans
    found[rows] = inside | edge
    return found


def _sides_of_edge(
    x: NDArray[np.float64], y: NDArray[np.float64], xa: float, ya: float, xb: float, yb: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which points lie on an edge, and which lie left of it at its height."""
    with np.errstate(over="ignore", invalid="ignore"):
        cross = (xb - xa) * (y - ya) - (yb - ya) * (x - xa)
        within = (min(xa, xb) <= x) & (x <= max(xa, xb))
        tolerance = 1e-12 * max(math.hypot(xb - xa, yb - ya), 1e-300) * np.maximum(1.0, np.hypot(x, y))
        edge = within & (np.abs(cross) <= tolerance)
        spans = (ya > y) != (yb > y)
        # Left of the edge at the point's height, without a division.
        left = spans & ((cross > 0.0) == (yb > ya))
    return edge, left
