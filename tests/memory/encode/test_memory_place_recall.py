"""Recall of places."""

from __future__ import annotations

import numpy as np
import pytest

from memory.encode.recall import place_recall


def loops(count: int = 20) -> np.ndarray:
    """Positions on a line, 0.3 m apart."""
    return np.column_stack([0.3 * np.arange(count), np.zeros(count)])


def test_matches_by_hand() -> None:
    positions = loops(10)
    vectors = np.eye(10)
    vectors[4] = vectors[3]  # 0.3 m off: right
    vectors[9] = vectors[0]  # 2.7 m off: wrong
    found = place_recall(positions, vectors)
    assert (found.recall, found.queries, found.answerable) == (0.5, 2, 2)
    assert found.distance_m == pytest.approx([0.3, 2.7])
    assert found.to_json()["recall_at_1"] == 0.5
    assert place_recall(positions, vectors, 0.2).answerable == 0


def test_poses_positions_and_lengths_of_vectors_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20, 4))
    positions = np.column_stack([loops(), np.zeros(20)])
    poses = np.tile(np.eye(4), (20, 1, 1))
    poses[:, :3, 3] = positions
    scaled = vectors * rng.uniform(0.5, 2, (20, 1))
    assert place_recall(poses, scaled).recall == place_recall(positions, vectors).recall


def test_a_gap_leaves_out_neighbours_in_time() -> None:
    positions = np.concatenate([loops(10), loops(10)])
    vectors = np.tile(np.cos(np.arange(10)[:, None] * 0.3 + np.arange(2) * np.pi / 2), (2, 1))
    near, far = place_recall(positions, vectors), place_recall(positions, vectors, gap=5)
    assert near.queries == far.queries == 4
    assert far.recall == 1.0
    only = place_recall(loops(10), np.eye(10), gap=9)
    assert only.answerable == 0


@pytest.mark.parametrize(
    ("poses", "vectors", "options", "words"),
    [
        (np.zeros((10, 5)), np.zeros((10, 3)), {}, "poses"),
        (np.zeros((10, 3)), np.zeros((9, 3)), {}, "vectors"),
        (np.full((10, 3), np.nan), np.zeros((10, 3)), {}, "finite"),
        (np.zeros((3, 3)), np.zeros((3, 3)), {}, "every"),
        (np.zeros((10, 3)), np.zeros((10, 3)), {"every": 1}, "every"),
    ],
)
def test_bad_input(poses: np.ndarray, vectors: np.ndarray, options: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        place_recall(poses, vectors, **options)  # type: ignore[arg-type]
