from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread
from token_masks import Masked, masked

from sparse_core.attention.patterns.builders import bigbird, full, local_window
from sparse_core.attention.patterns.masks import from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.patterns.picture import pattern_picture, pattern_raster


@settings(max_examples=30)
@given(case=masked(), pixels=st.integers(1, 200))
def test_raster_is_a_share_in_each_pixel(case: Masked, pixels: int) -> None:
    drawn = pattern_raster(case.pattern(), pixels=pixels)
    mask = case.array if case.array.ndim == 3 else case.array[None]
    side = drawn.side
    assert side % case.block_size == 0 or case.block_size % side == 0
    height, width = drawn.share.shape
    assert max(height, width) <= pixels
    assert (height, width) == tuple(-(-size // side) for size in mask.shape[1:])
    for y in range(height):
        for x in range(width):
            window = mask[:, y * side : (y + 1) * side, x * side : (x + 1) * side]
            assert float(drawn.share[y, x]) == pytest.approx(window.mean())


def test_pixels_are_tokens_where_they_fit() -> None:
    assert pattern_raster(local_window(100)).side == 1
    assert pattern_raster(local_window(1000)).side == 2
    assert pattern_raster(local_window(65536)).side == 128
    with pytest.raises(ValueError, match="pixels must be at least 1"):
        pattern_raster(full(10), pixels=0)


def test_long_patterns_are_counted_exactly() -> None:
    pattern = bigbird(65521, heads=2)
    drawn = pattern_raster(pattern)
    sizes = (65521 - torch.arange(drawn.share.shape[0]) * drawn.side).clamp(max=drawn.side)
    pairs = (drawn.share * sizes[:, None] * sizes).sum() * 2
    assert float(pairs) == pytest.approx(pattern.pairs, rel=1e-12)


def dark(path: Path) -> np.ndarray:
    """Pixels of the picture that are clearly not white: bool (height, width)."""
    found: np.ndarray = imread(path)[:, :, :3].min(axis=2) < 0.5
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        bigbird(3000, heads=3),
        bigbird(20, key_length=5000),
        from_token_mask(torch.zeros(30, 40, dtype=torch.bool), 16),
    ],
    ids=["heads", "wide", "empty"],
)
def test_pictures_are_drawn(pattern: BlockPattern, tmp_path: Path) -> None:
    path = pattern.picture(tmp_path / "pattern.png")
    assert path == tmp_path / "pattern.png"
    assert imread(path).shape[0] > 600
    again = pattern_picture(pattern, str(tmp_path / "again.png"))
    assert again.read_bytes() == path.read_bytes()
    titled = pattern_picture(pattern, tmp_path / "titled.png", title="another title")
    assert titled.read_bytes() != path.read_bytes()


def test_pairs_are_dark_where_they_are(tmp_path: Path) -> None:
    corner = torch.zeros(40, 40, dtype=torch.bool)
    corner[:20, 20:] = True
    found = dark(from_token_mask(corner, 16).picture(tmp_path / "p.png", title=" "))
    rows, columns = found.nonzero()
    # Text aside, the dark part is one square; its corners are the ends of the densest rows and columns.
    dense_rows = (found.sum(axis=1) > 0.3 * found.shape[1]).nonzero()[0]
    dense_columns = (found.sum(axis=0) > 0.3 * found.shape[0]).nonzero()[0]
    assert found[np.ix_(dense_rows, dense_columns)].mean() > 0.99
    assert dense_rows.mean() < 0.5 * found.shape[0] < dense_columns.mean() * found.shape[0] / found.shape[1]
    assert len(rows) == len(columns) > 0
