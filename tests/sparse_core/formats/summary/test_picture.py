from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread
from sparse_matrices import Entries, entries

from sparse_core.formats import COO
from sparse_core.formats.generators import block_sparse, poisson_2d, power_law
from sparse_core.formats.summary.picture import raster, spy_picture, timing_picture


@settings(max_examples=40, deadline=None)
@given(case=entries(dtypes=[torch.float32]), pixels=st.integers(1, 14))
def test_raster_is_a_count_in_each_pixel(case: Entries, pixels: int) -> None:
    drawn = raster(case.coo(), pixels=pixels)
    pattern = np.zeros(case.shape)
    pattern[case.row.numpy(), case.col.numpy()] = 1
    height, width = drawn.share.shape
    assert height <= max(pixels, 1)
    assert width <= max(pixels, 1)
    for y in range(height):
        for x in range(width):
            window = pattern[y * drawn.rows : (y + 1) * drawn.rows, x * drawn.cols : (x + 1) * drawn.cols]
            assert float(drawn.share[y, x]) == pytest.approx(window.mean())
    assert height * drawn.rows >= case.shape[0]
    assert width * drawn.cols >= case.shape[1]


def dark(path: Path) -> np.ndarray:
    """Pixels of the picture that are clearly not white: bool (height, width)."""
    found: np.ndarray = imread(path)[:, :, :3].min(axis=2) < 0.5
    return found


@pytest.mark.parametrize(
    "matrix",
    [
        poisson_2d(5),
        power_law(900),
        block_sparse(30, 300, 8),
        COO.from_dense(torch.zeros(4, 5)),
        poisson_2d(1),
    ],
    ids=["small", "power law", "wide", "empty", "one entry"],
)
def test_spy_pictures_are_drawn(matrix: COO, tmp_path: Path) -> None:
    path = spy_picture(matrix, tmp_path / "spy.png", title="a title")
    assert path == tmp_path / "spy.png"
    assert imread(path).shape[0] > 600


def test_entries_are_dark_where_they_are(tmp_path: Path) -> None:
    corner = torch.zeros(20, 20)
    corner[:10, 10:] = 1
    full, nothing = (dark(spy_picture(COO.from_dense(m), tmp_path / "s.png")) for m in (corner, 0 * corner))
    rows, cols = (full & ~nothing).nonzero()
    # The upper right quarter: about a quarter of the frame, right of and above the middle.
    middle = (full.shape[0] / 2, full.shape[1] / 2)
    assert len(rows) > 40_000
    assert np.median(rows) < middle[0]
    assert np.median(cols) > middle[1]


def test_longer_bars_for_longer_times(tmp_path: Path) -> None:
    for times in ({"CSR": 1.0, "dense": 4.0}, {"CSR": 0.01, "ELL": 0.5, "dense": 40.0}):
        path = timing_picture(times, tmp_path / "bars.png", title="times", chosen="CSR", others=["dense"])
        picture = imread(path)[:, :, :3]
        chosen = np.abs(picture - np.array([0xD5, 0x5E, 0x00]) / 255).max(axis=2) < 0.02
        others = np.abs(picture - np.array([0xA3, 0xAD, 0xB8]) / 255).max(axis=2) < 0.02
        assert 0 < chosen.sum(axis=1).max() < others.sum(axis=1).max()
        assert chosen.nonzero()[0].mean() < others.nonzero()[0].mean()


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shape \(0, 0\) has no positions"):
        spy_picture(poisson_2d(0), tmp_path / "spy.png")
    with pytest.raises(ValueError, match="pixels must be at least 1"):
        raster(poisson_2d(2), pixels=0)
    for times in ({}, {"CSR": 0.0}, {"CSR": float("nan")}):
        with pytest.raises(ValueError, match="needs positive times"):
            timing_picture(times, tmp_path / "bars.png", title="times")
    assert list(tmp_path.iterdir()) == []
