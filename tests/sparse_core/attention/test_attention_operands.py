"""Tests of argument checks."""

from __future__ import annotations

import pytest
import torch

from sparse_core.attention import local_window, sparse_attention
from sparse_core.attention.operands import (
    AttentionShape,
    arithmetic_dtype,
    check_operands,
    check_ragged,
    default_scale,
)


def test_shape() -> None:
    q, k = torch.empty(2, 6, 5, 32), torch.empty(2, 3, 7, 32)
    shape = check_operands(q, k, k)
    assert shape == AttentionShape(batch=2, heads=6, key_heads=3, query_length=5, key_length=7, dim=32)
    assert shape.group == 2


def test_bad_operands() -> None:
    q, k = torch.empty(2, 6, 5, 32), torch.empty(2, 3, 7, 32)
    with pytest.raises(ValueError, match="q must have shape"):
        check_operands(q[0], k, k)
    with pytest.raises(TypeError, match=r"k is torch\.float64 but q is torch\.float32"):
        check_operands(q, k.double(), k)
    with pytest.raises(TypeError, match=r"v is torch\.float64 but q is torch\.float32"):
        check_operands(q, k, k.double())
    with pytest.raises(TypeError, match=r"q must be floating point, got torch\.int64"):
        check_operands(q.long(), k, k)
    with pytest.raises(ValueError, match="v is on meta but q is on cpu"):
        check_operands(q, k, k.to("meta"))
    with pytest.raises(ValueError, match=r"v must have the shape of k \(2, 3, 7, 32\)"):
        check_operands(q, k, k[:, :, :6])
    with pytest.raises(ValueError, match="k must have batch 2 and dim 32"):
        check_operands(q, k[:1], k)
    with pytest.raises(
        ValueError, match=r"heads of q \(6\) must be a multiple of the heads of k and v \(4\)"
    ):
        check_operands(q, torch.empty(2, 4, 7, 32), k)
    with pytest.raises(ValueError, match=r"heads of q \(6\) must be a multiple .* \(0\)"):
        check_operands(q, k[:, :0], k[:, :0])


@pytest.mark.parametrize(
    ("dim", "needed"),
    [(8, "a multiple of 8 from 16 to 256"), (20, "a multiple of 8 from 16 to 256"), (263, "at most 256")],
)
def test_bad_dim(dim: int, needed: str) -> None:
    tensor = torch.empty(1, 1, 4, dim)
    with pytest.raises(ValueError, match=f"dim must be {needed}, got {dim}"):
        check_operands(tensor, tensor, tensor)


def test_ragged_lengths() -> None:
    assert check_ragged(None, 2, 9, torch.device("cpu"), name="lengths") is None
    found = check_ragged(torch.tensor([0, 9], dtype=torch.int32), 2, 9, torch.device("cpu"), name="lengths")
    assert found is not None
    assert (found.dtype, found.tolist()) == (torch.int64, [0, 9])
    with pytest.raises(ValueError, match="lengths is on meta but q is on cpu"):
        check_ragged(
            torch.ones(2, dtype=torch.int32, device="meta"), 2, 9, torch.device("cpu"), name="lengths"
        )


def test_defaults() -> None:
    assert default_scale(None, 64) == 0.125
    assert default_scale(2, 64) == 2.0
    assert arithmetic_dtype(torch.float64) == torch.float64
    assert arithmetic_dtype(torch.bfloat16) == torch.float32


def test_values_of_another_width_are_named_before_the_width_of_the_queries() -> None:
    q = torch.zeros(1, 2, 20, 17)
    with pytest.raises(ValueError, match=r"v must have the shape of k \(1, 2, 20, 17\), got \(1, 2, 20, 9\)"):
        sparse_attention(q, q, q[..., :9], local_window(20, 3))
