"""GeoJSON points (RFC 7946) for map viewers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from memory.exchange.records import record_of
from memory.types import Memory

#: WGS 84 ellipsoid: semi-major axis in metres and squared first eccentricity.
_HALF_AXIS_M = 6_378_137.0
_ECCENTRICITY_2 = 6.694379990141316e-3


@dataclass(frozen=True)
class Origin:
    """Position and heading of the map on Earth.

    Attributes:
        latitude_deg, longitude_deg: WGS 84 position of the map's origin.
        heading_deg: direction of the map's x axis, counter-clockwise from east.
    """

    latitude_deg: float
    longitude_deg: float
    heading_deg: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for a position that is not on Earth."""
        if not (-89.0 <= self.latitude_deg <= 89.0 and -180.0 <= self.longitude_deg <= 180.0):
            raise ValueError(
                f"latitude must be from -89 to 89 and longitude from -180 to 180 degrees,"
                f" got {self.latitude_deg} and {self.longitude_deg}"
            )
        if not math.isfinite(self.heading_deg):
            raise ValueError(f"heading must be finite, got {self.heading_deg}")

    def longitude_latitude(self, x: float, y: float) -> tuple[float, float]:
        """Return longitude and latitude in degrees of a point on the tangent plane at the origin."""
        turn = math.radians(self.heading_deg)
        east = math.cos(turn) * x - math.sin(turn) * y
        north = math.sin(turn) * x + math.cos(turn) * y
        latitude, longitude = math.radians(self.latitude_deg), math.radians(self.longitude_deg)
        radius = _transverse_radius_m(latitude)
        # Distance from the Earth's axis at the origin's longitude, and along the axis.
        outwards = radius * math.cos(latitude) - north * math.sin(latitude)
        axis = radius * (1.0 - _ECCENTRICITY_2) * math.sin(latitude) + north * math.cos(latitude)
        found = longitude + math.atan2(east, outwards)
        return math.degrees(found), math.degrees(_latitude(math.hypot(outwards, east), axis))


def _transverse_radius_m(latitude: float) -> float:
    """Return the ellipsoid's radius of curvature from east to west."""
    return _HALF_AXIS_M / math.sqrt(1.0 - _ECCENTRICITY_2 * math.sin(latitude) ** 2)


def _latitude(outwards: float, axis: float) -> float:
    """Return the geodetic latitude by fixed-point iteration; near the ground each step gains three digits."""
    latitude = math.atan2(axis, outwards * (1.0 - _ECCENTRICITY_2))
    for _ in range(4):
        radius = _transverse_radius_m(latitude)
        height = outwards / math.cos(latitude) - radius
        latitude = math.atan2(axis, outwards * (1.0 - _ECCENTRICITY_2 * radius / (radius + height)))
    return latitude


def write_geojson(stream: TextIO, batches: Iterable[list[Memory]], *, origin: Origin | None = None) -> int:
    """Write a FeatureCollection and return the number of features.

    The properties are those of a JSONL record without position and vectors. A memory without a position has a
    null geometry.

    Args:
        origin: position of the map on Earth. Without it the coordinates are x, y, z in metres of the map. The
            member ``coordinates`` then says so, because viewers read the numbers as degrees.
    """
    head = "" if origin is not None else '"coordinates": "metres in the map frame, not degrees", '
    stream.write('{"type": "FeatureCollection", ' + head + '"features": [')
    count = 0
    for batch in batches:
        for memory in batch:
            stream.write(",\n" if count else "\n")
            stream.write(json.dumps(_feature(memory, origin)))
            count += 1
    stream.write("\n]}\n")
    return count


def _feature(memory: Memory, origin: Origin | None) -> dict[str, object]:
    properties = record_of(memory, vectors=False)
    feature: dict[str, object] = {"type": "Feature"}
    if "id" in properties:
        feature["id"] = properties.pop("id")
    if memory.position is None:
        # RFC 7946, section 3.2: a feature without a location has a null geometry.
        return feature | {"geometry": None, "properties": properties}
    x, y, z = properties.pop("position")
    place = [x, y, z]
    if origin is not None:
        longitude, latitude = origin.longitude_latitude(x, y)
        # A height above the map's origin is not a height above the ellipsoid, so the geometry omits it.
        place = [round(longitude, 9), round(latitude, 9)]
        properties["z_m"] = z
    return feature | {"geometry": {"type": "Point", "coordinates": place}, "properties": properties}
