"""Multi-head attention over the blocks of a pattern."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from sparse_core.attention.api import SPARSE_ATTENTION, sparse_attention
from sparse_core.attention.masked_arithmetic import zero_padding
from sparse_core.attention.modules.learned_blocks import LearnedBlocks
from sparse_core.attention.modules.sources import PatternSource, Source, pattern_for, pattern_source
from sparse_core.attention.operands import LARGEST_DIM, AttentionImpl, check_ragged
from sparse_core.attention.patterns.pattern import BlockPattern


class AttentionInputs(NamedTuple):
    """Checked inputs with zeroed padding.

    Attributes:
        x: (batch, length, dim).
        memory: (batch, memory_length, memory_dim); ``x`` itself without one.
        query_lengths, key_lengths: (batch,) int64, or None.
    """

    x: Tensor
    memory: Tensor
    query_lengths: Tensor | None
    key_lengths: Tensor | None


def attention_inputs(
    x: Tensor,
    memory: Tensor | None,
    query_lengths: Tensor | None,
    key_lengths: Tensor | None,
    *,
    dim: int,
    memory_dim: int,
) -> AttentionInputs:
    """Check the inputs and zero their padding.

    Args:
        x: (batch, length, dim).
        memory: (batch, memory_length, memory_dim), or None for ``x``.
        query_lengths, key_lengths: (batch,) int32 or int64, or None. Without a memory, ``key_lengths``
            defaults to ``query_lengths``.
    """
    _check_sequence("x", x, dim)
    if memory is not None:
        _check_sequence("memory", memory, memory_dim)
        if memory.shape[0] != x.shape[0]:
            raise ValueError(f"memory must have batch {x.shape[0]} like x, got {memory.shape[0]}")
    elif memory_dim != dim:
        raise ValueError(f"memory is missing: pass one of width {memory_dim}, x has width {dim}")
    batch, length = x.shape[:2]
    keys = length if memory is None else memory.shape[1]
    query_lengths = check_ragged(query_lengths, batch, length, x.device, name="query_lengths")
    key_lengths = check_ragged(key_lengths, batch, keys, x.device, name="key_lengths")
    x = zero_padding(x, query_lengths)
    if memory is None:
        return AttentionInputs(x, x, query_lengths, query_lengths if key_lengths is None else key_lengths)
    return AttentionInputs(x, zero_padding(memory, key_lengths), query_lengths, key_lengths)


def _check_sequence(name: str, rows: Tensor, width: int) -> None:
    if rows.ndim != 3 or rows.shape[2] != width:
        raise ValueError(f"{name} must have shape (batch, length, {width}), got {tuple(rows.shape)}")


def dense_attention(q: Tensor, k: Tensor, v: Tensor, key_lengths: Tensor | None, dropout_p: float) -> Tensor:
    """Attend to every key by torch's function; a sequence without keys gives zeros.

    Args:
        q: (batch, heads, query_length, dim) floating.
        k, v: (batch, key_heads, key_length, dim).
        key_lengths: (batch,) int64, true lengths of sequences padded at the end.
    """
    mask = None
    if key_lengths is not None:
        mask = (torch.arange(k.shape[2], device=k.device) < key_lengths[:, None])[:, None, None, :]
        k, v = zero_padding(k, key_lengths), zero_padding(v, key_lengths)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout_p, enable_gqa=q.shape[1] != k.shape[1]
    )


class SparseAttention(nn.Module):
    """Multi-head self-attention or cross-attention over the blocks of a pattern.

    The weights are four Linear layers, ``q``, ``k``, ``v`` and ``out``. Without a pattern the attention is
    dense, by torch's ``scaled_dot_product_attention``. A pattern that is selected in each call is averaged
    over the batch and has no gradient.

    Args:
        dim: width of the sequence and of the result.
        heads: query heads.
        pattern: a BlockPattern, which fixes the lengths; a function of query length, key length and device
            that builds one, called once per pair of lengths; a selector (:class:`TopKBlocks`,
            :class:`DynamicBlocks`, :class:`LearnedBlocks`); or None for dense attention.
        key_heads: heads of keys and values, each for heads / key_heads neighbouring heads; ``heads`` by
            default.
        head_dim: from 1 to 256, by default dim / heads; fastest for multiples of 8 from 16 on.
        memory_dim: width of the memory, ``dim`` by default.
        bias: give the Linear layers a bias.
        dropout: probability of dropping an attention weight in training, in [0, 1).
        impl: of :func:`sparse_attention`.
        device, dtype: of the parameters.

    Attributes:
        pattern: see :meth:`set_pattern`.

    Raises:
        TypeError: ``pattern`` is something else.
        ValueError: sizes or options do not match.
    """

    pattern: Source | None

    def __init__(
        self,
        dim: int,
        heads: int,
        pattern: PatternSource | None = None,
        *,
        key_heads: int | None = None,
        head_dim: int | None = None,
        memory_dim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        impl: AttentionImpl = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dim, self.heads = dim, heads
        self.key_heads = heads if key_heads is None else key_heads
        self.memory_dim = dim if memory_dim is None else memory_dim
        if head_dim is None and heads > 0 and dim % heads:
            raise ValueError(
                f"dim ({dim}) must be a multiple of heads ({heads}): change one or pass head_dim"
            )
        self.head_dim = dim // max(1, heads) if head_dim is None else head_dim
        self._check_sizes()
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
        SPARSE_ATTENTION.check(impl)
        self.dropout, self.impl = dropout, impl
        key_width = self.key_heads * self.head_dim
        self.q = nn.Linear(dim, heads * self.head_dim, bias, device, dtype)
        self.k = nn.Linear(self.memory_dim, key_width, bias, device, dtype)
        self.v = nn.Linear(self.memory_dim, key_width, bias, device, dtype)
        self.out = nn.Linear(heads * self.head_dim, dim, bias, device, dtype)
        self.set_pattern(pattern)

    @classmethod
    def from_multihead(
        cls,
        multihead: nn.MultiheadAttention,
        pattern: PatternSource | None = None,
        *,
        impl: AttentionImpl = "auto",
    ) -> SparseAttention:
        """Make a batch-first module with a copy of the weights of torch's.

        Args:
            multihead: without ``add_bias_kv`` and ``add_zero_attn``; ``kdim`` and ``vdim`` equal.
            pattern, impl: see the class.

        Returns:
            A module with the device, dtype, training mode and ``requires_grad`` of ``multihead``.

        Raises:
            ValueError: ``multihead`` uses an option that this class does not support.
        """
        if multihead.bias_k is not None or multihead.add_zero_attn:
            raise ValueError("SparseAttention supports neither add_bias_kv nor add_zero_attn: disable them")
        if multihead.kdim != multihead.vdim:
            raise ValueError(f"kdim must equal vdim, got kdim={multihead.kdim} and vdim={multihead.vdim}")
        weights: tuple[Tensor, ...]
        if multihead.kdim == multihead.embed_dim:
            weights = multihead.in_proj_weight.chunk(3)
        else:
            weights = (multihead.q_proj_weight, multihead.k_proj_weight, multihead.v_proj_weight)
        module = cls(
            multihead.embed_dim,
            multihead.num_heads,
            pattern,
            memory_dim=multihead.kdim,
            bias=multihead.in_proj_bias is not None,
            dropout=multihead.dropout,
            impl=impl,
            device=multihead.out_proj.weight.device,
            dtype=multihead.out_proj.weight.dtype,
        )
        projections = (module.q, module.k, module.v)
        for linear, weight in zip(projections, weights, strict=True):
            _copy(linear.weight, weight)
        if multihead.in_proj_bias is not None:
            for linear, bias in zip(projections, multihead.in_proj_bias.chunk(3), strict=True):
                _copy(linear.bias, bias)
            _copy(module.out.bias, multihead.out_proj.bias)
        _copy(module.out.weight, multihead.out_proj.weight)
        return module.train(multihead.training)

    def set_pattern(self, pattern: PatternSource | None) -> None:
        """Replace the pattern; None makes the attention dense. The weights stay.

        Raises:
            TypeError: not a pattern source, see the class.
            ValueError: the pattern has other heads.
        """
        source = pattern_source(pattern)
        self._check_heads(source)
        if "pattern" in self._modules:
            del self.pattern
        self.pattern = source

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        pattern: PatternSource | None = None,
        query_lengths: Tensor | None = None,
        key_lengths: Tensor | None = None,
    ) -> Tensor:
        """Attend from ``x`` to itself or to ``memory``.

        Args:
            x: (batch, length, dim).
            memory: (batch, memory_length, memory_dim); ``x`` by default.
            pattern: replaces the module's pattern in this call. A function is called each time.
            query_lengths: (batch,) int32 or int64, true lengths of sequences padded at the end. Padding may
                hold any value; the result is zero there.
            key_lengths: likewise for the memory; without a memory ``query_lengths`` by default.

        Returns:
            (batch, length, dim).

        Raises:
            TypeError, ValueError: shapes, lengths or the pattern do not match.
        """
        inputs = attention_inputs(
            x, memory, query_lengths, key_lengths, dim=self.dim, memory_dim=self.memory_dim
        )
        q = _split(self.q(inputs.x), self.heads)
        k, v = (_split(linear(inputs.memory), self.key_heads) for linear in (self.k, self.v))
        chosen = self.pattern if pattern is None else pattern_source(pattern)
        attended = self.attend(
            q, k, v, chosen, query_lengths=inputs.query_lengths, key_lengths=inputs.key_lengths
        )
        result: Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return zero_padding(result, inputs.query_lengths)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        pattern: Source | None,
        *,
        query_lengths: Tensor | None = None,
        key_lengths: Tensor | None = None,
    ) -> Tensor:
        """Attend from q to k and v, without projections.

        Args:
            q: (batch, heads, length, head_dim).
            k, v: (batch, key_heads, memory_length, head_dim).
            pattern: pairs to compute; ``None`` for all.
            query_lengths, key_lengths: (batch,) or ``None``.

        Returns:
            (batch, heads, length, head_dim).
        """
        dropout_p = self.dropout if self.training else 0.0
        if pattern is None:
            return dense_attention(q, k, v, key_lengths, dropout_p)
        return sparse_attention(
            q,
            k,
            v,
            pattern_for(pattern, q, k, query_lengths, key_lengths),
            dropout_p=dropout_p,
            query_lengths=query_lengths,
            key_lengths=key_lengths,
            impl=self.impl,
        )

    def gate_loss(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        query_lengths: Tensor | None = None,
        key_lengths: Tensor | None = None,
    ) -> Tensor:
        """Return :meth:`LearnedBlocks.gate_loss` () for these inputs; only the gate gets gradients.

        Args:
            x, memory, query_lengths, key_lengths: see :meth:`forward`.

        Raises:
            TypeError: the pattern is not a :class:`LearnedBlocks`.
        """
        if not isinstance(self.pattern, LearnedBlocks):
            raise TypeError(f"gate_loss needs a LearnedBlocks as pattern, got {self.pattern!r}")
        inputs = attention_inputs(
            x, memory, query_lengths, key_lengths, dim=self.dim, memory_dim=self.memory_dim
        )
        with torch.no_grad():
            q, k = _split(self.q(inputs.x), self.heads), _split(self.k(inputs.memory), self.key_heads)
        return self.pattern.gate_loss(
            q, k, query_lengths=inputs.query_lengths, key_lengths=inputs.key_lengths
        )

    def extra_repr(self) -> str:
        """Return sizes and pattern for ``print(model)``."""
        text = f"dim={self.dim}, heads={self.heads}, key_heads={self.key_heads}, head_dim={self.head_dim}"
        if self.memory_dim != self.dim:
            text += f", memory_dim={self.memory_dim}"
        if self.dropout:
            text += f", dropout={self.dropout}"
        return text if isinstance(self.pattern, nn.Module) else f"{text}, pattern={self.pattern!r}"

    def _check_sizes(self) -> None:
        for name in ("dim", "heads", "key_heads", "memory_dim"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.heads % self.key_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of key_heads ({self.key_heads})")
        if not 1 <= self.head_dim <= LARGEST_DIM:
            raise ValueError(
                f"head_dim must be from 1 to {LARGEST_DIM}, got {self.head_dim}: choose other heads or give"
                " head_dim"
            )

    def _check_heads(self, source: object) -> None:
        if isinstance(source, BlockPattern) and source.heads not in (1, self.heads):
            raise ValueError(f"pattern has {source.heads} heads: give 1 or {self.heads}")
        if isinstance(source, LearnedBlocks):
            expected = (self.heads, self.key_heads, self.head_dim)
            found = (source.heads, source.key_heads, source.dim)
            if found != expected:
                raise ValueError(
                    f"LearnedBlocks is for (heads, key_heads, dim) {found}, the attention has {expected}"
                )


def _split(rows: Tensor, heads: int) -> Tensor:
    """Reshape (batch, length, heads * dim) to (batch, heads, length, dim)."""
    split: Tensor = rows.unflatten(2, (heads, -1))
    return split.transpose(1, 2)


def _copy(parameter: Tensor, source: Tensor) -> None:
    with torch.no_grad():
        parameter.copy_(source)
    parameter.requires_grad_(source.requires_grad)
