"""Place of a question: a circle for the store, words and areas for the answer, and names of places."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from memory.areas import Area
from memory.persistence.filters import in_region
from memory.query import Filter
from memory.questions.reading.lexicon import WHOLE_PLACES
from memory.store import MemoryStore
from memory.terms import fold
from memory.types import Memory
from memory.wording.meaning import ROOMS
from memory.wording.words import point

#: Words that end the names of areas and mean none of them.
_NO_NAMES = frozenset({
    *WHOLE_PLACES, "room", "rooms", "area", "areas", "zone", "floor", "level", "side", "end", "part",
    "space", "section", "open", "main", "front", "back", "left", "right", "upper", "lower", "new", "old",
    "big", "small",
})  # fmt: skip


def circle_of(near: tuple[float, ...] | None, radius_m: float | None) -> tuple[float, float, float] | None:
    """Return x, y and radius in metres; ``None`` without a point. A z coordinate is ignored.

    Raises:
        ValueError: only one of the two is given, or the point does not have two or three numbers.
    """
    if (near is None) != (radius_m is None):
        raise ValueError("near and radius_m belong together: give both or neither")
    if near is None or radius_m is None:
        return None
    if len(near) not in (2, 3):
        raise ValueError(f"near must have two or three numbers, got {len(near)}")
    return (near[0], near[1], radius_m)


def words_of_place(
    map_id: str | None,
    near: tuple[float, ...] | None,
    radius_m: float | None,
    polygon: Sequence[tuple[float, float]] | None,
    area: str | None,
) -> str:
    """Return the place of an answer in words."""
    parts = [] if area is None else [f"area {area}"]
    if polygon is not None:
        parts.append(f"the area with {len(polygon)} corners")
    if near is not None:
        parts.append(f"a radius of {radius_m:g} m around {point(near)}")
    where = "all maps" if map_id is None else f"map {map_id}"
    return f"{' and '.join(parts)} in {where}" if parts else where


def areas_around(areas: tuple[Area, ...], x: float, y: float, map_id: str) -> list[str]:
    """Return the names of the areas that a point lies in."""
    return [
        area.name for area in areas if area.map_id == map_id and in_region(np.array([[x, y]]), area.region)[0]
    ]


def names_place(store: MemoryStore, words: str) -> bool:
    """Return True if an area or a map has this name."""
    names = (*store.maps(), *(area.name for area in store.areas()))
    return fold(words) in {fold(each) for each in names}


def room_meant(store: MemoryStore, words: str) -> str | None:
    """Return the name of an area that means the same as words (``lounge``: ``living room``), or ``None``."""
    if names_place(store, words):
        return None
    names = [area.name for area in store.areas()]
    same = next((group for group in ROOMS if fold(words) in group), ())
    found = next((each for each in names if fold(each) in same), None)
    if found is not None or fold(words) in _NO_NAMES:
        return found
    # "The garden" is the only area whose name ends in this word, such as "back garden".
    said = fold(words).split()
    parts = [(each, fold(each).split()) for each in names]
    alike = [each for each, part in parts if said and said in (part[: len(said)], part[-len(said) :])]
    return alike[0] if len(alike) == 1 else None


def half_way_m(store: MemoryStore, place: Memory, most_m: float) -> float:
    """Return half the distance from a place to the next place of another name, in metres.

    The distance is infinite if it is above ``most_m``, or the memory is no place.
    """
    if place.kind != "place" or place.position is None:
        return math.inf
    x, y = place.position[:2]
    around = Filter(map_id=place.map_id, kinds=("place",), circle=(x, y, 2 * most_m))
    others = store.find(around, vectors=False)
    away = [math.dist(other.place[:2], (x, y)) for other in others if other.label not in ("", place.label)]
    return min(away, default=math.inf) / 2
