"""Tests of the public function."""

from __future__ import annotations

import pytest
import torch

from sparse_core.attention import local_window, sparse_attention
from sparse_core.errors import ImplementationError


def operands() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 100, 16, generator=generator) for _ in range(3))
    return q, k, v


def test_equals_torch_with_the_token_mask() -> None:
    q, k, v = operands()
    pattern = local_window(100, window=9, block_size=16)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=pattern.to_token_mask())
    torch.testing.assert_close(sparse_attention(q, k, v, pattern), expected)
    scaled = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=pattern.to_token_mask(), scale=0.5
    )
    torch.testing.assert_close(sparse_attention(q, k, v, pattern, scale=0.5, impl="reference"), scaled)


def test_lse_is_that_of_the_allowed_scores() -> None:
    q, k, v = operands()
    pattern = local_window(100, window=9, block_size=16)
    result = sparse_attention(q, k, v, pattern, return_lse=True)
    scores = (q @ k.mT / 4).masked_fill(~pattern.to_token_mask(), -torch.inf)
    torch.testing.assert_close(result.lse, scores.logsumexp(dim=-1))
    assert torch.equal(result.out, sparse_attention(q, k, v, pattern))


@pytest.mark.parametrize("impl", ["triton", "cuda"])
def test_implementations_that_cannot_run(impl: str) -> None:
    with pytest.raises(ImplementationError, match=f"(?i){impl}"):
        sparse_attention(*operands(), local_window(100), impl=impl)
    with pytest.raises(ValueError, match="impl must be"):
        sparse_attention(*operands(), local_window(100), impl="fast")


def test_a_pattern_of_another_length() -> None:
    with pytest.raises(ValueError, match="128"):
        sparse_attention(*operands(), local_window(128))
