"""Bit packing and combinatorial positions against plain Python."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_core.nm.packing.bits import pack_bits, packed_bytes, unpack_bits
from sparse_core.nm.packing.positions import (
    choices_of,
    index_bits,
    index_row_bytes,
    pack_positions,
    rank,
    unpack_positions,
    unrank,
)
from sparse_core.nm.pattern import NMPattern


@settings(max_examples=60)
@given(
    bits=st.integers(0, 40),
    rows=st.integers(0, 4),
    count=st.integers(0, 19),
    seed=st.integers(0, 1000),
)
def test_numbers_come_back_and_lie_where_the_format_says(bits: int, rows: int, count: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(2**bits, (rows, count), generator=generator)
    packed = pack_bits(numbers, bits)
    assert packed.shape == (rows, packed_bytes(count, bits))
    assert torch.equal(unpack_bits(packed, count, bits).long(), numbers)
    for row, stored in zip(numbers.tolist(), packed.tolist(), strict=True):
        whole = sum(number << (place * bits) for place, number in enumerate(row))
        assert bytes(stored) == whole.to_bytes(len(stored), "little")


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="numbers of 3 bits go from 0 to 7, got 1 to 8"):
        pack_bits(torch.tensor([[1, 8]]), 3)
    with pytest.raises(ValueError, match="rows of 2 bytes"):
        unpack_bits(torch.zeros((1, 3), dtype=torch.uint8), 4, 4)
    with pytest.raises(ValueError, match="bits must be 0 to 62"):
        pack_bits(torch.zeros((1, 1)), 63)


@pytest.mark.parametrize(
    "pattern",
    [
        NMPattern(1, 2),
        NMPattern(2, 4),
        NMPattern(1, 4),
        NMPattern(3, 4),
        NMPattern(2, 8),
        NMPattern(4, 8),
        NMPattern(5, 10),
    ],
)
def test_every_choice_has_its_own_number(pattern: NMPattern) -> None:
    choices = sorted(itertools.combinations(range(pattern.m), pattern.n), key=lambda row: row[::-1])
    index = torch.tensor(choices, dtype=torch.uint8)
    assert rank(index, pattern).tolist() == list(range(math.comb(pattern.m, pattern.n)))
    assert torch.equal(choices_of(pattern), index)
    assert torch.equal(unrank(torch.arange(len(index)), pattern), index)


@settings(max_examples=40)
@given(m=st.integers(1, 66), share=st.floats(0, 1), groups=st.integers(1, 5), seed=st.integers(0, 1000))
def test_positions_come_back(m: int, share: float, groups: int, seed: int) -> None:
    n = max(1, round(share * m))
    pattern = NMPattern(n, m)
    generator = torch.Generator().manual_seed(seed)
    index = torch.rand((3, groups, m), generator=generator).topk(n).indices.sort().values.to(torch.uint8)
    for coding in ("combinatorial", "slots"):
        if coding == "combinatorial" and pattern.index_bits > 62:
            with pytest.raises(ValueError, match="use index='slots'"):
                pack_positions(index, pattern, coding)
            continue
        packed = pack_positions(index, pattern, coding)
        assert packed.shape == (3, index_row_bytes(groups, pattern, coding))
        assert torch.equal(unpack_positions(packed, groups, pattern, coding), index)


def test_two_four_takes_three_bits_a_group() -> None:
    assert index_bits(NMPattern(2, 4), "combinatorial") == 3
    assert index_bits(NMPattern(2, 4), "slots") == 4
    assert index_row_bytes(32, NMPattern(2, 4), "combinatorial") == 12


def test_numbers_that_are_no_choice_are_damage() -> None:
    with pytest.raises(ValueError, match="6 choices per group, got number 7"):
        unpack_positions(torch.tensor([[7]], dtype=torch.uint8), 1, NMPattern(2, 4), "combinatorial")
    with pytest.raises(ValueError, match="not a choice of 2 of 4"):
        unpack_positions(torch.tensor([[0]], dtype=torch.uint8), 1, NMPattern(2, 4), "slots")
    with pytest.raises(ValueError, match="must rise"):
        pack_positions(torch.tensor([[[2, 1]]], dtype=torch.uint8), NMPattern(2, 4))
