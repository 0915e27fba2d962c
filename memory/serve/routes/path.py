"""Trajectory of the robot, from its memories."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query

from memory.query import Filter
from memory.serve.answers import JsonAnswer
from memory.serve.openapi.document import answers
from memory.serve.openapi.requests import plain
from memory.serve.openapi.responses import PathAnswer
from memory.serve.service import ServiceOf
from memory.types import Memory

router = APIRouter(prefix="/api")
#: Maximum memories; of more, a uniform sample over time is used.
MOST = 2000
#: Nanoseconds and metres between two places above which the trajectory is interrupted.
PAUSE_NS, APART_M = 600 * 10**9, 100.0
#: Payload key: x, y (and yaw) of the robot when it saw the object.
SEEN_FROM = "seen_from"

Place = tuple[int, float, float]


def place_of(memory: Memory) -> Place | None:
    """Return time and x, y in metres of the robot when it stored a memory; ``None`` if unknown."""
    found: Any = memory.position if memory.kind == "place" else memory.payload.get(SEEN_FROM)
    if not isinstance(found, list | tuple) or len(found) < 2:
        return None
    x, y = found[:2]
    if any(isinstance(at, bool) or not isinstance(at, int | float) or not math.isfinite(at) for at in (x, y)):
        return None
    return memory.time_ns, float(x), float(y)


def parts_of(places: Iterable[Place]) -> list[list[Place]]:
    """Split places in order of time into connected parts, without repeated places."""
    parts: list[list[Place]] = []
    last: Place | None = None
    for place in places:
        if last is None or place[0] - last[0] > PAUSE_NS or math.dist(place[1:], last[1:]) > APART_M:
            parts.append([place])
        elif place[1:] != last[1:]:
            parts[-1].append(place)
        last = place
    return parts


@router.get("/path", summary="Trajectory of the robot", responses=answers(PathAnswer))
async def path(
    service: ServiceOf, map_id: Annotated[str | None, Query(description="only in this map")] = None
) -> JsonAnswer:
    """Return lines of (nanoseconds, x, y): stored places, and positions from which objects were seen."""
    plain("map_id", map_id)

    def read() -> dict[str, Any]:
        ids = service.store.database.ids(Filter(map_id=map_id), order="oldest")
        if len(ids) > MOST:
            ids = ids[np.linspace(0, len(ids) - 1, MOST).astype(np.int64)]
        memories = service.store.database.present(ids.tolist(), vectors=False)
        found = (place_of(memory) for memory in memories)
        return {"parts": parts_of(place for place in found if place is not None)}

    return await service.read(read)
