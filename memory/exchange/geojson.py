"""Memories as GeoJSON points (RFC 7946), for map viewers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from memory.exchange.records import record_of
from memory.types import Memory

#: The ellipsoid of WGS 84: half of the major axis in metres, square of the first eccentricity.
_HALF_AXIS_M = 6_378_137.0
_ECCENTRICITY_2 = 6.694379990141316e-3


@dataclass(frozen=True)
class Origin:
    """Where on Earth the origin of the map is.

    Attributes:
        latitude_deg, longitude_deg: WGS 84.
        heading_deg: of the map's x axis, counter-clockwise from east.
    """

    latitude_deg: float
    longitude_deg: float
    heading_deg: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` where it is nowhere on Earth."""
        if not (-89.0 <= self.latitude_deg <= 89.0 and -180.0 <= self.longitude_deg <= 180.0):
            raise ValueError(
                f"latitude must be from -89 to 89 and longitude from -180 to 180 degrees,"
                f" got {self.latitude_deg} and {self.longitude_deg}"
            )
        if not math.isfinite(self.heading_deg):
            raise ValueError(f"heading must be finite, got {self.heading_deg}")

    def longitude_latitude(self, x: float, y: float) -> tuple[float, float]:
        """Degrees of a point of the plane that touches the ellipsoid at the origin."""
        turn = math.radians(self.heading_deg)
        east = math.cos(turn) * x - math.sin(turn) * y
        north = math.sin(turn) * x + math.cos(turn) * y
        latitude, longitude = math.radians(self.latitude_deg), math.radians(self.longitude_deg)
        radius = _across_m(latitude)
        # From the axis of the Earth, at the longitude of the origin, and along the axis.
        outwards = radius * math.cos(latitude) - north * math.sin(latitude)
        axis = radius * (1.0 - _ECCENTRICITY_2) * math.sin(latitude) + north * math.cos(latitude)
        found = longitude + math.atan2(east, outwards)
        return math.degrees(found), math.degrees(_latitude(math.hypot(outwards, east), axis))


def _across_m(latitude: float) -> float:
    """Radius of curvature of the ellipsoid from east to west."""
    return _HALF_AXIS_M / math.sqrt(1.0 - _ECCENTRICITY_2 * math.sin(latitude) ** 2)


def _latitude(outwards: float, axis: float) -> float:
    """Geodetic latitude, by fixed-point iteration; near the ground each step gains three digits."""
    latitude = math.atan2(axis, outwards * (1.0 - _ECCENTRICITY_2))
    for _ in range(4):
        radius = _across_m(latitude)
        height = outwards / math.cos(latitude) - radius
        latitude = math.atan2(axis, outwards * (1.0 - _ECCENTRICITY_2 * radius / (radius + height)))
    return latitude


def write_geojson(stream: TextIO, batches: Iterable[list[Memory]], *, origin: Origin | None = None) -> int:
    """Write a FeatureCollection; returns the number of features.

    The properties are those of a JSONL record without position and vectors. The geometry is null where the
    position is not known.

    Args:
        stream: to write to.
        batches: of memories.
        origin: of the map. Without it coordinates are x, y, z in metres of the map, which the file says in
            its member ``coordinates``; viewers take them for degrees.
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
        # RFC 7946, section 3.2: a feature that is nowhere has no geometry.
        return feature | {"geometry": None, "properties": properties}
    x, y, z = properties.pop("position")
    place = [x, y, z]
    if origin is not None:
        longitude, latitude = origin.longitude_latitude(x, y)
        # A height above the map's origin is not one above the ellipsoid: left out of the geometry.
        place = [round(longitude, 9), round(latitude, 9)]
        properties["z_m"] = z
    return feature | {"geometry": {"type": "Point", "coordinates": place}, "properties": properties}
