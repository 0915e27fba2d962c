"""Pruning of the pattern of one attention layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from sparse_core.attention.operands import AttentionResult
from sparse_core.attention.patterns.files import SIZES, TENSORS
from sparse_core.attention.patterns.grid import BlockGrid
from sparse_core.attention.patterns.pattern import BlockPattern
from sparse_core.attention.pruning.average import BlockImportance
from sparse_core.attention.pruning.report import LayerPruning
from sparse_core.attention.pruning.selection import candidates, patterns_from_importance


class PrunableAttention(Protocol):
    """Protocol of the layers that :class:`AttentionPruner` can prune.

    The layer must compute its attention by ``self.attend(q, k, v, self.pattern)``, with its options as
    keywords. The pruner wraps ``attend`` on the instance. It reads the options ``scale`` and ``key_lengths``
    (batch,), the lengths of padded keys.

    Attributes:
        pattern: a BlockPattern, or None for all pairs; the pruner sets it.
    """

    pattern: Any

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: Any, **options: Any
    ) -> Tensor | AttentionResult:
        """Attend with q (batch, heads, query_length, dim), k and v (batch, key_heads, key_length, dim)."""


class PrunedLayer:
    """Wrapper of a layer's ``attend`` that measures importance and sets the pattern.

    Args:
        layer: see :class:`PrunableAttention`.
        measuring: returns True if the current forward pass is to be measured.
        causal, shared: as for :class:`sparse_core.attention.pruning.AttentionPruner`.
    """

    def __init__(
        self,
        layer: Any,
        importance: BlockImportance,
        *,
        measuring: Callable[[], bool],
        causal: bool,
        shared: bool,
    ) -> None:
        self.importance = importance
        self._measuring, self._causal, self._shared = measuring, causal, shared
        self._layer = layer
        self._attend = layer.attend
        #: Pattern before pruning; densities are relative to it.
        self._given: BlockPattern | None = layer.pattern
        self._room: _Bounds | None = None
        layer.attend = self

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern | None, **options: Any
    ) -> Tensor | AttentionResult:
        """Call the layer's ``attend``, and measure importance once the gradient is known."""
        found: Tensor | AttentionResult = self._attend(q, k, v, pattern, **options)
        out, lse = (found.out, found.lse.detach()) if isinstance(found, AttentionResult) else (found, None)
        if not (self._measuring() and out.requires_grad):
            return found
        grid = BlockGrid(q.shape[1], q.shape[2], k.shape[2], self.importance.block_size)
        bounds = self._bounds_for(grid, q.device).bounds
        q, k, v, out_values = (tensor.detach() for tensor in (q, k, v, out))

        def measure(grad_out: Tensor) -> None:
            self.importance.update(
                q,
                k,
                v,
                out_values,
                grad_out,
                lse,
                scale=options.get("scale"),
                pattern=pattern,
                allowed=bounds,
                key_lengths=options.get("key_lengths"),
            )

        out.register_hook(measure)
        return found

    def refresh(self, density: float) -> LayerPruning:
        """Set the pattern for a density."""
        room = self._room
        if room is None:
            # The layer has not run yet, so its lengths are unknown.
            return LayerPruning(wanted=density, density=1.0, blocks=0, changed=0.0)
        before = room.blocks(self._layer.pattern)
        self._layer.pattern = self._given if density >= 1.0 else self._prune(room, density)
        after = room.blocks(self._layer.pattern)
        total, kept, changed = (int(mask.sum()) for mask in (room.blocks(None), after, after ^ before))
        return LayerPruning(wanted=density, density=kept / total, blocks=kept, changed=changed / total)

    def remove(self) -> None:
        """Restore the layer's own ``attend``."""
        if self._layer.__dict__.get("attend") is self:
            del self._layer.attend

    def state_dict(self) -> dict[str, Any]:
        """Return importance, sizes and patterns."""
        return {
            "importance": self.importance.state_dict(),
            "grid": None if self._room is None else tuple(self._room.grid),
            "given": _save_pattern(self._given),
            "pattern": _save_pattern(self._layer.pattern),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of :meth:`state_dict`, including the layer's pattern."""
        weight = next(iter(self._layer.parameters()), None) if isinstance(self._layer, nn.Module) else None
        device = None if weight is None else weight.device
        self.importance.load_state_dict(state["importance"], device=device)
        self._given = _load_pattern(state["given"], device)
        self._layer.pattern = _load_pattern(state["pattern"], device)
        self._room = None
        if state["grid"] is not None and self.importance.count:
            self._bounds_for(BlockGrid(*state["grid"]), self.importance.value().device)

    def _bounds_for(self, grid: BlockGrid, device: torch.device) -> _Bounds:
        """Return the blocks that may be attended; raise if heads or lengths changed."""
        if self._room is None:
            bounds, _ = candidates(grid, self._given, self._causal, device)
            self._room = _Bounds(grid, bounds)
        if grid != self._room.grid:
            raise ValueError(
                f"heads and lengths changed during pruning, from {self._room.grid} to {grid}: keep them fixed"
            )
        return self._room

    def _prune(self, room: _Bounds, density: float) -> BlockPattern:
        importance = self.importance.value()
        return patterns_from_importance(
            importance.sum(dim=0) if self._shared else importance,
            density,
            block_size=room.grid.block_size,
            query_length=room.grid.query_length,
            key_length=room.grid.key_length,
            allowed=room.bounds,
            causal=self._causal,
        )


class _Bounds(NamedTuple):
    """All pairs that a layer may attend."""

    grid: BlockGrid
    bounds: BlockPattern

    def blocks(self, pattern: BlockPattern | None) -> Tensor:
        """Return the blocks of a pattern, bool (heads, block rows, block columns); None has all."""
        mask = self.bounds.to_block_mask()
        if pattern is not None:
            mask = mask & pattern.to_block_mask()
        return mask.expand(self.grid.heads, -1, -1)


def _save_pattern(pattern: BlockPattern | None) -> dict[str, Any] | None:
    if pattern is None:
        return None
    return {name: getattr(pattern, name) for name in (*TENSORS, *SIZES)}


def _load_pattern(state: Mapping[str, Any] | None, device: torch.device | None) -> BlockPattern | None:
    if state is None:
        return None
    pattern = BlockPattern(*(state[name] for name in TENSORS), **{name: state[name] for name in SIZES})
    return pattern if device is None else pattern.to(device)
