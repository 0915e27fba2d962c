"""Operands and options of attention, and their checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.scores import ScoreFunction, check_score_heads

AttentionImpl = Literal["auto", "reference", "triton", "cuda", "cpu", "vendor", "fa4"]
"""``"cuda"``: CUDA forward kernel for Hopper, Triton backward; ``"cpu"``: keys gathered for tiles of queries;
``"fa4"``: FlashAttention-4; the other names as in every op."""

#: Types that the Triton kernels support.
KERNEL_TYPES = (torch.float16, torch.bfloat16, torch.float32)
SMALLEST_DIM, LARGEST_DIM, DIM_STEP = 16, 256, 8


class AttentionResult(NamedTuple):
    """Output of attention.

    Attributes:
        out: (batch, heads, query_length, dim), of the type of the queries; zeros for queries without keys.
        lse: (batch, heads, query_length) natural log-sum-exp of the scores, float32 (float64 for float64);
            minus infinity for queries without keys.
    """

    out: Tensor
    lse: Tensor


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of the operands; ``heads`` is ``key_heads`` times ``group``."""

    batch: int
    heads: int
    key_heads: int
    query_length: int
    key_length: int
    dim: int

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.heads // self.key_heads


class AttentionOptions(NamedTuple):
    """Options of one call, named as in :func:`sparse_attention`.

    Attributes:
        seed: of the dropout; ``None`` to draw one.
        query_lengths, key_lengths: (batch,) int64 or ``None``.
        wants_lse: False if the caller does not use ``lse``.
    """

    scale: float
    dropout_p: float = 0.0
    seed: int | None = 0
    query_lengths: Tensor | None = None
    key_lengths: Tensor | None = None
    score_mod: ScoreFunction | None = None
    impl: str = "triton"
    wants_lse: bool = True

    @property
    def plain(self) -> bool:
        """True without dropout and sequence lengths."""
        return not self.dropout_p and self.query_lengths is None and self.key_lengths is None


def padded_dims(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the operands with dim zero-padded to a supported one; scores do not change.

    Operands that do not match are returned unchanged, for :func:`check_operands` to refuse.
    """
    dim = q.shape[-1]
    more = max(SMALLEST_DIM, -(-dim // DIM_STEP) * DIM_STEP) - dim
    fits = 1 <= dim <= LARGEST_DIM and all(part.ndim == 4 and part.shape[3] == dim for part in (q, k, v))
    if more and fits:
        q, k, v = (torch.nn.functional.pad(part, (0, more)) for part in (q, k, v))
    return q, k, v


def check_queries_and_keys(q: Tensor, k: Tensor) -> AttentionShape:
    """Return the sizes; raise ``TypeError`` or ``ValueError`` unless ``q`` and ``k`` match.

    Args:
        q: (batch, heads, query_length, dim) floating.
        k: (batch, key_heads, key_length, dim), of the type and device of q; key_heads divides heads.
    """
    for name, tensor in (("q", q), ("k", k)):
        if tensor.ndim != 4:
            raise ValueError(
                f"{name} must have shape (batch, heads, length, dim), got {tuple(tensor.shape)}:"
                " add the missing dimensions with unsqueeze"
            )
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must be floating point, got {tensor.dtype}")
    _check_like_q("k", k, q)
    batch, heads, query_length, dim = q.shape
    if k.shape[0] != batch or k.shape[3] != dim:
        raise ValueError(
            f"k must have batch {batch} and dim {dim} like q, got shape {tuple(k.shape)}"
            f" for q of shape {tuple(q.shape)}"
        )
    key_heads = k.shape[1]
    if not heads or not key_heads or heads % key_heads:
        raise ValueError(f"heads of q ({heads}) must be a multiple of the heads of k and v ({key_heads})")
    return AttentionShape(batch, heads, key_heads, query_length, k.shape[2], dim)


def check_operands(q: Tensor, k: Tensor, v: Tensor) -> AttentionShape:
    """Return the sizes; also check that ``v`` matches ``k`` and that dim is supported."""
    shape = check_queries_and_keys(q, k)
    dim = shape.dim
    if isinstance(v, Tensor) and v.shape != k.shape:
        raise ValueError(f"v must have the shape of k {tuple(k.shape)}, got {tuple(v.shape)}")
    if dim > LARGEST_DIM:
        raise ValueError(f"dim must be at most {LARGEST_DIM}, got {dim}")
    if dim < SMALLEST_DIM or dim % DIM_STEP:
        raise ValueError(
            f"dim must be a multiple of {DIM_STEP} from {SMALLEST_DIM} to {LARGEST_DIM}, got {dim}"
        )
    _check_like_q("v", v, q)
    return shape


def check_pattern(pattern: BlockPattern, shape: AttentionShape, device: torch.device) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless the pattern has these heads, lengths and device."""
    if not isinstance(pattern, BlockPattern):
        raise TypeError(
            f"pattern must be a BlockPattern, got {type(pattern).__name__}:"
            " convert a dense mask with from_token_mask"
        )
    if pattern.heads not in (1, shape.heads):
        raise ValueError(
            f"pattern has {pattern.heads} heads but q has {shape.heads}: give 1 or {shape.heads}, or"
            f" {shape.batch * shape.heads} for a batch of {shape.batch} (per_sequence)"
        )
    lengths = (pattern.query_length, pattern.key_length)
    if lengths != (shape.query_length, shape.key_length):
        raise ValueError(
            f"pattern is for {lengths[0]} queries and {lengths[1]} keys but q has {shape.query_length} and k"
            f" {shape.key_length}: build it for these lengths"
        )
    if pattern.device != device:
        raise ValueError(f"pattern is on {pattern.device} but q is on {device}: use pattern.to(q.device)")


def check_ragged(
    lengths: Tensor | None, batch: int, limit: int, device: torch.device, *, name: str
) -> Tensor | None:
    """Return the lengths (batch,) of padded sequences as int64, or None.

    The range is checked only on a CPU, because on a GPU that waits for the device. There, larger lengths
    count as ``limit`` and negative ones as 0.
    """
    if lengths is None:
        return None
    if not isinstance(lengths, Tensor) or lengths.dtype not in (torch.int32, torch.int64):
        found = lengths.dtype if isinstance(lengths, Tensor) else type(lengths).__name__
        raise TypeError(f"{name} must be an int32 or int64 tensor, got {found}")
    if tuple(lengths.shape) != (batch,):
        raise ValueError(f"{name} must have shape ({batch},), one per sequence, got {tuple(lengths.shape)}")
    if lengths.device != device:
        raise ValueError(f"{name} is on {lengths.device} but q is on {device}: move it to q.device")
    if device.type == "cpu":
        wrong = ((lengths < 0) | (lengths > limit)).nonzero()
        if len(wrong):
            place = int(wrong[0])
            raise ValueError(f"{name} must be from 0 to {limit}, got {int(lengths[place])} at {place}")
    return lengths.long()


def check_dropout(dropout_p: float, seed: int | None) -> None:
    """Raise ``ValueError`` unless ``dropout_p`` is in [0, 1) and ``seed`` is None or from 0 to 2^63 - 1."""
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p must be at least 0 and below 1, got {dropout_p}")
    if seed is not None and not 0 <= seed < 1 << 63:
        raise ValueError(f"seed must be from 0 to 2^63 - 1, got {seed}")


def check_share(name: str, share: float) -> None:
    """Raise ``ValueError`` unless ``share`` is in (0, 1]."""
    if not 0.0 < share <= 1.0:
        raise ValueError(f"{name} must be above 0 and at most 1, got {share}")


def check_options(
    options: AttentionOptions, pattern: BlockPattern, shape: AttentionShape, device: torch.device
) -> AttentionOptions:
    """Check the options and the pattern; return the options with int64 lengths."""
    check_pattern(pattern, shape, device)
    check_dropout(options.dropout_p, options.seed)
    check_score_heads(options.score_mod, shape.heads)
    queries, keys = options.query_lengths, options.key_lengths
    queries = check_ragged(queries, shape.batch, shape.query_length, device, name="query_lengths")
    keys = check_ragged(keys, shape.batch, shape.key_length, device, name="key_lengths")
    return options._replace(query_lengths=queries, key_lengths=keys)


def default_scale(scale: float | None, dim: int) -> float:
    """Return ``scale``, or 1 / sqrt(dim) for None."""
    return dim**-0.5 if scale is None else float(scale)


def arithmetic_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of scores and sums: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _check_like_q(name: str, tensor: Tensor, q: Tensor) -> None:
    if tensor.dtype != q.dtype:
        raise TypeError(f"{name} is {tensor.dtype} but q is {q.dtype}: give both the same dtype")
    if tensor.device != q.device:
        raise ValueError(f"{name} is on {tensor.device} but q is on {q.device}: move them to one device")
