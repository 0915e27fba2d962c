"""GeoJSON: its members, and degrees against the geometry of the ellipsoid."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import pytest

from memory.exchange.geojson import Origin, write_geojson
from memory.types import Memory


def write(memories: list[Memory], origin: Origin | None = None) -> dict[str, Any]:
    stream = io.StringIO()
    assert write_geojson(stream, [memories[:1], memories[1:]], origin=origin) == len(memories)
    found: dict[str, Any] = json.loads(stream.getvalue())
    assert found["type"] == "FeatureCollection"
    return found


def earth_centred(longitude_deg: float, latitude_deg: float) -> np.ndarray:
    """Metres from the centre of the Earth, on the ellipsoid: the textbook formula."""
    longitude, latitude = math.radians(longitude_deg), math.radians(latitude_deg)
    flattening = 1 / 298.257223563
    squared = flattening * (2 - flattening)
    radius = 6_378_137.0 / math.sqrt(1 - squared * math.sin(latitude) ** 2)
    flat = radius * math.cos(latitude)
    return np.array(
        [flat * math.cos(longitude), flat * math.sin(longitude), radius * (1 - squared) * math.sin(latitude)]
    )


def test_metres_say_so() -> None:
    merged = Memory(time_ns=1, position=(1, 2, 3), id=5, label="Car", count=2, visits=((0, 10**9, 2),))
    found = write([merged, Memory(time_ns=2)])
    assert found["coordinates"] == "metres in the map frame, not degrees"
    first, second = found["features"]
    assert (first["type"], first["id"]) == ("Feature", 5)
    assert first["geometry"] == {"type": "Point", "coordinates": [1.0, 2.0, 3.0]}
    assert first["properties"]["label"] == "Car"
    assert first["properties"]["visits"] == [["1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z", 2]]
    assert not {"position", "embedding", "id"} & first["properties"].keys()
    assert "id" not in second


def test_no_memories() -> None:
    assert write([])["features"] == []


@pytest.mark.parametrize("latitude", [-70.0, 0.0, 49.0])
@pytest.mark.parametrize("heading", [0.0, 90.0, 200.0])
def test_degrees(latitude: float, heading: float) -> None:
    origin = Origin(latitude, 8.4, heading)
    x, y = 300.0, -400.0
    (feature,) = write([Memory(time_ns=1, position=(x, y, 7.0))], origin)["features"]
    assert feature["properties"]["z_m"] == 7.0
    longitude_deg, latitude_deg = feature["geometry"]["coordinates"]
    moved = earth_centred(longitude_deg, latitude_deg) - earth_centred(8.4, latitude)
    east_deg, north_deg = math.radians(8.4), math.radians(latitude)
    up = np.array(
        [
            math.cos(north_deg) * math.cos(east_deg),
            math.cos(north_deg) * math.sin(east_deg),
            math.sin(north_deg),
        ]
    )
    east = np.array([-math.sin(east_deg), math.cos(east_deg), 0.0])
    turn = math.radians(heading)
    # Nine decimals of a degree are a tenth of a millimetre.
    assert moved @ east == pytest.approx(x * math.cos(turn) - y * math.sin(turn), abs=1e-3)
    assert moved @ np.cross(up, east) == pytest.approx(x * math.sin(turn) + y * math.cos(turn), abs=1e-3)


@pytest.mark.parametrize("place", [(90.0, 0.0), (0.0, 200.0), (float("nan"), 0.0), (0.0, 0.0, float("inf"))])
def test_nowhere_on_earth(place: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Origin(*place)
