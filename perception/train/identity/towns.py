"""Views of simulated towns with known objects: a drive along a street, looking to all four sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from perception.simulate import SceneConfig, SensorModel, SimulatedScan, Spot, build_scene, scan_along
from perception.train.identity.observations import View, thin_points
from perception.types import FloatArray

#: Scan positions along the street, and the time between them.
_PLACES_M = tuple(range(-30, 31, 12))
_INTERVAL_S = 1.0
_EXTENT_M, _RANGE_M = 110.0, 80.0
#: Half the field of view of a view, which is rotated to the detector's range ahead.
_HALF_VIEW_RAD = np.pi / 4
#: Largest random turn beyond a quarter.
_TURN_RAD = 0.2
_THINNED_SHARE = 0.33


def town_views(seed: int) -> Iterator[View]:
    """Yield views of the town of a seed, some of them thinned.

    Cars appear from all sides, so that embeddings do not depend on the side. Objects differ in shape, size
    and reflectivity only; a sensor without colours hardly distinguishes two cars of the same body, size and
    brightness.

    Raises:
        ImportError: Open3D is missing.
    """
    scene = build_scene(seed, SceneConfig(extent_m=_EXTENT_M))
    spots = [Spot(scene.start.u + place, scene.start.v, 0.0) for place in _PLACES_M]
    sensor = replace(SensorModel.preset("64"), range_max_m=_RANGE_M)
    random = np.random.default_rng([seed, 7])
    scans = scan_along(scene, spots, seed=seed, sensor=sensor, interval_s=_INTERVAL_S)
    for number, scan in enumerate(scans):
        for quarter in range(4):
            view = _ahead(scan, quarter * np.pi / 2 + random.uniform(-_TURN_RAD, _TURN_RAD))
            named = replace(view, scene=f"town {seed}", time_s=number * _INTERVAL_S)
            if random.random() < _THINNED_SHARE:
                named = replace(named, points=thin_points(named.points, random), thinned=True)
            yield named


def _ahead(scan: SimulatedScan, bearing_rad: float) -> View:
    """Return the view in a direction, rotated to +x."""
    points = scan.cloud.points
    off = np.arctan2(points[:, 1], points[:, 0]) - bearing_rad
    seen = np.abs((off + np.pi) % (2 * np.pi) - np.pi) < _HALF_VIEW_RAD
    boxes = scan.boxes.boxes.copy()
    boxes[:, :2] = _turned(boxes[:, :2], -bearing_rad)
    boxes[:, 6] -= bearing_rad
    kept = points[seen].copy()
    kept[:, :2] = _turned(kept[:, :2], -bearing_rad)
    return View(kept, boxes, scan.track_ids, "", 0.0)


def _turned(places: FloatArray, angle_rad: float) -> FloatArray:
    cosine, sine = np.cos(angle_rad), np.sin(angle_rad)
    turned: FloatArray = (places @ np.array([[cosine, sine], [-sine, cosine]])).astype(np.float32)
    return turned
