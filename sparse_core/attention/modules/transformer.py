"""Stack of Transformer layers that share a pattern."""

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
"""One pattern for all layers, or one per layer."""


class SparseTransformer(nn.Module):
    """Stack of layers with one shared pattern, or one per layer.

    Args:
        layers: at least one.
        pattern: for every layer, or a list or tuple with one per layer, None for dense. A shared
            :class:`LearnedBlocks` is copied, because every layer has its own gate. By default the layers
            keep their patterns.
        norm: of the result, such as ``nn.LayerNorm(dim)``, which pre-norm layers need at the end.

    Raises:
        TypeError: ``pattern`` or an entry of it is not a pattern source.
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
        """Replace the pattern of all layers, or of each; None is dense attention.

        Raises:
            TypeError: not a pattern source, see :class:`SparseAttention`.
            ValueError: not as many patterns as layers, or patterns for other heads.
        """
        shared = not isinstance(pattern, list | tuple)
        for index, (layer, source) in enumerate(zip(self.layers, self._sources(pattern), strict=True)):
            if shared and index and isinstance(source, LearnedBlocks):
                source = copy.deepcopy(source)
            assert isinstance(layer, SparseTransformerLayer)
            layer.attention.set_pattern(source)

    def forward(self, x: Tensor, *, pattern: Patterns = None, lengths: Tensor | None = None) -> Tensor:
        """Apply all layers.

        Args:
            x: (batch, length, dim).
            pattern: replaces the layers' patterns in this call: one for all, or one per layer; None keeps a
                layer's own.
            lengths: (batch,) int32 or int64, see :meth:`SparseTransformerLayer.forward`.

        Returns:
            (batch, length, dim).

        Raises:
            TypeError, ValueError: shapes, lengths or patterns do not match.
        """
        for layer, source in zip(self.layers, self._sources(pattern), strict=True):
            x = layer(x, pattern=source, lengths=lengths)
        if self.norm is not None:
            x = self.norm(x)
            padded = check_ragged(lengths, x.shape[0], x.shape[1], x.device, name="lengths")
            x = zero_padding(x, padded)
        return x

    def _sources(self, pattern: Patterns) -> list[Source | None]:
        """Return one source per layer."""
        if not isinstance(pattern, list | tuple):
            return [pattern_source(pattern)] * len(self.layers)
        if len(pattern) != len(self.layers):
            raise ValueError(
                f"got {len(pattern)} patterns for {len(self.layers)} layers: pass one, or one per layer"
            )
        return [pattern_source(one) for one in pattern]
