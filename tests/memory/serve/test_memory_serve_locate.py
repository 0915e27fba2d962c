"""The pose of a scan over HTTP."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

LABELS = ("bench", "lamp", "hydrant", "sign", "tree")


@pytest.fixture
def places(client: Any) -> np.ndarray:
    """Objects that stand anywhere on 100 m by 100 m, in a map of their own."""
    points = np.random.default_rng(0).uniform(0.0, 100.0, (60, 2))
    memories = [
        {"time_ns": 0, "label": LABELS[n % len(LABELS)], "position": [x, y, 0.0], "map_id": "park"}
        for n, (x, y) in enumerate(points.tolist())
    ]
    assert client.post("/api/memories", {"memories": memories}).status_code == 200
    return points


def scan(points: np.ndarray) -> dict[str, Any]:
    """What a robot at (50, 50) that looks along +x sees."""
    rows = [n for n, place in enumerate(points.tolist()) if math.dist(place, (50.0, 50.0)) < 30.0]
    boxes = [[*(points[n] - 50.0).tolist(), 0.0, 1.0, 1.0, 1.0, 0.0] for n in rows]
    labels = [LABELS[n % len(LABELS)] for n in rows]
    return {"boxes": boxes, "scores": [1.0] * len(rows), "labels": labels}


def test_a_scan_is_located_or_refused(client: Any, places: np.ndarray) -> None:
    found = client.post("/api/locate", {"detections": scan(places), "map_id": "park"})
    assert found.status_code == 200, found.text
    assert found.json()["pose"]["position"][:2] == pytest.approx((50.0, 50.0), abs=0.1)
    assert found.json()["sentence"].startswith("At (50.0, 50.0) in map park")
    other = np.random.default_rng(9).uniform(0.0, 100.0, (60, 2))
    refused = client.post("/api/locate", {"detections": scan(other), "map_id": "park"}).json()
    assert refused["pose"] is None
    assert refused["verdict"] in ("ambiguous", "unknown")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"detections": {"boxes": []}}, "detections"),
        ({"detections": {"boxes": [], "scores": [], "labels": []}, "map_id": "moon"}, "map_id"),
        (
            {"detections": {"boxes": [], "scores": [], "labels": []}, "least_probability": 2.0},
            "least_probability",
        ),
    ],
)
def test_mistakes_are_named(client: Any, body: dict[str, Any], field: str) -> None:
    refused = client.post("/api/locate", body)
    assert refused.status_code == 422, refused.text
    assert refused.json()["error"]["field"] == field
