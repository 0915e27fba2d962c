from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.attention.patterns.builders import (
    bigbird,
    full,
    global_tokens,
    local_window,
    random_blocks,
    strided,
)
from sparse_core.attention.patterns.masks import from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern

lengths = st.integers(1, 260)
key_lengths = st.none() | lengths
block_sizes = st.sampled_from([16, 32, 48, 64, 128])


def difference(length: int, key_length: int | None) -> np.ndarray:
    """Position of each query less position of each key."""
    behind: np.ndarray = np.arange(length)[:, None] - np.arange(key_length or length)
    return behind


def check(pattern: BlockPattern, expected: np.ndarray) -> None:
    """Check that the pattern equals that of the dense mask."""
    assert np.array_equal(pattern.validate().to_token_mask().numpy(), expected)
    assert pattern == from_token_mask(torch.from_numpy(expected), pattern.block_size)


@settings(max_examples=30)
@given(length=lengths, keys=key_lengths, size=block_sizes)
def test_full(length: int, keys: int | None, size: int) -> None:
    pattern = full(length, size, key_length=keys)
    check(pattern, np.ones((length, keys or length), dtype=bool))
    assert pattern.density == pattern.block_density == 1.0


@settings(max_examples=60)
@given(length=lengths, keys=key_lengths, size=block_sizes, window=st.integers(0, 300))
def test_local_window(length: int, keys: int | None, size: int, window: int) -> None:
    pattern = local_window(length, window, size, key_length=keys)
    check(pattern, np.abs(difference(length, keys)) <= window)


@settings(max_examples=60)
@given(length=lengths, keys=key_lengths, size=block_sizes, stride=st.integers(1, 300))
def test_strided(length: int, keys: int | None, size: int, stride: int) -> None:
    pattern = strided(length, stride, size, key_length=keys)
    check(pattern, difference(length, keys) % stride == 0)


@settings(max_examples=60)
@given(length=lengths, keys=key_lengths, size=block_sizes, count=st.integers(0, 300))
def test_global_tokens(length: int, keys: int | None, size: int, count: int) -> None:
    expected = np.zeros((length, keys or length), dtype=bool)
    expected[:count] = expected[:, :count] = True
    check(global_tokens(length, count, size, key_length=keys), expected)


@settings(max_examples=40)
@given(
    length=lengths,
    keys=key_lengths,
    size=block_sizes,
    density=st.floats(0.001, 1.0),
    heads=st.integers(1, 3),
    seed=st.integers(0, 2**40),
)
def test_random_blocks(
    length: int, keys: int | None, size: int, density: float, heads: int, seed: int
) -> None:
    pattern = random_blocks(length, density, size, heads=heads, seed=seed, key_length=keys).validate()
    wanted = max(1, round(density * pattern.block_columns))
    assert (pattern.row_lengths() == wanted).all()
    assert (pattern.partial == -1).all()
    same = random_blocks(length, None, size, blocks_per_row=wanted, heads=heads, seed=seed, key_length=keys)
    assert pattern == same


def test_a_stride_of_whole_blocks_spares_blocks() -> None:
    fits, straddles = (strided(2048, stride).block_density for stride in (256, 272))
    assert fits < 0.65 * straddles


def test_random_blocks_are_random() -> None:
    pattern = random_blocks(64 * 100, 0.1, heads=4, seed=7)
    assert pattern.block_density == pytest.approx(0.1)
    assert pattern != random_blocks(64 * 100, 0.1, heads=4, seed=8)
    mask = pattern.to_block_mask()
    assert not torch.equal(mask[0], mask[1])
    # 400 rows keep each of 100 columns 40 times, give or take 5 standard deviations of 6.
    uses = mask.sum(dim=(0, 1))
    assert uses.min() > 10
    assert uses.max() < 70
    assert random_blocks(100, 1.0, 16) == full(100, 16)
    assert random_blocks(100, None, 16, blocks_per_row=99) == full(100, 16)


@settings(max_examples=30)
@given(
    length=lengths,
    keys=key_lengths,
    size=block_sizes,
    window=st.integers(0, 40),
    count=st.integers(0, 40),
    random=st.integers(0, 3),
    heads=st.integers(1, 2),
)
def test_bigbird(
    length: int, keys: int | None, size: int, window: int, count: int, random: int, heads: int
) -> None:
    pattern = bigbird(length, window, count, random, size, heads=heads, seed=3, key_length=keys)
    expected = np.abs(difference(length, keys)) <= window
    expected[:count] = expected[:, :count] = True
    if random:
        chosen = random_blocks(
            length, None, size, blocks_per_row=random, heads=heads, seed=3, key_length=keys
        )
        expected = expected | chosen.to_token_mask().numpy()
    elif heads > 1:
        expected = np.stack([expected] * heads)
    check(pattern, expected)


def test_defaults() -> None:
    assert local_window(200) == local_window(200, 24, 64)
    assert global_tokens(200) == global_tokens(200, 3, 64)
    assert bigbird(200, block_size=64) == bigbird(200, 24, 3, 3, 64, seed=0)
    assert strided(300) == strided(300, 128, 64)
    assert full(200) == full(200, 64, key_length=200, device="cpu")


@pytest.mark.parametrize("length", [16384, 65536, 65521])
@pytest.mark.parametrize(
    ("build", "masks", "blocks"),
    [
        (local_window, 6, 4.0),
        (global_tokens, 6, 2.1),
        (bigbird, 20, 9.0),
        (lambda length: strided(length, 4096), 4, 40.0),
        (lambda length: random_blocks(length, blocks_per_row=8), 0, 8.0),
    ],
    ids=["window", "global", "bigbird", "strided", "random"],
)
def test_long_patterns_stay_small(
    length: int, build: Callable[[int], BlockPattern], masks: int, blocks: float
) -> None:
    pattern = build(length)
    assert len(pattern.token_masks) <= masks
    assert pattern.blocks <= blocks * pattern.block_rows
    # Check the first and the last queries by the rules.
    head, row, column = pattern.coordinates()
    assert int(head.max()) == 0
    assert {0, pattern.block_rows - 1} <= set(row.tolist())
    assert int(column.max()) == pattern.block_columns - 1


def test_counts_of_long_patterns() -> None:
    length, window, count = 65521, 24, 3
    assert local_window(length, window).pairs == length * (2 * window + 1) - window * (window + 1)
    assert global_tokens(length, count).pairs == 2 * count * length - count**2
    assert full(length).pairs == length**2
    assert full(length).causal().pairs == length * (length + 1) // 2
    stride = 1000
    ends = [length - distance for distance in range(stride, length, stride)]
    assert strided(length, stride).pairs == length + 2 * sum(ends)


@pytest.mark.gpu
def test_builders_on_a_device(cuda: torch.device) -> None:
    for build in (full, local_window, strided, global_tokens, bigbird):
        made = build(1000, key_length=777, device=cuda)  # type: ignore[operator]
        assert made.device.type == "cuda"
        assert made.to("cpu") == build(1000, key_length=777)  # type: ignore[operator]
    made = random_blocks(1000, 0.3, heads=2, device=cuda)
    assert made.to("cpu") == random_blocks(1000, 0.3, heads=2)


@pytest.mark.parametrize("size", [0, 8, 24, 144, 64.0, "64"])
def test_bad_block_sizes(size: object) -> None:
    for build in (full, local_window, strided, global_tokens, bigbird):
        with pytest.raises(ValueError, match="block_size must be a multiple of 16 from 16 to 128"):
            build(100, block_size=size)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: full(0), "query_length must be a whole number of at least 1, got 0"),
        (lambda: local_window(64, key_length=-3), "key_length must be a whole number of at least 1, got -3"),
        (lambda: bigbird(12.5), "query_length must be a whole number"),  # type: ignore[arg-type]
        (lambda: local_window(64, 1.5), "window must be a whole number of at least 0, got 1.5"),
        (lambda: strided(64, 2.0), "stride must be a whole number of at least 1, got 2.0"),
        (lambda: local_window(64, -1), "window must be a whole number of at least 0, got -1"),
        (lambda: strided(64, 0), "stride must be a whole number of at least 1, got 0"),
        (lambda: global_tokens(64, -1), "count must be a whole number of at least 0, got -1"),
        (lambda: random_blocks(64, 0.0), r"density must be in \(0, 1\], got 0.0"),
        (lambda: random_blocks(64, 1.01), r"density must be in \(0, 1\], got 1.01"),
        (lambda: random_blocks(64, float("nan")), r"density must be in \(0, 1\]"),
        (lambda: random_blocks(64, blocks_per_row=0), "blocks_per_row must be at least 1, got 0"),
        (lambda: random_blocks(64), "either density or blocks_per_row"),
        (lambda: random_blocks(64, 0.5, blocks_per_row=1), "either density or blocks_per_row"),
        (lambda: random_blocks(64, 0.5, heads=0), "heads must be a whole number of at least 1"),
        (lambda: bigbird(64, random=-1), "random must be at least 0, got -1"),
    ],
)
def test_bad_arguments(build: Callable[[], BlockPattern], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
