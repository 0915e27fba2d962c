"""Tiles of queries with gathered keys against the reference, forward and gradient."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sparse_core.attention import (
    BlockPattern,
    cpu,
    from_distance,
    from_token_mask,
    full,
    local_window,
    sparse_attention,
)
from sparse_core.attention.api import SPARSE_ATTENTION
from sparse_core.attention.operands import AttentionResult
from sparse_core.errors import ImplementationError


def operands(
    batch: int, heads: int, key_heads: int, queries: int, keys: int, dim: int = 16, seed: int = 0
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = ((heads, queries), (key_heads, keys), (key_heads, keys))
    return [
        torch.randn(batch, *size, dim, generator=generator, dtype=torch.float64, requires_grad=True)
        for size in sizes
    ]


def scattered(shape: tuple[int, ...], seed: int) -> Tensor:
    """Pairs at random, some of them in whole blocks, and queries and keys without any."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(shape, generator=generator) < 0.2
    mask[..., : shape[-2] // 3, : shape[-1] // 2] = True
    mask[..., torch.rand(shape[-2], generator=generator) < 0.2, :] = False
    mask[..., torch.rand(shape[-1], generator=generator) < 0.5] = False
    return mask


def loss(result: AttentionResult, weight: Tensor) -> Tensor:
    """Return a loss of the output and of finite lse."""
    return (result.out * weight).sum() + result.lse[result.lse.isfinite()].sum()


def check(given_operands: list[Tensor], pattern: BlockPattern) -> None:
    """Output, lse and gradients of both."""
    found = sparse_attention(*given_operands, pattern, impl="cpu", return_lse=True)
    expected = sparse_attention(*given_operands, pattern, impl="reference", return_lse=True)
    torch.testing.assert_close(found.out, expected.out)
    torch.testing.assert_close(found.lse, expected.lse)
    weight = torch.linspace(-1, 1, found.out.numel(), dtype=torch.float64).reshape(found.out.shape)
    both = (torch.autograd.grad(loss(one, weight), given_operands) for one in (found, expected))
    for left, right in zip(*both, strict=True):
        torch.testing.assert_close(left, right)


@settings(max_examples=25)
@given(
    batch=st.integers(1, 2),
    key_heads=st.integers(1, 2),
    group=st.integers(1, 2),
    queries=st.integers(1, 150),
    keys=st.integers(1, 150),
    size=st.sampled_from([16, 32, 48, 64, 128]),
    per_head=st.booleans(),
    seed=st.integers(0, 100),
)
def test_equals_the_reference(
    batch: int, key_heads: int, group: int, queries: int, keys: int, size: int, per_head: bool, seed: int
) -> None:
    heads = key_heads * group
    mask = scattered((heads, queries, keys) if per_head else (queries, keys), seed)
    check(operands(batch, heads, key_heads, queries, keys, seed=seed), from_token_mask(mask, size))


@pytest.mark.parametrize(
    "pattern",
    [
        lambda: full(100, block_size=32),
        lambda: local_window(300, window=20, block_size=64),
        lambda: from_token_mask(torch.zeros(40, 40, dtype=torch.bool), 16),
    ],
    ids=["full", "window", "nothing"],
)
def test_whole_and_no_blocks(pattern: Callable[[], BlockPattern]) -> None:
    made = pattern()
    check(operands(1, 2, 2, made.query_length, made.key_length), made)


def test_many_chunks_that_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_GATHERED", 1 << 12)
    monkeypatch.setattr(cpu, "_KEPT", 0)
    check(operands(1, 2, 2, 150, 150), from_token_mask(scattered((150, 150), 1), 32))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_sums_are_float32(dtype: torch.dtype) -> None:
    q, k, v = (tensor.detach().to(dtype) for tensor in operands(1, 2, 1, 90, 90, dim=20))
    pattern = from_token_mask(scattered((90, 90), 2), 32)
    found = sparse_attention(q, k, v, pattern, impl="cpu")
    expected = sparse_attention(q.double(), k.double(), v.double(), pattern, impl="reference")
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=torch.finfo(dtype).eps, atol=2e-6)


def test_results_repeat_to_the_bit_and_leave_inference_mode() -> None:
    pattern = from_distance(torch.rand(200, 2), radius=0.2, block_size=32)
    q, k, v = (tensor.detach().float().requires_grad_() for tensor in operands(1, 4, 4, 200, 200, dim=24))
    with torch.inference_mode():
        first = sparse_attention(q, k, v, pattern)
    second = sparse_attention(q, k, v, pattern)
    assert torch.equal(first, second)
    one, other = (
        torch.autograd.grad(sparse_attention(q, k, v, pattern).square().sum(), (q, k, v)) for _ in range(2)
    )
    assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def test_a_tile_gathers_the_keys_of_its_queries_alone() -> None:
    mask = torch.zeros(64, 200, dtype=torch.bool)
    mask[3, [1, 90, 199]] = mask[40, 7] = True
    plan = cpu._plan_for(from_token_mask(mask, 64), 0)
    (tiles,) = plan.groups
    assert tiles.tile.tolist() == [0, 1]
    assert tiles.key.shape == (2, 3)
    assert tiles.key[0].tolist() == [1, 90, 199]
    assert tiles.allowed is not None
    assert tiles.allowed.sum() == 4


def test_what_auto_takes_on_a_cpu() -> None:
    device = torch.device("cpu")
    assert SPARSE_ATTENTION.choose("auto", device, torch.float32, False, True, 1 << 20) == "cpu"
    assert SPARSE_ATTENTION.choose("auto", device, torch.float32, False, True, 1 << 30) == "reference"
    assert SPARSE_ATTENTION.choose("auto", device, torch.float32, False, False, 1) == "reference"
    with pytest.raises(ImplementationError, match="pairs"):
        SPARSE_ATTENTION.choose("cpu", device, torch.float32, False, True, 1 << 30)
    q, k, v = operands(1, 1, 1, 20, 20)
    with pytest.raises(ImplementationError, match="no score_mod, dropout or lengths"):
        sparse_attention(q, k, v, full(20), impl="cpu", key_lengths=torch.tensor([3]))
