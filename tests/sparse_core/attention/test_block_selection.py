"""Tests of selected blocks: loops over rows, ties, causality, errors."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_attention import reference_attention
from torch import Tensor

from sparse_core.attention import best_blocks
from sparse_core.attention.api import sparse_attention
from sparse_core.attention.patterns.masks import from_block_mask
from sparse_core.attention.selection import dynamic_blocks, top_k_blocks


def block_means(rows: Tensor, size: int) -> np.ndarray:
    """(batch, heads, blocks, dim) in float64."""
    return np.stack([block.numpy().mean(axis=2) for block in rows.double().split(size, dim=2)], axis=2)


def block_scores(q: Tensor, k: Tensor, size: int) -> np.ndarray:
    """(batch, heads, block rows, block columns)."""
    group = q.shape[1] // k.shape[1]
    means = block_means(q, size), block_means(k, size).repeat(group, axis=1)
    return np.einsum("bhid,bhjd->bhij", *means)


def visible(grid: tuple[int, int, int], causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the blocks with an allowed pair, and those that also have a masked pair."""
    queries, keys, size = grid
    mask = np.ones((queries, keys), dtype=bool)
    if causal:
        mask = np.tril(mask, keys - queries)
    rows, columns = -(-queries // size), -(-keys // size)
    padding = (0, rows * size - queries), (0, columns * size - keys)
    blocks = [
        np.pad(pairs, padding).reshape(rows, size, columns, size).any(axis=(1, 3)) for pairs in (mask, ~mask)
    ]
    return blocks[0], blocks[0] & blocks[1]


def random_operands(
    heads: int, key_heads: int, queries: int, keys: int, *, batch: int = 1, seed: int = 0
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, heads, queries, 16, generator=generator, dtype=torch.float64)
    return q, torch.randn(batch, key_heads, keys, 16, generator=generator, dtype=torch.float64)


SIZES = {
    "queries": st.integers(1, 150),
    "keys": st.integers(1, 150),
    "size": st.sampled_from([16, 32]),
    "causal": st.booleans(),
    "batch": st.integers(1, 2),
    "share": st.sampled_from([0.01, 0.3, 0.5, 0.9, 1.0]),
    "seed": st.integers(0, 50),
}


@settings(max_examples=60)
@given(**SIZES, per_key_head=st.booleans())
def test_top_k_takes_the_best(
    queries: int, keys: int, size: int, causal: bool, batch: int, share: float, seed: int, per_key_head: bool
) -> None:
    q, k = random_operands(4, 2, queries, keys, batch=batch, seed=seed)
    pattern = top_k_blocks(q, k, share, block_size=size, causal=causal, per_key_head=per_key_head)
    scores = block_scores(q, k, size).mean(axis=0)
    if per_key_head:
        scores = scores.reshape(2, 2, *scores.shape[1:]).mean(axis=1).repeat(2, axis=0)
    seen, crossed = visible((queries, keys, size), causal)
    scores = np.where(crossed, np.inf, scores)
    expected = np.zeros(scores.shape, dtype=bool)
    for head, row in np.ndindex(scores.shape[:2]):
        columns = np.flatnonzero(seen[row])
        count = max(1, round(share * len(columns)), crossed[row].sum())
        best = columns[np.argsort(-scores[head, row, columns], kind="stable")[:count]]
        expected[head, row, best] = True
    blocks = torch.from_numpy(expected)
    wanted = from_block_mask(blocks, size, query_length=queries, key_length=keys)
    assert pattern.validate() == (wanted.causal() if causal else wanted)
    assert pattern.heads == 4


@settings(max_examples=60)
@given(**SIZES)
def test_dynamic_takes_the_fewest(
    queries: int, keys: int, size: int, causal: bool, batch: int, share: float, seed: int
) -> None:
    q, k = random_operands(4, 2, queries, keys, batch=batch, seed=seed)
    pattern = dynamic_blocks(
        q, k, mass=share, block_size=size, causal=causal, scale=1.5, score_dtype=torch.float64
    )
    scores = block_scores(q, k, size) * 1.5
    columns = -(-keys // size)
    tokens = np.minimum(size, keys - size * np.arange(columns))
    seen, crossed = visible((queries, keys, size), causal)
    weights = np.exp(scores) * tokens * seen
    with np.errstate(invalid="ignore"):
        probability = (weights / weights.sum(axis=3, keepdims=True)).mean(axis=0)
    expected = np.zeros(probability.shape, dtype=bool)
    for head, row in np.ndindex(probability.shape[:2]):
        reached = 0.0
        for column in np.argsort(-(probability[head, row] + 2 * crossed[row]), kind="stable"):
            unfinished = reached < share - 1e-10 or share == 1.0
            if seen[row, column] and (unfinished or crossed[row, column]):
                expected[head, row, column] = True
                reached += probability[head, row, column]
    wanted = from_block_mask(torch.from_numpy(expected), size, query_length=queries, key_length=keys)
    assert pattern.validate() == (wanted.causal() if causal else wanted)


@pytest.mark.parametrize(("queries", "keys"), [(200, 200), (200, 230), (64, 300)])
def test_causal_queries_are_never_left_with_nothing(queries: int, keys: int) -> None:
    q, k = random_operands(2, 2, queries, keys)
    for pattern in (
        top_k_blocks(q, k, 0.01, block_size=16, causal=True),
        dynamic_blocks(q, k, mass=0.01, block_size=16, causal=True),
    ):
        assert bool(pattern.to_token_mask().any(dim=2).all())


@pytest.mark.parametrize("causal", [False, True])
def test_everything_kept_is_dense(causal: bool) -> None:
    q, k = random_operands(2, 2, 100, 130)
    expected = torch.ones(100, 130, dtype=torch.bool)
    expected = expected.tril(30) if causal else expected
    for pattern in (
        top_k_blocks(q, k, 1.0, block_size=32, causal=causal),
        dynamic_blocks(q * 30, k, mass=1.0, block_size=32, causal=causal),
    ):
        assert torch.equal(pattern.to_token_mask(), expected.expand(2, -1, -1))


def test_equal_scores_keep_lower_columns() -> None:
    q, k = torch.zeros(1, 1, 64, 16), -torch.ones(1, 1, 160, 16)
    k[:, :, 16:32] = 1.0  # products of both signs with zero
    expected = torch.arange(10) < 4
    for pattern in (top_k_blocks(q, k, 0.4, block_size=16), dynamic_blocks(q, k, mass=0.4, block_size=16)):
        assert torch.equal(pattern.to_block_mask(), expected.expand(4, -1))


def test_finds_the_block_that_matters() -> None:
    """With one block of keys like the queries, dynamic selection keeps only this block."""
    q, k = random_operands(1, 1, 64, 512, seed=3)
    direction = torch.ones(16, dtype=torch.float64)
    q, k = q * 0.1 + direction, k * 0.1
    k[:, :, 192:224] += direction
    pattern = dynamic_blocks(q, k, mass=0.9, block_size=32, scale=1.0)
    assert pattern.to_block_mask().nonzero().tolist() == [[0, 6], [1, 6]]
    sparse = reference_attention(q, k, k, pattern, scale=1.0).out
    dense = torch.nn.functional.scaled_dot_product_attention(q, k, k, scale=1.0)
    torch.testing.assert_close(sparse, dense, atol=0.01, rtol=0)


def test_more_mass_keeps_more() -> None:
    q, k = random_operands(2, 1, 256, 512)
    patterns = [dynamic_blocks(q * 3, k * 3, mass=mass, block_size=16) for mass in (0.3, 0.6, 0.9, 1.0)]
    for less, more in pairwise(patterns):
        assert less.blocks < more.blocks
        assert (less & more) == less


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_repeats(dtype: torch.dtype) -> None:
    q, k = (tensor.to(dtype) for tensor in random_operands(4, 2, 200, 300, batch=2))
    assert top_k_blocks(q, k, 0.25, block_size=16) == top_k_blocks(q, k, 0.25, block_size=16)
    assert dynamic_blocks(q, k, block_size=16) == dynamic_blocks(q, k, block_size=16)


def test_pooling_sums_in_float32() -> None:
    """Average half-precision numbers with a large pair that cancels only in float32."""
    q = torch.ones(1, 1, 16, 16, dtype=torch.bfloat16)
    k = torch.zeros(1, 1, 64, 16, dtype=torch.bfloat16)
    k[:, :, 16], k[:, :, 17], k[:, :, 31] = 4096.0, 1.0, -4096.0
    assert top_k_blocks(q, k, 0.25, block_size=16).columns.tolist() == [1]


@pytest.mark.parametrize("select", [lambda q, k: top_k_blocks(q, k, 0.5, block_size=16), dynamic_blocks])
def test_usable_under_autograd(select) -> None:  # type: ignore[no-untyped-def]
    """The selection itself has no gradient; that of the attention is the one for this pattern, fixed."""
    q, k = (tensor.requires_grad_() for tensor in random_operands(2, 2, 48, 80))
    pattern = select(q, k)
    out = reference_attention(q, k, k, pattern).out
    found = torch.autograd.grad(out.square().sum(), (q, k))
    fixed = select(q.detach(), k.detach())
    assert fixed == pattern
    expected = torch.autograd.grad(reference_attention(q, k, k, fixed).out.square().sum(), (q, k))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_nan_keeps_the_pattern_valid() -> None:
    q, k = random_operands(1, 1, 64, 128)
    q[:, :, 20] = math.nan
    for pattern in (top_k_blocks(q, k, 0.25, block_size=16), dynamic_blocks(q, k, block_size=16)):
        pattern.validate()
        assert bool((pattern.row_lengths() > 0).all())


@pytest.mark.parametrize("share", [0.0, -1.0, 1.01, math.nan])
def test_bad_share(share: float) -> None:
    q, k = random_operands(1, 1, 32, 32)
    with pytest.raises(ValueError, match="keep must be above 0 and at most 1"):
        top_k_blocks(q, k, share)
    with pytest.raises(ValueError, match="mass must be above 0 and at most 1"):
        dynamic_blocks(q, k, mass=share)


def test_bad_arguments() -> None:
    q, k = random_operands(4, 2, 32, 32)
    for select in (
        lambda q, k, size: top_k_blocks(q, k, 0.5, block_size=size),
        lambda q, k, size: dynamic_blocks(q, k, block_size=size),
    ):
        with pytest.raises(ValueError, match="block_size must be a multiple of 16"):
            select(q, k, 24)
        with pytest.raises(ValueError, match="block_size must be a multiple of 16"):
            select(q, k, 0)
        with pytest.raises(ValueError, match="heads of q"):
            select(q[:, :3], k, 16)
        with pytest.raises(ValueError, match="at least one batch entry"):
            select(q[:0], k[:0], 16)
        with pytest.raises(ValueError, match="key_length must be"):
            select(q, k[:, :, :0], 16)
        with pytest.raises(TypeError, match=r"k is torch\.float32"):
            select(q, k.float(), 16)
    with pytest.raises(TypeError, match="score_dtype must be floating point"):
        dynamic_blocks(q, k, score_dtype=torch.int8)


@pytest.mark.gpu
@pytest.mark.parametrize("per_key_head", [False, True])
@pytest.mark.parametrize("called_before", [False, True])
def test_a_graph_selects_and_attends(cuda: torch.device, per_key_head: bool, called_before: bool) -> None:
    generator = torch.Generator(device=cuda).manual_seed(0)

    def normal(heads: int) -> Tensor:
        return torch.randn(1, heads, 640, 64, device=cuda, generator=generator).half()

    def attend() -> Tensor:
        pattern = top_k_blocks(q, k, 0.3, block_size=64, per_key_head=per_key_head)
        return sparse_attention(q, k, v, pattern)

    q, k, v = normal(4), normal(2), normal(2)
    if called_before:
        attend()
    else:
        best_blocks._known_rows.clear()
        sparse_attention(q, k, v, top_k_blocks(q, k, 0.9, block_size=64))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attend()
    best_blocks._known_rows.clear()
    others = [torch.full((1, 640), 77, dtype=torch.int32, device=cuda) for _ in range(64)]
    q.copy_(normal(4))
    k.copy_(normal(2))
    graph.replay()
    assert torch.equal(out, attend())
    assert len(others) == 64
