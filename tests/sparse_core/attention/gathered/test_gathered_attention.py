"""Gathered attention against loops over the lists, and against the block pattern of the same keys."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_attention import reference_attention
from torch import Tensor

from sparse_core.attention.gathered import reference
from sparse_core.attention.gathered.api import gathered_attention
from sparse_core.attention.operands import AttentionResult
from sparse_core.attention.patterns.masks import from_token_mask
from sparse_core.errors import ImplementationError
from sparse_core.kernels import op


def listed_attention(q: Tensor, k: Tensor, v: Tensor, index: Tensor, scale: float) -> AttentionResult:
    """Query by query in float64."""
    batch, heads, queries, _ = q.shape
    group = heads // k.shape[1]
    outs, lses = [], []
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                row = index[b, h if index.shape[1] > 1 else 0, i]
                row = row[row >= 0].long()
                scores = (k[b, h // group, row] @ q[b, h, i] * scale).double()
                outs.append(torch.softmax(scores, 0) @ v[b, h // group, row].double())
                lses.append(scores.logsumexp(0))
    return AttentionResult(torch.stack(outs).reshape(q.shape), torch.stack(lses).reshape(q.shape[:3]))


def random_case(
    batch: int, heads: int, key_heads: int, list_heads: int, queries: int, keys: int, listed: int, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """With repeated keys, empty slots, and one query without keys."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((heads, queries), (key_heads, keys), (key_heads, keys))
    q, k, v = (torch.randn(batch, *size, 16, generator=generator, dtype=torch.float64) for size in sizes)
    index = torch.randint(-1, keys, (batch, list_heads, queries, listed), generator=generator)
    index[:, :, queries // 2] = -1
    return q, k, v, index


@settings(max_examples=40)
@given(
    batch=st.integers(1, 2),
    key_heads=st.integers(1, 2),
    group=st.integers(1, 2),
    shared=st.booleans(),
    queries=st.integers(1, 7),
    keys=st.integers(1, 9),
    listed=st.integers(0, 12),
    dtype=st.sampled_from([torch.int32, torch.int64]),
    seed=st.integers(0, 100),
)
def test_equals_the_loop(
    batch: int,
    key_heads: int,
    group: int,
    shared: bool,
    queries: int,
    keys: int,
    listed: int,
    dtype: torch.dtype,
    seed: int,
) -> None:
    heads = key_heads * group
    q, k, v, index = random_case(batch, heads, key_heads, 1 if shared else heads, queries, keys, listed, seed)
    found = gathered_attention(q, k, v, index.to(dtype), scale=0.4, return_lse=True)
    expected = listed_attention(q, k, v, index, 0.4)
    torch.testing.assert_close(found.out, expected.out)
    torch.testing.assert_close(found.lse, expected.lse)
    assert not found.out[:, :, queries // 2].any()


def test_same_as_the_pattern_of_these_keys() -> None:
    """A list of distinct keys is a row of a mask; forward and gradients."""
    q, k, v, _ = random_case(2, 4, 2, 1, 40, 50, 1, 0)
    index = torch.stack(
        [torch.randperm(50, generator=torch.Generator().manual_seed(i))[:9] for i in range(160)]
    )
    index = index.reshape(1, 4, 40, 9).expand(2, -1, -1, -1)
    mask = torch.zeros(4, 40, 50, dtype=torch.bool).scatter(2, index[0], True)
    results = []
    for attend in (
        lambda q, k, v: gathered_attention(q, k, v, index, return_lse=True),
        lambda q, k, v: reference_attention(q, k, v, from_token_mask(mask, 16)),
    ):
        operands = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
        out, lse = attend(*operands)
        (out.square().sum() + lse.sum()).backward()
        results.append([out, lse, *(tensor.grad for tensor in operands)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("list_heads", [1, 4])
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients(list_heads: int, recompute: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if recompute:
        monkeypatch.setattr(reference, "KEPT_NUMBERS", 0)
        monkeypatch.setattr(reference, "CHUNK_NUMBERS", 1)
    q, k, v, index = random_case(1, 4, 2, list_heads, 5, 6, 4, 1)
    operands = [tensor.requires_grad_() for tensor in (q, k, v)]

    def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = gathered_attention(q, k, v, index, return_lse=True)
        return out, lse.masked_fill(lse == -math.inf, 0.0)

    assert torch.autograd.gradcheck(attend, operands, fast_mode=recompute)
    out = gathered_attention(*operands, index)
    out.square().sum().backward()
    assert q.grad is not None
    assert not q.grad[:, :, 2].any()


def test_a_key_listed_twice_counts_twice() -> None:
    q, k, v, _ = random_case(1, 1, 1, 1, 1, 3, 1, 2)
    found = gathered_attention(q, k, v, torch.tensor([[[[0, 2, 2]]]]), scale=0.0)
    torch.testing.assert_close(found[0, 0, 0], (v[0, 0, 0] + 2 * v[0, 0, 2]) / 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_sums_in_float32(dtype: torch.dtype) -> None:
    """Also check the gradient of a key that many queries read."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 1, 4000, 16, generator=generator).to(dtype)
    v = torch.randn(1, 1, 2, 16, generator=generator).to(dtype).requires_grad_()
    index = torch.zeros(1, 1, 4000, 1, dtype=torch.int32)
    out = gathered_attention(q, v.detach(), v, index)
    assert out.dtype == dtype
    assert torch.equal(out, v.detach()[:, :, :1].expand_as(out))
    out.sum().backward()
    # Added up in half precision, this would stop growing at 256 or 2048.
    assert v.grad is not None
    assert torch.equal(v.grad[0, 0, 0], torch.full((16,), 4000.0).to(dtype))


def test_empty_slots_read_nothing() -> None:
    """NaN in the memory does not pass through slots of -1, forward or backward."""
    q, k, v, _ = random_case(1, 1, 1, 1, 2, 3, 1, 3)
    k[0, 0, 0], v[0, 0, 0] = math.nan, math.nan
    operands = [tensor.requires_grad_() for tensor in (q, k, v)]
    out = gathered_attention(*operands, torch.tensor([[[[1, -1], [-1, -1]]]]))
    torch.testing.assert_close(out[0, 0, 0], v[0, 0, 1])
    assert not out[0, 0, 1].any()
    out.sum().backward()
    assert all(tensor.grad is not None and bool(tensor.grad.isfinite().all()) for tensor in operands)


@pytest.mark.parametrize(
    ("batch", "queries", "keys", "listed"), [(0, 3, 4, 2), (1, 0, 4, 2), (1, 3, 0, 2), (1, 3, 0, 0)]
)
def test_nothing_to_do(batch: int, queries: int, keys: int, listed: int) -> None:
    q, k = torch.ones(batch, 2, queries, 16), torch.ones(batch, 1, keys, 16)
    out, lse = gathered_attention(q, k, k, torch.full((batch, 2, queries, listed), -1), return_lse=True)
    assert torch.equal(out, torch.zeros_like(q))
    assert torch.equal(lse, torch.full(q.shape[:3], -math.inf))


def test_bad_arguments() -> None:
    q, k, v, index = random_case(2, 4, 2, 4, 5, 6, 3, 0)
    with pytest.raises(TypeError, match=r"index must be int32 or int64, got torch\.float32"):
        gathered_attention(q, k, v, index.float())
    with pytest.raises(ValueError, match=r"index must have shape \(2, 4 or 1, 5, keys_per_query\)"):
        gathered_attention(q, k, v, index[:, :, :4])
    with pytest.raises(ValueError, match="index must have 4 heads like q, or 1 for all of them, got 2"):
        gathered_attention(q, k, v, index[:, :2])
    with pytest.raises(ValueError, match="index is on meta but q is on cpu"):
        gathered_attention(q, k, v, index.to("meta"))
    for number in (6, -2):
        index[1, 2, 3, 0] = number
        with pytest.raises(ValueError, match=rf"got {number} at \(1, 2, 3, 0\)"):
            gathered_attention(q, k, v, index)


def test_implementations() -> None:
    q, k, v, index = random_case(1, 2, 2, 1, 3, 4, 2, 0)
    assert torch.equal(
        gathered_attention(q, k, v, index), gathered_attention(q, k, v, index, impl="reference")
    )
    with pytest.raises(ImplementationError, match="gathered_attention has no vendor implementation"):
        gathered_attention(q, k, v, index, impl="vendor")
    with pytest.raises(ImplementationError, match=r"impl='triton' does not support torch\.float64"):
        gathered_attention(q, k, v, index, impl="triton")
    with pytest.raises(ImplementationError, match="needs CUDA tensors, got cpu"):
        gathered_attention(q.float(), k.float(), v.float(), index, impl="triton")
    with pytest.raises(ValueError, match="impl must be one of"):
        gathered_attention(q, k, v, index, impl="fast")  # type: ignore[call-overload]


def test_runs_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v, index = random_case(1, 2, 2, 1, 3, 4, 2, 0)
    monkeypatch.setattr(op, "module_available", lambda name: False)
    gathered_attention(q, k, v, index)
    with pytest.raises(ImplementationError, match="needs triton, which is not installed"):
        gathered_attention(q, k, v, index, impl="triton")
