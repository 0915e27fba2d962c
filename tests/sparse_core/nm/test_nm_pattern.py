"""Patterns: what is accepted, the bits they take, and weights as matrices."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sparse_core.nm.pattern import TWO_FOUR, Block, NMPattern, check_groups, weight_from_matrix, weight_matrix


@given(m=st.integers(1, 256), data=st.data())
def test_every_pattern_up_to_256_reads_back_as_written(m: int, data: st.DataObject) -> None:
    pattern = NMPattern(data.draw(st.integers(1, m)), m)
    assert NMPattern.parse(str(pattern)) == pattern
    assert NMPattern.parse(f"  {pattern.n} : {pattern.m}\t") == pattern
    assert pattern.density == pattern.n / m
    assert pattern.density + pattern.sparsity == 1


def test_two_of_four_is_the_default() -> None:
    assert NMPattern() == TWO_FOUR == NMPattern.parse("2:4")
    assert str(TWO_FOUR) == "2:4"
    assert hash(NMPattern(2, 4)) == hash(TWO_FOUR)
    assert NMPattern(2, 4, "channels_last") != TWO_FOUR


@pytest.mark.parametrize("text", ["", "2", "2:", ":4", "2:4:8", "2/4", "-2:4", "2.0:4", "two:four", "2:4x"])
def test_text_that_is_no_pattern(text: str) -> None:
    with pytest.raises(ValueError, match=r"written n:m, for example 2:4; got") as caught:
        NMPattern.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(("n", "m"), [(0, 4), (5, 4), (-1, 4), (1, 0), (1, 257), (257, 257)])
def test_numbers_that_are_no_pattern(n: int, m: int) -> None:
    with pytest.raises(ValueError, match=f"1 <= n <= m <= 256, got {n}:{m}"):
        NMPattern(n, m)


def test_zero_is_refused_in_text_too() -> None:
    with pytest.raises(ValueError, match="got 0:4"):
        NMPattern.parse("0:4")


def test_unknown_layout() -> None:
    with pytest.raises(ValueError, match=r"unfold, channels_last, got 'nhwc'"):
        NMPattern(2, 4, "nhwc")  # type: ignore[arg-type]


@pytest.mark.parametrize(("n", "m"), [(n, m) for m in range(1, 11) for n in range(1, m + 1)])
def test_bits_count_the_ways_to_choose(n: int, m: int) -> None:
    ways = sum(1 for _ in combinations(range(m), n))
    bits = NMPattern(n, m).index_bits
    assert 2**bits >= ways
    assert bits == 0 or 2 ** (bits - 1) < ways
    assert NMPattern(n, m).entropy_bits == pytest.approx(math.log2(ways))


def test_bits_of_large_patterns_are_exact() -> None:
    ways = math.comb(256, 128)
    assert 2 ** NMPattern(128, 256).index_bits >= ways > 2 ** (NMPattern(128, 256).index_bits - 1)
    assert NMPattern(128, 256).entropy_bits <= NMPattern(128, 256).index_bits


@pytest.mark.parametrize("size", [8, 16, 32, 64])
def test_blocks(size: int) -> None:
    block = Block(size, 0.75)
    assert block.density == 0.25
    assert str(block) == f"{size}x{size} blocks, 75% dropped"


@pytest.mark.parametrize("size", [0, 4, 12, 128, -8])
def test_block_sizes_that_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"8, 16, 32 or 64, got {size}"):
        Block(size)


@pytest.mark.parametrize("sparsity", [-0.1, 1.0, 2.0, math.nan])
def test_block_sparsity_out_of_range(sparsity: float) -> None:
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        Block(32, sparsity)


@pytest.mark.parametrize("layout", ["unfold", "channels_last"])
def test_convolution_as_a_product_with_its_unfolded_input(layout: str) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 3, 2, 4, generator=generator, dtype=torch.float64)
    image = torch.randn(1, 3, 6, 7, generator=generator, dtype=torch.float64)
    matrix = weight_matrix(weight, layout)
    patches = torch.nn.functional.unfold(image, (2, 4))[0]
    if layout == "channels_last":
        patches = patches.reshape(3, 8, -1).transpose(0, 1).reshape(24, -1)
    expected = torch.nn.functional.conv2d(image, weight)[0].reshape(5, -1)
    torch.testing.assert_close(matrix @ patches, expected)
    assert torch.equal(weight_from_matrix(matrix, tuple(weight.shape), layout), weight)


def test_linear_weight_is_its_own_matrix() -> None:
    weight = torch.randn(3, 8)
    assert weight_matrix(weight, "channels_last") is weight
    assert torch.equal(weight_from_matrix(weight, (3, 8), "channels_last"), weight)
    with pytest.raises(ValueError, match=r"first must be a Linear weight .* got shape \(3, 8, 1\)"):
        weight_matrix(weight[..., None], name="first")


def test_widths_that_are_not_whole_groups() -> None:
    check_groups(0, 4)
    check_groups(12, 4)
    with pytest.raises(ValueError, match=r"fc1 is 10, which is not divisible by m=4: pad it to 12"):
        check_groups(10, 4, name="fc1")
