"""Tests of the replacement for torch's MultiheadAttention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sparse_core.attention import SparseMultiheadAttention, local_window
from sparse_core.attention.patterns.builders import full


def rows(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def pair(pattern: Any, **options: Any) -> tuple[SparseMultiheadAttention, nn.MultiheadAttention]:
    torch.manual_seed(1)
    dense = nn.MultiheadAttention(20, 4, dtype=torch.float64, **options)
    return SparseMultiheadAttention.from_multihead(dense, pattern), dense


@pytest.mark.parametrize("batch_first", [False, True])
def test_to_itself_and_to_a_memory(batch_first: bool) -> None:
    window = local_window(30, 6, 16)
    sparse, dense = pair(window, batch_first=batch_first)
    x = rows(3, 30, 20) if batch_first else rows(30, 3, 20)
    expected = dense(x, x, x, attn_mask=~window.to_token_mask(), need_weights=False)[0]
    found, weights = sparse(x, x, x)
    assert weights is None
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    sparse, dense = pair(full(30, 16, key_length=17), batch_first=batch_first)
    memory = rows(3, 17, 20) if batch_first else rows(17, 3, 20)
    padding = torch.arange(17) >= torch.tensor([17, 5, 1])[:, None]
    expected = dense(x, memory, memory, key_padding_mask=padding)[0]
    found, _ = sparse(x, memory, memory, key_padding_mask=padding)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_one_sequence_without_a_batch() -> None:
    sparse, dense = pair(None)
    x = rows(9, 20)
    padding = torch.arange(9) >= 7
    expected = dense(x, x, x, key_padding_mask=padding)[0]
    found, _ = sparse(x, x, x, key_padding_mask=padding)
    assert found.shape == (9, 20)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_within_a_model_of_torch() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(20, 4, 32, batch_first=True, dropout=0.0, dtype=torch.float64).train()
    x = rows(2, 30, 20)
    window = local_window(30, 6, 16)
    expected = layer(x, src_mask=~window.to_token_mask())
    layer.self_attn = SparseMultiheadAttention.from_multihead(layer.self_attn, window)  # type: ignore[assignment]
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)


def test_unsupported_options() -> None:
    sparse, _ = pair(local_window(9, 3, 16))
    x = rows(9, 2, 20)
    with pytest.raises(ValueError, match="attn_mask and is_causal"):
        sparse(x, x, x, attn_mask=torch.zeros(9, 9))
    with pytest.raises(ValueError, match="attn_mask and is_causal"):
        sparse(x, x, x, is_causal=True)
    with pytest.raises(ValueError, match="the same tensor"):
        sparse(x, x, x.clone())
    with pytest.raises(ValueError, match="at the end of each sequence only"):
        sparse(x, x, x, key_padding_mask=torch.arange(9).expand(2, 9) == 3)
    with pytest.raises(TypeError, match="must be bool"):
        sparse(x, x, x, key_padding_mask=torch.zeros(2, 9))
    with pytest.raises(ValueError, match=r"must be \(2, 9\)"):
        sparse(x, x, x, key_padding_mask=torch.zeros(2, 8, dtype=torch.bool))
