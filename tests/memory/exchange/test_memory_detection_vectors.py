"""Vectors, poses, times and places of the lines of ``detections.jsonl``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory.encode import SceneEncoder, column_tokens, detection_tokens
from memory.exchange.detections import DetectionOptions, embedding_dim, memories_from_frame
from memory.exchange.poses import Pose, Poses
from memory.exchange.scenes import Scenes
from perception.vectors import packed

ROWS = np.eye(3, 8, dtype=np.float32)
COLUMNS = np.array([[6, 2, 0, 1, 0.5, 2, 0.5, 0.9], [12, -8, 0, 3, 0.5, 2, 1, 0.5]], np.float32)
FRAME: dict[str, Any] = {
    "frame": "a",
    "timestamp_ns": 50,
    "boxes": [[10, 2, -1, 4, 1.6, 1.5, 0.3], [5, 0, -1, 0.8, 0.6, 1.7, 3], [20, 0, 0, 4, 2, 2, 0]],
    "scores": [0.9, 0.2, 0.8],
    "labels": ["Car", "Pedestrian", "Car"],
    "least_scores": {"Pedestrian": 0.5},
    "embeddings": packed(ROWS),
    "encoder": "small@1",
}
MATRIX = [[0.0, -1.0, 0.0, 5.0], [1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 2.0]]
POSED = FRAME | {"pose": {"map_from_lidar": MATRIX, "map_id": "yard"}, "structure": packed(COLUMNS)}


def test_each_box_has_its_own_vector() -> None:
    first, second = memories_from_frame(FRAME, 0, DetectionOptions())
    np.testing.assert_array_equal([first.embedding, second.embedding], ROWS[[0, 2]])
    assert "near" not in first.caption
    beside, _ = memories_from_frame(FRAME, 0, DetectionOptions(encoder="small"))
    assert beside.embedding is None
    np.testing.assert_array_equal(beside.embeddings["small"], ROWS[0])
    bare, _ = memories_from_frame(FRAME, 0, DetectionOptions(encoder=None))
    assert (bare.embedding, bare.embeddings) == (None, {})
    assert (embedding_dim(FRAME), embedding_dim({})) == (8, None)
    with pytest.raises(ValueError, match="embeddings must have 3 rows"):
        memories_from_frame(FRAME | {"embeddings": packed(ROWS[:2])}, 0, DetectionOptions())


def test_a_place_is_the_sensors_own_with_the_vector_of_what_stands_around() -> None:
    *objects, place = memories_from_frame(POSED, 0, DetectionOptions(), Scenes())
    assert [memory.kind for memory in objects] == ["object", "object"]
    assert objects[0].payload["seen_from"] == pytest.approx([5.0, 1.0, math.pi / 2])
    assert (place.kind, place.map_id, place.time_ns) == ("place", "yard", 50)
    assert (*place.position, place.yaw) == pytest.approx((5.0, 1.0, 2.0, math.pi / 2))
    assert place.caption == "place with 2 cars in view"
    half = COLUMNS.astype(np.float16).astype(np.float32)
    boxes = np.array(FRAME["boxes"])[[0, 2]]
    tokens = detection_tokens(boxes, ["Car", "Car"], [0.9, 0.8]) + column_tokens(half[:, :7], half[:, 7])
    (expected,) = SceneEncoder.pretrained().encode([tokens])
    np.testing.assert_array_equal(place.embeddings["scene-encoder"], expected)


def test_a_place_by_another_encoder() -> None:
    said = {"place": packed(ROWS[:1]) | {"encoder": "depth-encoder"}, "boxes": [], "scores": [], "labels": []}
    (place,) = memories_from_frame(POSED | said | {"embeddings": None}, 0, DetectionOptions(), Scenes())
    np.testing.assert_array_equal(place.embeddings["depth-encoder"], ROWS[0])


def test_places_are_apart() -> None:
    options, scenes = DetectionOptions(), Scenes()

    def placed(x: float, yaw: float, time_ns: int) -> bool:
        turn = [[math.cos(yaw), -math.sin(yaw), 0, x], [math.sin(yaw), math.cos(yaw), 0, 0], [0, 0, 1, 0]]
        frame = POSED | {"pose": {"map_from_lidar": turn}, "timestamp_ns": time_ns}
        return memories_from_frame(frame, 0, options, scenes)[-1].kind == "place"

    second = 10**9
    looks = [
        (0, 0, 0),
        (0.9, 0, 1),
        (1.1, 0, 2),
        (1.1, 0.4, 3),
        (1.1, 0.6, 4),
        (1.1, 0.6, 63),
        (1.1, 0.6, 64),
    ]
    assert [placed(x, yaw, second * at) for x, yaw, at in looks] == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
    ]


def test_no_place_without_a_pose_or_where_none_is_wanted() -> None:
    for frame, options in (
        ({name: value for name, value in POSED.items() if name != "pose"}, DetectionOptions()),
        (POSED, DetectionOptions(places=False)),
        ({name: value for name, value in POSED.items() if name != "structure"}, DetectionOptions()),
    ):
        assert {memory.kind for memory in memories_from_frame(frame, 0, options, Scenes())} == {"object"}


def test_poses_that_are_given_count_over_those_of_the_file() -> None:
    given = Poses(Path("poses.txt"), [Pose()], None)
    memory, *_ = memories_from_frame(POSED, 0, DetectionOptions(poses=given, map_id="street"))
    assert (memory.map_id, memory.position) == ("street", (10.0, 2.0, -1.0))


def test_the_time_of_detection_comes_last() -> None:
    silent = POSED | {"timestamp_ns": None, "detected_ns": 9}
    assert memories_from_frame(silent, 0, DetectionOptions())[0].time_ns == 9
    assert memories_from_frame(silent, 2, DetectionOptions(start_ns=3, rate_hz=1))[0].time_ns == 2 * 10**9 + 3
    told = silent | {"pose": POSED["pose"] | {"time_ns": 7}}
    assert memories_from_frame(told, 0, DetectionOptions())[0].time_ns == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pose": MATRIX}, "pose must be an object with map_from_lidar"),
        ({"pose": {"map_from_lidar": MATRIX[:2]}}, "three rows of four numbers"),
        ({"pose": {"map_from_lidar": [[2.0, 0, 0, 0], *MATRIX[1:]]}}, "not a rotation"),
        ({"structure": packed(COLUMNS[:, :7])}, "structure: dim must be 8, a box and a score, got 7"),
        ({"place": packed(ROWS)}, "place must have 1 rows"),
        ({"place": packed(ROWS[:1])}, "place encoder must be text"),
        ({"embeddings": [1.0]}, "embeddings must be an object with format"),
        ({"detected_ns": 1.5, "timestamp_ns": None}, "detected_ns must be an integer"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        memories_from_frame(POSED | change, 0, DetectionOptions(), Scenes())
