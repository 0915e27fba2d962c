"""Head sizes of any number, sequences without padding, and a pattern for each sequence of a batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sparse_core.attention import (
    SparseAttention,
    TopKBlocks,
    bigbird,
    documents,
    from_token_mask,
    gathered_attention,
    local_window,
    per_sequence,
    random_blocks,
    sparse_attention,
    top_k_blocks,
)


def operands(batch: int, length: int, dim: int, *, heads: int = 4, key_heads: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(dim)
    shapes = ((batch, heads, length, dim), (batch, key_heads, length, dim), (batch, key_heads, length, dim))
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [tensor.requires_grad_() for tensor in made]


def dense(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def gradients(out: Tensor, given: list[Tensor]) -> list[Tensor]:
    return [out, *torch.autograd.grad((out * torch.cos(out)).sum(), given)]


@pytest.mark.parametrize("dim", [1, 3, 12, 20, 33, 255])
def test_any_head_size(dim: int) -> None:
    given = operands(2, 40, dim)
    pattern = bigbird(40, 5, 1, 1, 16)
    for one, other in zip(
        gradients(sparse_attention(*given, pattern), given),
        gradients(dense(*given, pattern.to_token_mask()), given),
        strict=True,
    ):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a warning of torch's compiler
@pytest.mark.parametrize("dim", [5, 20, 72])
@pytest.mark.parametrize("impl", ["triton", "vendor", "reference"])
def test_any_head_size_on_a_gpu(cuda: torch.device, dim: int, impl: Any) -> None:
    given = [tensor.detach().half().to(cuda) for tensor in operands(2, 200, dim)]
    pattern = local_window(200, 40, 64, device=cuda)
    expected = dense(*(tensor.double() for tensor in given), pattern.to_token_mask())
    found = sparse_attention(*given, pattern, impl=impl)
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=5e-3)


@pytest.mark.parametrize("dim", [3, 20])
def test_gathered_keys_of_any_head_size(dim: int) -> None:
    given = operands(2, 9, dim)
    index = torch.randint(-1, 9, (2, 1, 9, 5), generator=torch.Generator().manual_seed(1))
    out, lse = gathered_attention(*given, index, return_lse=True)
    padded = [torch.nn.functional.pad(tensor, (0, 32 - dim)) for tensor in given]
    wide = gathered_attention(*padded, index, scale=dim**-0.5, return_lse=True)
    assert torch.equal(out, wide.out[..., :dim])
    assert torch.equal(lse, wide.lse)
    assert all(grad.shape == one.shape for grad, one in zip(gradients(out, given)[1:], given, strict=True))


def test_modules_and_selectors_of_any_head_size() -> None:
    x = torch.randn(2, 64, 40, generator=torch.Generator().manual_seed(0))
    for pattern in (local_window(64, 9, 16), TopKBlocks(0.5, block_size=16)):
        module = SparseAttention(40, 8, pattern)  # 5 numbers a head
        assert module(x).shape == x.shape
    q, k, _ = operands(1, 64, 5)
    assert top_k_blocks(q, k, keep=0.5, block_size=16).heads == 4
    for wrong in (0, 257):
        with pytest.raises(ValueError, match=f"256, got {wrong}"):
            sparse_attention(*(torch.zeros(1, 1, 16, wrong),) * 3, local_window(16, 3, 16))


@pytest.mark.parametrize("lengths", [[5, 40, 0, 16, 1, 33], [64, 64], [1] * 20, [100]])
def test_sequences_without_padding(lengths: list[int]) -> None:
    pattern = documents(lengths, 16)
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    expected = from_token_mask(number[:, None] == number, 16)
    for part in ("row_ptr", "columns", "partial"):
        assert torch.equal(getattr(pattern, part), getattr(expected, part))
    assert torch.equal(pattern.to_token_mask(), expected.to_token_mask())
    near = pattern & local_window(sum(lengths), 7, 16)
    given = operands(1, sum(lengths), 8)
    found = sparse_attention(*given, near.causal())
    start = 0
    for length in lengths:
        own = [tensor[:, :, start : start + length] for tensor in given]
        if length:
            alone = sparse_attention(*own, local_window(length, 7, 16).causal())
            torch.testing.assert_close(found[:, :, start : start + length], alone, rtol=0, atol=1e-12)
        start += length


def test_bad_documents() -> None:
    with pytest.raises(ValueError, match="lengths must be at least 0, got -1"):
        documents([3, -1])
    for nothing in ([], [0, 0]):
        with pytest.raises(ValueError, match="query_length must be a whole number of at least 1"):
            documents(nothing)


@pytest.mark.parametrize("heads", [1, 4])
def test_a_pattern_for_each_sequence(heads: int, device: torch.device) -> None:
    patterns = [
        random_blocks(70, 0.4, 16, heads=heads, seed=seed) | local_window(70, 3, 16) for seed in range(3)
    ]
    given = [tensor.detach().to(device).requires_grad_() for tensor in operands(3, 70, 12)]
    joined = per_sequence(patterns, 4).to(device)
    assert joined.heads == 12
    out, lse = sparse_attention(*given, joined, return_lse=True)
    assert (out.shape, lse.shape) == ((3, 4, 70, 12), (3, 4, 70))
    found = gradients(out, given)
    alone = [
        sparse_attention(*(tensor[place, None] for tensor in given), pattern.to(device))
        for place, pattern in enumerate(patterns)
    ]
    for one, other in zip(found, gradients(torch.cat(alone), given), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_bad_patterns_for_each_sequence() -> None:
    given = [tensor.detach() for tensor in operands(2, 70, 16)]
    joined = per_sequence([local_window(70, 3, 16), local_window(70, 9, 16)], 4)
    with pytest.raises(ValueError, match="neither score_mod nor lengths"):
        sparse_attention(*given, joined, key_lengths=torch.tensor([3, 4]))
    with pytest.raises(ValueError, match=r"give 1 or 4, or 8 for a batch of 2 \(per_sequence\)"):
        sparse_attention(*given, random_blocks(70, 0.5, 16, heads=3))
    with pytest.raises(ValueError, match="at least one pattern"):
        per_sequence([], 4)
    with pytest.raises(ValueError, match=r"patterns\[1\] has 3 heads: give 1 or 4"):
        per_sequence([local_window(70, 3, 16), random_blocks(70, 0.5, 16, heads=3)], 4)
    with pytest.raises(ValueError, match="different query_length"):
        per_sequence([local_window(70, 3, 16), local_window(71, 3, 16)], 4)
