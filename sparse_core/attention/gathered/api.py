"""Attention with a list of keys per query."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from sparse_core.attention.operands import (
    KERNEL_TYPES,
    AttentionResult,
    AttentionShape,
    check_operands,
    default_scale,
    padded_dims,
)
from sparse_core.kernels.op import Impl, Op, by_torch, by_triton


def _has_kernels(kind: str, dtype: torch.dtype) -> str | None:
    return None if dtype in KERNEL_TYPES else f"does not support {dtype}: use 'reference'"


GATHERED_ATTENTION: Op[torch.dtype] = Op(
    "gathered_attention",
    __package__,
    by_triton(needs="float16, bfloat16 or float32", supports=_has_kernels, module=f"{__package__}.gradient"),
    by_torch(),
    gradient=True,
)


@overload
def gathered_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index: Tensor,
    *,
    scale: float | None = None,
    impl: Impl = "auto",
    return_lse: Literal[False] = False,
) -> Tensor: ...


@overload
def gathered_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index: Tensor,
    *,
    scale: float | None = None,
    impl: Impl = "auto",
    return_lse: Literal[True],
) -> AttentionResult: ...


def gathered_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index: Tensor,
    *,
    scale: float | None = None,
    impl: Impl = "auto",
    return_lse: bool = False,
) -> Tensor | AttentionResult:
    """Return ``softmax(scale * q @ k[index].T) @ v[index]``, with a list of keys per query.

    The softmax is over the slots of a list: a key that is listed twice counts twice. Slots of -1 are empty. A
    query with only empty slots returns zeros and has no gradient. Sums are float32 (float64 for float64);
    autocast has no effect. Results are bitwise reproducible.

    The kernels copy no keys, never wait for the device, run in CUDA graphs and are one node under
    ``torch.compile``. The gradients of k and v sort the slots by key, which takes up to 40 bytes per index
    entry. Second derivatives are not supported.

    Args:
        q: (batch, heads, queries, dim) floating; dim from 1 to 256. A dim that is not a multiple of 8, or is
            below 16, costs a zero-padded copy of the operands.
        k: (batch, key_heads, key_length, dim); each key head serves heads / key_heads neighbouring heads.
        v: like k.
        index: (batch, heads or 1, queries, keys_per_query) int32 or int64, from 0 to key_length - 1, or -1.
            The range is checked on a CPU, outside compiled functions. Otherwise the reference raises torch's
            index error (on a GPU a device assertion), and the kernels return NaN for the query.
        scale: of the scores; 1 / sqrt(dim) by default.
        impl: ``"triton"`` for float16, bfloat16 and float32, which ``"auto"`` takes on CUDA, or
            ``"reference"``, plain torch on any device.
        return_lse: also return the log-sum-exp of the scores.

    Returns:
        (batch, heads, queries, dim) like q; with ``return_lse`` an :class:`AttentionResult`.

    Raises:
        TypeError: dtypes do not match.
        ValueError: shapes or devices do not match, or an index is out of range.
        ImplementationError: the named ``impl`` cannot run these operands.
    """
    dim = q.shape[-1]
    q, k, v = padded_dims(q, k, v)
    shape = check_operands(q, k, v)
    _check_index(index, shape, q.device)
    implementation = GATHERED_ATTENTION.load(_choose(impl, q.device, q.dtype))
    out, lse = implementation.gathered_attention(q, k, v, index, scale=default_scale(scale, dim))
    if shape.dim != dim:
        out = out[..., :dim]
    return AttentionResult(out, lse) if return_lse else out


@torch.compiler.assume_constant_result
def _choose(impl: Impl, device: torch.device, dtype: torch.dtype) -> str:
    """Return the name of the implementation; load it now, because torch.compile cannot trace imports."""
    name = GATHERED_ATTENTION.choose(impl, device, dtype)
    GATHERED_ATTENTION.load(name)
    return name


def _check_index(index: Tensor, shape: AttentionShape, device: torch.device) -> None:
    if index.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"index must be int32 or int64, got {index.dtype}")
    if index.ndim != 4 or index.shape[0] != shape.batch or index.shape[2] != shape.query_length:
        raise ValueError(
            f"index must have shape ({shape.batch}, {shape.heads} or 1, {shape.query_length},"
            f" keys_per_query), got {tuple(index.shape)}"
        )
    if index.shape[1] not in (1, shape.heads):
        raise ValueError(
            f"index must have {shape.heads} heads like q, or 1 for all of them, got {index.shape[1]}"
        )
    if index.device != device:
        raise ValueError(f"index is on {index.device} but q is on {device}: move it to q.device")
    if device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = ((index < -1) | (index >= shape.key_length)).nonzero()
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise ValueError(
                f"index must be from 0 to {shape.key_length - 1}, or -1 for no key,"
                f" got {int(index[place])} at {place}"
            )
