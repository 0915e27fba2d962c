"""One attention layer whose pattern is pruned."""

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
    """What :class:`AttentionPruner` asks of a layer.

    The layer computes its attention by ``self.attend(q, k, v, self.pattern)``, with whatever options it needs
    as keywords; the pruner puts its own function in the place of ``attend``, on the instance, which calls the
    layer's. It reads two of the options: ``scale`` of the scores and ``key_lengths`` (batch,) of padded keys.

    Attributes:
        pattern: what is attended, or None for everything; the pruner sets it.
    """

    pattern: Any

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: Any, **options: Any
    ) -> Tensor | AttentionResult:
        """The product: q (batch, heads, query_length, dim), k and v (batch, key_heads, key_length, dim)."""


class PrunedLayer:
    """Measures one layer and sets its pattern; stands in for its ``attend``.

    Args:
        layer: see :class:`PrunableAttention`.
        importance: where measurements go.
        measuring: whether a forward pass now is to be measured.
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
        #: What the layer had before, which its density is relative to.
        self._given: BlockPattern | None = layer.pattern
        self._room: _Room | None = None
        layer.attend = self

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, pattern: BlockPattern | None, **options: Any
    ) -> Tensor | AttentionResult:
        """What the layer's own ``attend`` gives, and a measurement once its gradient is known."""
        found: Tensor | AttentionResult = self._attend(q, k, v, pattern, **options)
        out, lse = (found.out, found.lse.detach()) if isinstance(found, AttentionResult) else (found, None)
        if not (self._measuring() and out.requires_grad):
            return found
        grid = BlockGrid(q.shape[1], q.shape[2], k.shape[2], self.importance.block_size)
        bounds = self._room_for(grid, q.device).bounds
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
            # Dense, and not yet run, so that not even the lengths are known.
            return LayerPruning(wanted=density, density=1.0, blocks=0, changed=0.0)
        before = room.blocks(self._layer.pattern)
        self._layer.pattern = self._given if density >= 1.0 else self._pruned(room, density)
        after = room.blocks(self._layer.pattern)
        total, kept, changed = (int(mask.sum()) for mask in (room.blocks(None), after, after ^ before))
        return LayerPruning(wanted=density, density=kept / total, blocks=kept, changed=changed / total)

    def remove(self) -> None:
        """Give the layer its own ``attend`` back."""
        if self._layer.__dict__.get("attend") is self:
            del self._layer.attend

    def state_dict(self) -> dict[str, Any]:
        """Importance, sizes and patterns."""
        return {
            "importance": self.importance.state_dict(),
            "grid": None if self._room is None else tuple(self._room.grid),
            "given": _pattern_state(self._given),
            "pattern": _pattern_state(self._layer.pattern),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo :meth:`state_dict`; sets the layer's pattern."""
        weight = next(iter(self._layer.parameters()), None) if isinstance(self._layer, nn.Module) else None
        device = None if weight is None else weight.device
        self.importance.load_state_dict(state["importance"], device=device)
        self._given = _pattern_from(state["given"], device)
        self._layer.pattern = _pattern_from(state["pattern"], device)
        self._room = None
        if state["grid"] is not None and self.importance.count:
            self._room_for(BlockGrid(*state["grid"]), self.importance.value().device)

    def _room_for(self, grid: BlockGrid, device: torch.device) -> _Room:
        """What may be attended, made once; raises when heads or lengths are others than then."""
        if self._room is None:
            bounds, _ = candidates(grid, self._given, self._causal, device)
            self._room = _Room(grid, bounds)
        if grid != self._room.grid:
            raise ValueError(
                f"heads and lengths must stay the same while a layer is pruned: they were {self._room.grid},"
                f" now {grid}"
            )
        return self._room

    def _pruned(self, room: _Room, density: float) -> BlockPattern:
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


class _Room(NamedTuple):
    """What a layer may attend at all."""

    grid: BlockGrid
    bounds: BlockPattern

    def blocks(self, pattern: BlockPattern | None) -> Tensor:
        """Bool (heads, block rows, block columns), the blocks of a pattern; None has all."""
        mask = self.bounds.to_block_mask()
        if pattern is not None:
            mask = mask & pattern.to_block_mask()
        return mask.expand(self.grid.heads, -1, -1)


def _pattern_state(pattern: BlockPattern | None) -> dict[str, Any] | None:
    if pattern is None:
        return None
    return {name: getattr(pattern, name) for name in (*TENSORS, *SIZES)}


def _pattern_from(state: Mapping[str, Any] | None, device: torch.device | None) -> BlockPattern | None:
    if state is None:
        return None
    pattern = BlockPattern(*(state[name] for name in TENSORS), **{name: state[name] for name in SIZES})
    return pattern if device is None else pattern.to(device)
