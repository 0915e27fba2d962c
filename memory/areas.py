"""Areas: named parts of a map, such as a room or a parking bay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from memory.errors import UnknownAreaError
from memory.terms import fold
from memory.types import check_integer, check_numbers, check_polygon, check_text

#: Radius around each place of an area, if none is given, in metres.
PLACE_RADIUS_M = 2.5
#: Maximum places of an area.
MOST_PLACES = 1000
Corners = tuple[tuple[float, float], ...]
Circle = tuple[float, float, float]


class Region(NamedTuple):
    """Part of a plane: everything in the polygon or in one of the circles, edges included.

    Attributes:
        polygon: corners (x, y) in metres; empty for none.
        circles: x, y and radius of each in metres.
    """

    polygon: Corners = ()
    circles: tuple[Circle, ...] = ()

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Bounding box x0, y0, x1, y1 in metres."""
        boxes = [(x, y, x, y) for x, y in self.polygon]
        for x, y, radius in self.circles:
            # Widen the box slightly, because squared distances round.
            wide = radius * (1.0 + 1e-9) + 1e-9 * max(abs(x), abs(y))
            boxes.append((x - wide, y - wide, x + wide, y + wide))
        x0, y0, x1, y1 = zip(*boxes, strict=True)
        return min(x0), min(y0), max(x1), max(y1)


@dataclass(frozen=True)
class Area:
    """A named part of a map.

    Attributes:
        name: as given; names that differ only in case are the same.
        map_id: its map.
        polygon: corners (x, y) in metres; empty for an area of places.
        places: x, y in metres by the id of each place; the area is what lies within ``radius_m`` of one.
        radius_m: around each place, in metres.
    """

    name: str
    map_id: str
    polygon: Corners = ()
    places: Mapping[int, tuple[float, float]] | None = None
    radius_m: float = PLACE_RADIUS_M

    @property
    def region(self) -> Region:
        """The part of the map."""
        circles = tuple((x, y, self.radius_m) for x, y in (self.places or {}).values())
        return Region(self.polygon, circles)

    @property
    def centre(self) -> tuple[float, float]:
        """Mean of the corners or places, in metres."""
        points = self.polygon or tuple((self.places or {}).values())
        return (sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as the log keeps them."""
        found: dict[str, Any] = {"name": self.name, "map": self.map_id}
        if self.polygon:
            return found | {"polygon": [list(corner) for corner in self.polygon]}
        places = [[id, x, y] for id, (x, y) in (self.places or {}).items()]
        return found | {"places": places, "radius_m": self.radius_m}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Area:
        """Return the area of :meth:`to_json`."""
        polygon = tuple((x, y) for x, y in values.get("polygon", ()))
        places = {int(id): (x, y) for id, x, y in values.get("places", ())} or None
        radius = float(values.get("radius_m", PLACE_RADIUS_M))
        return cls(values["name"], values["map"], polygon, places, radius)


def key_of(name: str, map_id: str) -> tuple[str, str]:
    """Return what identifies an area: the name without case and accents, and the map."""
    return fold(name.strip()), map_id


def check_name(name: str) -> str:
    """Return the name of an area without outer spaces, or raise ``ValueError``."""
    found = " ".join(check_text("name", name).split())
    if not found or not any(character.isalnum() for character in found):
        raise ValueError(f"give the name of an area, such as 'kitchen', got {name!r}")
    return found


def polygon_area(name: str, map_id: str, polygon: Sequence[Sequence[float]]) -> Area:
    """Return an area with these corners."""
    return Area(check_name(name), check_text("map_id", map_id), check_polygon(polygon))


def box_corners(box: Sequence[float]) -> Corners:
    """Return the corners of x0, y0, x1, y1 in metres, or raise ``ValueError``."""
    x0, y0, x1, y1 = check_numbers("box", box, 4)
    if x0 >= x1 or y0 >= y1:
        raise ValueError(f"box must be x0, y0, x1, y1 with x0 < x1 and y0 < y1, got {(x0, y0, x1, y1)}")
    return ((x0, y0), (x1, y0), (x1, y1), (x0, y1))


def check_places(ids: Iterable[int], radius_m: float) -> tuple[list[int], float]:
    """Return distinct ids of places and the radius, or raise ``ValueError``."""
    known = sorted({check_integer("places", id) for id in ids})
    if not 1 <= len(known) <= MOST_PLACES:
        raise ValueError(f"an area needs 1 to {MOST_PLACES} places, got {len(known)}")
    (radius,) = check_numbers("radius_m", (radius_m,), 1)
    if radius <= 0.0:
        raise ValueError(f"radius_m must be above 0, got {radius_m}")
    return known, radius


def find_area(areas: Sequence[Area], name: str, map_id: str | None) -> Area:
    """Return the area of a name.

    Raises:
        UnknownAreaError: there is none, or there are several and ``map_id`` is None.
    """
    wanted = fold(name.strip())
    found = [each for each in areas if fold(each.name) == wanted and map_id in (None, each.map_id)]
    if len(found) == 1:
        return found[0]
    if found:
        maps = ", ".join(each.map_id for each in found)
        raise UnknownAreaError(f"area {name!r} exists in the maps {maps}. Name the map")
    where = "" if map_id is None else f" in map {map_id}"
    known = ", ".join(sorted({each.name for each in areas})) or "none yet; set one with recall area"
    raise UnknownAreaError(f"no area is called {name!r}{where}. Areas: {known}")
