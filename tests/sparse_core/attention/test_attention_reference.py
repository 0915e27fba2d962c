"""The reference against dense masked attention in float64 and torch's own attention."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_attention import reference_attention
from torch import Tensor

from sparse_core.attention import reference
from sparse_core.attention.dropout import kept_weights, row_states
from sparse_core.attention.operands import AttentionResult
from sparse_core.attention.patterns.masks import from_block_mask, from_token_mask
from sparse_core.attention.patterns.pattern import BlockPattern


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, kept: Tensor | None = None, p: float = 0.0
) -> AttentionResult:
    """Compute dense attention in float64; ``mask`` broadcasts to (batch, heads, queries, keys)."""
    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) * scale
    scores = scores.masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, dim=3).nan_to_num(0.0)
    if kept is not None:
        weights = weights * kept / (1 - p)
    return AttentionResult(weights @ v.repeat_interleave(group, 1), scores.logsumexp(dim=3))


def random_operands(
    batch: int, heads: int, key_heads: int, queries: int, keys: int, dim: int = 16, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((heads, queries), (key_heads, keys), (key_heads, keys))
    q, k, v = (torch.randn(batch, *size, dim, generator=generator, dtype=torch.float64) for size in sizes)
    return q, k, v


def random_mask(shape: tuple[int, ...], density: float = 0.3, seed: int = 0, block: int = 16) -> Tensor:
    """Random pairs within random blocks, some of which are full, and some queries without keys."""
    rng = np.random.default_rng(seed)
    mask = rng.random(shape) < density
    blocks = rng.integers(0, 3, (*shape[:-2], -(-shape[-2] // block), -(-shape[-1] // block)))
    blocks = blocks.repeat(block, -2).repeat(block, -1)[..., : shape[-2], : shape[-1]]
    mask = np.where(blocks == 0, False, mask | (blocks == 1))
    mask[..., rng.random(shape[-2]) < 0.2, :] = False
    return torch.from_numpy(mask)


@settings(max_examples=60)
@given(
    batch=st.integers(1, 2),
    key_heads=st.integers(1, 2),
    group=st.integers(1, 3),
    queries=st.integers(1, 90),
    keys=st.integers(1, 90),
    block_size=st.sampled_from([16, 32, 48]),
    per_head=st.booleans(),
    seed=st.integers(0, 100),
)
def test_equals_dense(
    batch: int,
    key_heads: int,
    group: int,
    queries: int,
    keys: int,
    block_size: int,
    per_head: bool,
    seed: int,
) -> None:
    heads = key_heads * group
    q, k, v = random_operands(batch, heads, key_heads, queries, keys, seed=seed)
    mask = random_mask((heads, queries, keys) if per_head else (queries, keys), seed=seed)
    found = reference_attention(q, k, v, from_token_mask(mask, block_size), scale=0.3)
    expected = dense_attention(q, k, v, mask, 0.3)
    torch.testing.assert_close(found.out, expected.out, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.lse, expected.lse, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [1, 63, 64, 1000])
@pytest.mark.parametrize("dim", [24, 64])
def test_equals_torch(length: int, dim: int) -> None:
    q, k, v = (tensor.float() for tensor in random_operands(1, 2, 2, length, length, dim))
    mask = random_mask((length, length), block=64) | torch.eye(length, dtype=torch.bool)
    found = reference_attention(q, k, v, from_token_mask(mask, 64))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(found.out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_sums_are_float32(dtype: torch.dtype) -> None:
    q, k, v = (tensor.to(dtype) for tensor in random_operands(1, 2, 1, 100, 130, 64))
    mask = random_mask((100, 130))
    found = reference_attention(q, k, v, from_token_mask(mask, 32))
    expected = dense_attention(q, k, v, mask, 1 / 8)
    assert (found.out.dtype, found.lse.dtype) == (dtype, torch.float32)
    # Only the result is rounded.
    torch.testing.assert_close(found.out.double(), expected.out, rtol=torch.finfo(dtype).eps, atol=2e-6)
    torch.testing.assert_close(found.lse.double(), expected.lse, rtol=1e-5, atol=1e-5)


def test_autocast_changes_nothing() -> None:
    q, k, v = (tensor.float() for tensor in random_operands(1, 2, 2, 40, 40))
    pattern = from_token_mask(random_mask((40, 40)), 16)
    expected = reference_attention(q, k, v, pattern)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = reference_attention(q, k, v, pattern)
    assert torch.equal(found.out, expected.out)
    assert found.out.dtype == torch.float32


@pytest.mark.parametrize("pattern_heads", [1, 2])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("lengths", [(4, 5), (18, 20)])
def test_gradients(
    lengths: tuple[int, int], recompute: bool, pattern_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check gradients of ``out`` and ``lse``, with dropout and a query without keys."""
    if recompute:
        monkeypatch.setattr(reference, "KEPT_SCORES", 0)
    q, k, v = (tensor.requires_grad_() for tensor in random_operands(1, 2, 1, *lengths))
    mask = random_mask((pattern_heads, *lengths), seed=3)
    mask[:, 2], mask[:, 3] = False, True
    pattern = from_token_mask(mask if pattern_heads > 1 else mask[0], 16)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = reference_attention(q, k, v, pattern, dropout_p=0.25, seed=7)
        return out, lse.masked_fill(lse == -math.inf, 0.0)

    assert torch.autograd.gradcheck(attend, (q, k, v), fast_mode=lengths[0] > 4 or recompute)


@pytest.mark.parametrize("pattern_heads", [1, 4])
def test_gradients_equal_dense(pattern_heads: int) -> None:
    operands = [tensor.requires_grad_() for tensor in random_operands(2, 4, 2, 70, 90)]
    mask = random_mask((pattern_heads, 70, 90), seed=4)
    pattern = from_token_mask(mask if pattern_heads > 1 else mask[0], 32)
    cotangent = random_operands(2, 4, 2, 70, 90, seed=9)[0]
    found = torch.autograd.grad((reference_attention(*operands, pattern).out * cotangent).sum(), operands)
    # The oracle's gradient is NaN in empty rows; give them one key and a zero cotangent.
    empty = ~mask.any(dim=-1)
    filled = mask | empty[..., None]
    cotangent = cotangent.masked_fill(empty[..., None], 0.0)
    expected = torch.autograd.grad(
        (dense_attention(*operands, filled, 1 / 4).out * cotangent).sum(), operands
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("heads", [1, 2])
def test_nothing_allowed(heads: int) -> None:
    """Zeros, minus infinity, and zero gradients for all three operands."""
    pattern = from_block_mask(torch.zeros(heads, 3, 2, dtype=torch.bool), 16)
    operands = [tensor.requires_grad_() for tensor in random_operands(1, 2, 2, 48, 32)]
    out, lse = reference_attention(*operands, pattern)
    assert torch.equal(out, torch.zeros(1, 2, 48, 16, dtype=torch.float64))
    assert torch.equal(lse, torch.full((1, 2, 48), -math.inf, dtype=torch.float64))
    out.sum().backward()
    assert all(tensor.grad is not None and not tensor.grad.any() for tensor in operands)


def test_empty_rows_have_no_gradient() -> None:
    mask = torch.zeros(40, 40, dtype=torch.bool)
    mask[5, 3], mask[20:30, 10:25] = True, True
    operands = [tensor.requires_grad_() for tensor in random_operands(1, 1, 1, 40, 40)]
    out, _ = reference_attention(*operands, from_token_mask(mask, 16))
    out.square().sum().backward()
    q, k, v = (tensor.grad for tensor in operands)
    assert not q[0, 0, ~mask.any(1)].any()
    assert not k[0, 0, ~mask.any(0)].any()
    assert not v[0, 0, ~mask.any(0)].any()
    assert all(bool(grad.isfinite().all()) and bool(grad.any()) for grad in (q, k, v))


@pytest.mark.parametrize("pattern_heads", [1, 4])
def test_ragged_batches(pattern_heads: int) -> None:
    """Sequences do not depend on each other or on the padding."""
    q, k, v = random_operands(3, 4, 2, 50, 60)
    query_lengths, key_lengths = torch.tensor([50, 17, 0]), torch.tensor([31, 60, 20], dtype=torch.int32)
    mask = random_mask((pattern_heads, 50, 60), seed=5)
    for batch in range(3):
        q[batch, :, query_lengths[batch] :] = math.nan
        k[batch, :, key_lengths[batch] :] = math.nan
        v[batch, :, key_lengths[batch] :] = math.inf
    operands = [tensor.requires_grad_() for tensor in (q, k, v)]
    pattern = from_token_mask(mask if pattern_heads > 1 else mask[0], 16)
    found = reference_attention(*operands, pattern, query_lengths=query_lengths, key_lengths=key_lengths)
    for batch in range(3):
        queries, keys = int(query_lengths[batch]), int(key_lengths[batch])
        alone = dense_attention(
            q[batch : batch + 1, :, :queries],
            k[batch : batch + 1, :, :keys],
            v[batch : batch + 1, :, :keys],
            mask[:, :queries, :keys],
            1 / 4,
        )
        torch.testing.assert_close(found.out[batch, :, :queries], alone.out[0])
        torch.testing.assert_close(found.lse[batch, :, :queries], alone.lse[0])
        assert not found.out[batch, :, queries:].any()
        assert bool((found.lse[batch, :, queries:] == -math.inf).all())
    found.out.square().sum().backward()
    assert all(bool(tensor.grad.isfinite().all()) for tensor in operands)


def test_dropout_is_the_hash() -> None:
    q, k, v = random_operands(2, 4, 2, 40, 50)
    mask = random_mask((40, 50), seed=6)
    kept = kept_weights(row_states(11, 2, 4, 40, "cpu"), torch.arange(50), 0.3)
    expected = dense_attention(q, k, v, mask, 1 / 4, kept, 0.3)
    for heads in (1, 4):
        for block_size in (16, 48):
            pattern = from_token_mask(mask, block_size).expand_heads(heads)
            found = reference_attention(q, k, v, pattern, dropout_p=0.3, seed=11)
            torch.testing.assert_close(found.out, expected.out)
            torch.testing.assert_close(found.lse, expected.lse)


def test_dropout_follows_torchs_seed() -> None:
    q, k, v = random_operands(1, 1, 1, 32, 32)
    pattern = from_block_mask(torch.ones(2, 2, dtype=torch.bool), 16)
    torch.manual_seed(3)
    first, second = (reference_attention(q, k, v, pattern, dropout_p=0.5).out for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(reference_attention(q, k, v, pattern, dropout_p=0.5).out, first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("pattern_heads", [1, 4])
def test_chunks_do_not_matter(pattern_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = random_mask((pattern_heads, 150, 150), seed=8)
    pattern = from_token_mask(mask if pattern_heads > 1 else mask[0], 16)
    results = []
    for chunk, kept in ((1 << 20, 1 << 24), (1, 0)):
        monkeypatch.setattr(reference, "CHUNK_SCORES", {"cpu": chunk})
        monkeypatch.setattr(reference, "KEPT_SCORES", kept)
        operands = [tensor.requires_grad_() for tensor in random_operands(2, 4, 2, 150, 150)]
        out, lse = reference_attention(*operands, pattern, dropout_p=0.1, seed=1)
        (out.square().sum() + lse[lse > -math.inf].sum()).backward()
        results.append([out, lse, *(tensor.grad for tensor in operands)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_plan_is_kept_and_dropped_with_a_copy() -> None:
    q, k, v = random_operands(1, 2, 2, 40, 40)
    pattern = from_token_mask(random_mask((40, 40)), 16)
    assert not pattern.plans
    expected = reference_attention(q, k, v, pattern)
    (plan,) = pattern.plans.values()
    assert torch.equal(reference_attention(q, k, v, pattern).out, expected.out)
    assert next(iter(pattern.plans.values())) is plan


def test_long_sequences() -> None:
    """16,384 tokens, a few rows of which are compared with dense attention."""
    length, size = 16384, 64
    block = torch.arange(length // size)
    pattern = from_block_mask((block[:, None] - block).abs() <= 2, size)
    q, k, v = (tensor.float() for tensor in random_operands(1, 2, 1, length, length, 16))
    found = reference_attention(q, k, v, pattern)
    rows = torch.tensor([0, 63, 64, 8191, 16383])
    mask = (rows[:, None] // size - torch.arange(length) // size).abs() <= 2
    expected = dense_attention(q[:, :, rows], k, v, mask, 1 / 4)
    torch.testing.assert_close(found.out[:, :, rows].double(), expected.out, rtol=1e-5, atol=1e-5)


def test_no_batch() -> None:
    q, k, v = random_operands(0, 2, 1, 20, 30)
    pattern = from_token_mask(torch.ones(20, 30, dtype=torch.bool), 16)
    out, lse = reference_attention(q, k, v, pattern)
    assert (out.shape, lse.shape) == (q.shape, q.shape[:3])


def test_strides_do_not_matter() -> None:
    """(batch, length, heads, dim), as projections give it, seen as (batch, heads, length, dim)."""
    q, k, v = random_operands(2, 4, 4, 30, 30)
    pattern = from_token_mask(random_mask((30, 30)), 16)
    strided = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v))
    assert torch.equal(reference_attention(*strided, pattern).out, reference_attention(q, k, v, pattern).out)


def full_pattern(queries: int, keys: int, heads: int = 1) -> BlockPattern:
    return from_token_mask(torch.ones(heads, queries, keys, dtype=torch.bool), 16)


def test_bad_arguments() -> None:
    q, k, v = random_operands(2, 4, 2, 20, 30)
    pattern = full_pattern(20, 30)
    with pytest.raises(ValueError, match="pattern is for 20 queries and 31 keys but q has 20 and k 30"):
        reference_attention(q, k, v, full_pattern(20, 31))
    with pytest.raises(ValueError, match="pattern has 2 heads but q has 4: give 1 or 4"):
        reference_attention(q, k, v, full_pattern(20, 30, heads=2))
    with pytest.raises(TypeError, match="must be a BlockPattern, got Tensor"):
        reference_attention(q, k, v, torch.ones(20, 30))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pattern is on meta but q is on cpu"):
        reference_attention(q, k, v, pattern.to("meta"))
    for share in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match="dropout_p must be at least 0 and below 1"):
            reference_attention(q, k, v, pattern, dropout_p=share)
    with pytest.raises(ValueError, match="seed must be from 0"):
        reference_attention(q, k, v, pattern, dropout_p=0.1, seed=-1)
    with pytest.raises(ValueError, match="key_lengths must be from 0 to 30, got 31 at 1"):
        reference_attention(q, k, v, pattern, key_lengths=torch.tensor([3, 31]))
    with pytest.raises(ValueError, match=r"query_lengths must have shape \(2,\)"):
        reference_attention(q, k, v, pattern, query_lengths=torch.tensor([3]))
    with pytest.raises(TypeError, match="query_lengths must be an int32 or int64 tensor, got list"):
        reference_attention(q, k, v, pattern, query_lengths=[3, 4])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be an int32 or int64 tensor, got torch\.float32"):
        reference_attention(q, k, v, pattern, query_lengths=torch.ones(2))
