"""Re-identification: average precision and recall@1 by hand, and which answers count."""

from __future__ import annotations

import numpy as np
import pytest

from perception.evaluate.retrieval import retrieval, size_distances, vector_distances

SCENE = np.array(["a"] * 4)
TIMES = np.arange(4.0)


def line(*places: float) -> np.ndarray:
    at = np.array(places, np.float32)
    return np.abs(at[:, None] - at[None])


def test_a_small_case_by_hand() -> None:
    # From 0: 1 (wrong), 3 (right). From 1: 0 (wrong), 6 (right). 3: 1 (wrong), 0 (right). 6: 3, 1 (right).
    found = retrieval(line(0, 1, 3, 6), np.array(["x", "y", "x", "y"]), SCENE, TIMES)
    precisions = [1 / 2, 1 / 3, 1 / 2, 1 / 2]
    assert found.mean_ap == pytest.approx(np.mean(precisions))
    assert (found.recall_at_1, found.questions) == (0.0, 4)
    assert found.chance == pytest.approx(1 / 3)
    perfect = retrieval(line(0, 5, 1, 6), np.array(["x", "y", "x", "y"]), SCENE, TIMES)
    assert (perfect.mean_ap, perfect.recall_at_1) == (1.0, 1.0)


def test_which_answers_count() -> None:
    objects = np.array(["x", "y", "x", "y"])
    # In another scene, of another class, or at almost the same time.
    assert retrieval(line(0, 1, 3, 6), objects, np.array(["a", "a", "b", "b"]), TIMES).questions == 0
    assert retrieval(line(0, 1, 3, 6), objects, SCENE, TIMES, np.array([0, 0, 1, 1])).questions == 0
    assert retrieval(line(0, 1, 3, 6), objects, SCENE, 0.1 * TIMES).questions == 0
    later = retrieval(line(0, 1, 3, 6), objects, SCENE, TIMES, apart_s=2.0)
    # The first and the last have an answer of each kind that is two seconds away.
    assert later.questions == 2
    alone = retrieval(line(0, 1), np.array(["x", "x"]), SCENE[:2], TIMES[:2])
    assert alone.questions == 0
    assert np.isnan(alone.mean_ap)
    assert retrieval(np.zeros((0, 0), np.float32), objects[:0], SCENE[:0], TIMES[:0]).questions == 0


def test_distances() -> None:
    vectors = np.eye(3, dtype=np.float32)
    np.testing.assert_allclose(vector_distances(vectors), 1 - np.eye(3))
    boxes = np.ones((2, 7), np.float32)
    boxes[1, 3:6] = np.e
    np.testing.assert_allclose(size_distances(boxes), [[0, np.sqrt(3)], [np.sqrt(3), 0]], rtol=1e-6)
