"""Tests of standing columns."""

from __future__ import annotations

import numpy as np
import pytest
from background_library import with_and_without

from sparse_core.columns.api import standing_columns
from sparse_core.columns.compiled import COLUMNS
from sparse_core.kernels import native


def pole(x: float, y: float, height_m: float, count: int = 40) -> np.ndarray:
    rng = np.random.default_rng(int(abs(x * 7 + y)))
    around = rng.normal(0.0, 0.1, (count, 3)) + np.array([x, y, 0.0])
    around[:, 2] = np.linspace(-1.7, height_m - 1.7, count)
    return around


def test_columns_come_nearest_first_for_any_order_of_points() -> None:
    points = np.concatenate([pole(-21, 2, 2.0), pole(6, -2, 3.0), pole(14, 2, 0.3), pole(60, 2, 3.0)])
    found = standing_columns(points)
    assert found.boxes.shape == (2, 7)
    assert (found.boxes.dtype, found.scores.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(found.boxes[:, :2], [[6, -2], [-21, 2]], atol=0.2)
    np.testing.assert_allclose(found.boxes[:, 5], [3.0, 2.0], atol=1e-6)
    other = standing_columns(points[np.random.default_rng(1).permutation(len(points))])
    np.testing.assert_array_equal(found.boxes, other.boxes)
    np.testing.assert_array_equal(found.scores, other.scores)


@pytest.mark.parametrize("step", [0.0, 0.001, 0.5])
def test_float32_in_any_order_equals_float64(step: float) -> None:
    rng = np.random.default_rng(3)
    points = rng.normal(0.0, [20.0, 20.0, 1.0], (4000, 3)).astype(np.float32)
    if step:
        # Many points share coordinates, and some are equal.
        points = (np.round(points / step) * step).astype(np.float32)
    points[:5] = -0.0
    found = standing_columns(points)
    double = standing_columns(points.astype(np.float64))
    shuffled = standing_columns(points[rng.permutation(len(points))])
    for other in (double, shuffled):
        np.testing.assert_array_equal(found.boxes, other.boxes)
        np.testing.assert_array_equal(found.scores, other.scores)
    assert len(found.boxes) > 20


@pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("step", [0.0, 0.001, 0.5])
@pytest.mark.parametrize("cell_m", [4.0, 3.3])
def test_compiled_columns_equal_those_of_arrays(step: float, cell_m: float) -> None:
    points = np.random.default_rng(4).normal(0.0, [30.0, 30.0, 1.0, 1.0], (6000, 4)).astype(np.float32)
    if step:
        points = (np.round(points / step) * step).astype(np.float32)
    points[:9] = -0.0
    points[9] = 1e30
    found, _ = with_and_without(COLUMNS, lambda: list(standing_columns(points, cell_m=cell_m)))
    assert len(found[0]) == 96
    points[5, 1] = np.nan
    with pytest.raises(ValueError, match="points must be finite"):
        standing_columns(points)


def test_any_number_of_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.concatenate([pole(-21, 2, 2.0), pole(6, -2, 3.0), pole(400, 2, 3.0)])
    assert standing_columns(points, cell_m=0.5, range_m=1000.0).boxes[-1, 0] > 399.0
    few = standing_columns(points)
    for implementation in ("compiled", "reference"):
        monkeypatch.setattr(f"sparse_core.columns.{implementation}.FEW_CELLS", 0)
    np.testing.assert_array_equal(few.boxes, standing_columns(points).boxes)


def test_no_point_and_one_point() -> None:
    for points in (np.zeros((0, 4)), np.zeros((1, 3)), np.full((5, 3), 1e9)):
        assert standing_columns(points).boxes.shape == (0, 7)
    with pytest.raises(ValueError, match="points must be finite"):
        standing_columns(np.full((2, 3), np.nan))
