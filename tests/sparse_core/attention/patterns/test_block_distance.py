from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from sparse_core.attention.patterns.distance import from_distance
from sparse_core.attention.patterns.masks import from_token_mask


def positions(count: int, seed: int, *, dimensions: int = 3, spread: float = 1.0) -> np.ndarray:
    """Points along a path, so that neighbours in the list are neighbours in space."""
    steps = np.random.default_rng(seed).normal(0, spread, (count, dimensions))
    path: np.ndarray = steps.cumsum(axis=0)
    return path


def near(queries: np.ndarray, keys: np.ndarray, radius: float) -> np.ndarray:
    """Bool (queries, keys) by the definition."""
    apart = queries[:, None].astype(np.float64) - keys[None].astype(np.float64)
    close: np.ndarray = (apart**2).sum(axis=2) <= radius**2
    return close


@settings(max_examples=60)
@given(
    queries=st.integers(1, 150),
    keys=st.none() | st.integers(1, 150),
    size=st.sampled_from([16, 32, 48, 128]),
    dimensions=st.integers(1, 4),
    radius=st.floats(0.0, 30.0),
    seed=st.integers(0, 9999),
)
def test_pairs_within_the_radius(
    queries: int, keys: int | None, size: int, dimensions: int, radius: float, seed: int
) -> None:
    first = positions(queries, seed, dimensions=dimensions)
    second = None if keys is None else positions(keys, seed + 1, dimensions=dimensions)
    pattern = from_distance(
        torch.from_numpy(first),
        None if second is None else torch.from_numpy(second),
        radius=radius,
        block_size=size,
    ).validate()
    expected = torch.from_numpy(near(first, first if second is None else second, radius))
    assert torch.equal(pattern.to_token_mask(), expected)
    assert pattern == from_token_mask(expected, size)


def test_the_boundary_is_included() -> None:
    # On an integer grid, many distances equal the radius, of boxes and of tokens.
    grid = np.stack(np.meshgrid(*[np.arange(6.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    for radius in (0.0, 1.0, 2.0, 3.0, 5.0):
        pattern = from_distance(torch.from_numpy(grid).float(), radius=radius, block_size=16)
        assert np.array_equal(pattern.to_token_mask().numpy(), near(grid, grid, radius))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types(dtype: torch.dtype) -> None:
    points = torch.from_numpy(positions(200, 3)).to(dtype)
    pattern = from_distance(points, radius=2.0, block_size=16)
    expected = near(points.double().numpy(), points.double().numpy(), 2.0)
    assert np.array_equal(pattern.to_token_mask().numpy(), expected)


def test_far_and_near_blocks_have_no_masks() -> None:
    clusters = torch.zeros(128, 3)
    clusters[64:] = 100.0
    pattern = from_distance(clusters, radius=1.0, block_size=64)
    assert pattern.columns.tolist() == [0, 1]
    assert pattern.partial.tolist() == [-1, -1]
    assert from_distance(clusters, clusters + 500, radius=1.0).blocks == 0


@pytest.mark.parametrize("size", [16, 64])
def test_long_clouds(size: int) -> None:
    numbers = np.random.default_rng(0)
    points = numbers.random((16384 + 7, 3))
    cells = np.floor(points * 16).astype(np.int64)
    points = points[np.lexsort(cells.T)]
    pattern = from_distance(torch.from_numpy(points), radius=0.02, block_size=size)
    tree = cKDTree(points)
    assert pattern.pairs == tree.count_neighbors(tree, 0.02)
    assert pattern.block_density < 0.2


@pytest.mark.gpu
def test_distance_on_a_device(cuda: torch.device) -> None:
    points = torch.from_numpy(positions(1000, 4)).float()
    made = from_distance(points.to(cuda), radius=3.0)
    assert made.device.type == "cuda"
    assert made.to("cpu") == from_distance(points, radius=3.0)


def test_bad_positions() -> None:
    points = torch.zeros(5, 3)
    for radius in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="radius must be a number of at least 0"):
            from_distance(points, radius=radius)
    with pytest.raises(TypeError, match="query_positions must be floating point"):
        from_distance(points.long(), radius=1.0)
    with pytest.raises(ValueError, match=r"key_positions must have shape \(tokens, dimensions\), got \(3,\)"):
        from_distance(points, torch.zeros(3), radius=1.0)
    with pytest.raises(ValueError, match=r"query_positions must have shape .* got \(0, 3\)"):
        from_distance(torch.zeros(0, 3), radius=1.0)
    with pytest.raises(ValueError, match="2 dimensions on cpu but query_positions have 3"):
        from_distance(points, torch.zeros(3, 2), radius=1.0)
    points[2, 1] = float("nan")
    with pytest.raises(ValueError, match="query_positions must be finite, token 2 is"):
        from_distance(points, radius=1.0)
    with pytest.raises(ValueError, match="block_size must be a multiple of 16"):
        from_distance(torch.zeros(5, 3), radius=1.0, block_size=20)


@pytest.mark.parametrize("lengths", [[5, 0, 60, 1, 40], [106], None])
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("size", [16, 32])
def test_sequences_with_global_tokens(lengths: list[int] | None, count: int, size: int) -> None:
    places = torch.from_numpy(positions(106, 1, dimensions=2))
    pattern = from_distance(places, radius=4.0, block_size=size, lengths=lengths, count=count)
    held = [106] if lengths is None else lengths
    number = torch.repeat_interleave(torch.arange(len(held)), torch.tensor(held))
    first = torch.tensor([place < count for length in held for place in range(length)])
    pairs = torch.from_numpy(near(places.numpy(), places.numpy(), 4.0)) | first | first[:, None]
    expected = pairs & (number == number[:, None])
    assert torch.equal(pattern.to_token_mask().reshape(106, 106), expected)


def test_sequences_that_do_not_fit() -> None:
    places = torch.rand(10, 2)
    with pytest.raises(ValueError, match="sum to the 10"):
        from_distance(places, radius=1.0, lengths=[3, 4])
    with pytest.raises(ValueError, match="sum to the 10"):
        from_distance(places, radius=1.0, lengths=[-1, 11])
    with pytest.raises(ValueError, match="count"):
        from_distance(places, radius=1.0, count=-1)
    with pytest.raises(ValueError, match="leave out key_positions"):
        from_distance(places, places, radius=1.0, count=1)
