"""Tokens of scenes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.encode.tokens import STRUCTURE, detection_tokens, structure_tokens


def wall(rng: np.random.Generator, count: int = 200) -> np.ndarray:
    """A wall of 3 m at x = 10 along y, from -2 to 2, and flat ground in front of it."""
    y, z = rng.uniform(0.2, 3.8, count), rng.uniform(-1.7, 1.3, count)
    standing = np.column_stack([np.full(count, 10.0), y, z])
    flat = np.column_stack([rng.uniform(0, 7.9, count), rng.uniform(0, 3.9, count), np.full(count, -1.7)])
    return np.concatenate([standing, flat])


def test_a_wall_is_one_token_with_its_direction_and_the_ground_none() -> None:
    tokens = structure_tokens(wall(np.random.default_rng(0)))
    assert tokens.labels == (STRUCTURE,)
    x, y, _z, length, width, height, yaw = tokens.boxes[0]
    assert (x, y) == (pytest.approx(10.0, abs=1e-3), pytest.approx(2.0, abs=0.2))
    assert yaw == pytest.approx(np.pi / 2, abs=1e-3)
    assert length > 1.5
    assert width == pytest.approx(0.0, abs=1e-3)
    assert height == pytest.approx(3.0, abs=0.1)
    assert 0.9 < tokens.scores[0] <= 1.0


def test_moments_are_those_of_the_points_above_the_ground() -> None:
    rng = np.random.default_rng(1)
    points = np.column_stack([rng.uniform(4.1, 7.9, (60, 2)), rng.uniform(0, 2, 60)])
    above = points[points[:, 2] > points[:, 2].min() + 0.25]
    token = structure_tokens(points).boxes[0]
    np.testing.assert_allclose(token[:3], above.mean(axis=0), rtol=1e-5)
    values, vectors = np.linalg.eigh(np.cov(above[:, :2].T, bias=True))
    np.testing.assert_allclose(token[3:5], 2 * np.sqrt(values[::-1]), rtol=1e-4)
    np.testing.assert_allclose(abs(vectors[:, 1] @ [np.cos(token[6]), np.sin(token[6])]), 1.0, rtol=1e-5)


@given(st.integers(0, 2**31), st.integers(0, 80))
@settings(max_examples=25)
def test_the_order_of_points_does_not_matter(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.uniform(-30, 30, (count, 3)) * [1, 1, 0.1]
    one = structure_tokens(points, least_points=1)
    other = structure_tokens(points[rng.permutation(count)], least_points=1)
    np.testing.assert_array_equal(one.boxes, other.boxes)
    np.testing.assert_array_equal(one.scores, other.scores)


def test_the_nearest_columns_are_kept_and_far_ones_left_out() -> None:
    rng = np.random.default_rng(2)
    centres = np.array([[2.0, 2.0], [14.0, 2.0], [34.0, 2.0], [90.0, 2.0]])
    points = np.concatenate(
        [np.column_stack([c + rng.normal(0, 0.3, (30, 2)), rng.uniform(0, 2, 30)]) for c in centres]
    )
    assert len(structure_tokens(points)) == 3
    assert structure_tokens(points, most=2).boxes[:, 0] == pytest.approx([2, 14], abs=0.5)


def test_no_points_no_tokens() -> None:
    assert len(structure_tokens(np.zeros((0, 4)))) == 0


def test_sets_are_joined_and_taken_from() -> None:
    one = detection_tokens([[1, 2, 3, 4, 2, 1, 0.5]], ["Car"])
    both = one + detection_tokens(np.ones((1, 7)), ["Van"], [0.5])
    assert both.labels == ("Car", "Van")
    assert both.scores.tolist() == [1.0, 0.5]
    back = both.take([1, 0])
    assert back.labels == ("Van", "Car")
    assert back.boxes[1, 6] == 0.5


@pytest.mark.parametrize(
    ("boxes", "labels", "scores", "words"),
    [
        (np.zeros((2, 7)), ["Car"], [1, 1], "as many"),
        ([[0, 0, np.nan, 1, 1, 1, 0]], ["Car"], [1], "finite"),
        ([[0, 0, 0, -1, 1, 1, 0]], ["Car"], [1], "negative"),
    ],
)
def test_bad_tokens(boxes: list[list[float]], labels: list[str], scores: list[float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        detection_tokens(boxes, labels, scores)


@pytest.mark.parametrize(
    ("points", "options", "words"),
    [
        (np.zeros(3), {}, "shape"),
        (np.zeros((3, 2)), {}, "shape"),
        (np.full((3, 3), np.inf), {}, "finite"),
        (np.zeros((3, 3)), {"cell_m": 0}, "positive"),
    ],
)
def test_bad_points(points: np.ndarray, options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        structure_tokens(points, **options)  # type: ignore[arg-type]
