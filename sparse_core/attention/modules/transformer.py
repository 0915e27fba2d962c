"""Several Transformer layers that share a pattern."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from torch import Tensor, nn

from sparse_core.attention.masked_arithmetic import zero_padding
from sparse_core.attention.modules.layer import SparseTransformerLayer
from sparse_core.attention.modules.learned_blocks import LearnedBlocks
from sparse_core.attention.modules.sources import PatternSource, Source, pattern_source
from sparse_core.attention.operands import check_ragged

Patterns = PatternSource | list[PatternSource | None] | tuple[PatternSource | None, ...] | None
"""One for all layers, or one each."""


class SparseTransformer(nn.Module):
    """Layers one after the other, with one pattern for all, prepared once, or one each.

    Args:
        layers: at least one.
        pattern: for every layer, or a list or tuple of one each, in which None means dense. A
            :class:`LearnedBlocks` for all is copied, since every layer has its own gate. Without it the
            layers keep what they have.
        norm: of the result, such as ``nn.LayerNorm(dim)``, which pre-norm layers leave to the end.

    Raises:
        TypeError: ``pattern`` or an entry of it is something else.
        ValueError: no layers, or not as many patterns as layers.
    """

    def __init__(
        self,
        layers: Iterable[SparseTransformerLayer],
        pattern: Patterns = None,
        *,
        norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        if not len(self.layers):
            raise ValueError("layers must hold at least one layer")
        self.norm = norm
        if pattern is not None:
            self.set_pattern(pattern)

    def set_pattern(self, pattern: Patterns) -> None:
        """Attend by another pattern in all layers, or by one each; None is dense attention.

        Raises:
            TypeError: something else than a pattern, see :class:`SparseAttention`.
            ValueError: not as many patterns as layers, or patterns for other heads.
        """
        shared = not isinstance(pattern, list | tuple)
        for index, (layer, source) in enumerate(zip(self.layers, self._sources(pattern), strict=True)):
            if shared and index and isinstance(source, LearnedBlocks):
                source = copy.deepcopy(source)
            assert isinstance(layer, SparseTransformerLayer)
            layer.attention.set_pattern(source)

    def forward(self, x: Tensor, *, pattern: Patterns = None, lengths: Tensor | None = None) -> Tensor:
        """All layers.

        Args:
            x: (batch, length, dim).
            pattern: instead of the layers', for this call; one for all, or one each, in which None leaves a
                layer its own.
            lengths: (batch,) int32 or int64, see :meth:`SparseTransformerLayer.forward`.

        Returns:
            (batch, length, dim).

        Raises:
            TypeError, ValueError: shapes, lengths or patterns do not fit.
        """
        for layer, source in zip(self.layers, self._sources(pattern), strict=True):
            x = layer(x, pattern=source, lengths=lengths)
        if self.norm is not None:
            x = self.norm(x)
            padded = check_ragged(lengths, x.shape[0], x.shape[1], x.device, name="lengths")
            x = zero_padding(x, padded)
        return x

    def _sources(self, pattern: Patterns) -> list[Source | None]:
        """One for each layer; the same object where all share one."""
        if not isinstance(pattern, list | tuple):
            return [pattern_source(pattern)] * len(self.layers)
        if len(pattern) != len(self.layers):
            raise ValueError(f"got {len(pattern)} patterns for {len(self.layers)} layers")
        return [pattern_source(one) for one in pattern]
