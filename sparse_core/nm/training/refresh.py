"""Masks that follow the weights every few steps until they are frozen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from sparse_core.nm.masks import pattern_mask
from sparse_core.nm.pattern import TWO_FOUR, Pattern
from sparse_core.nm.pruning.selection import outputs_first
from sparse_core.nm.training.estimators import MaskedModel

Score = Callable[[str, Tensor], Tensor] | Literal["magnitude"]
"""``"magnitude"``, or a function of layer name and dense weight that returns scores of the weight's shape."""


@dataclass(frozen=True)
class Refresh:
    """Result of :meth:`MaskRefresher.step`.

    Attributes:
        step: number of the call, from 0.
        refreshed: True if masks were chosen anew.
        frozen: True if the masks are frozen now.
        share: () float32, share of all mask entries that changed, on the masks' device.
        layers: the same by layer.
    """

    step: int
    refreshed: bool
    frozen: bool
    share: Tensor
    layers: dict[str, Tensor]


class MaskRefresher:
    """Chooses the masks of a :class:`MaskedModel` anew from the dense weights.

    Call :meth:`step` before the forward pass of every training step: calls 0, ``every``, ``2 every`` …
    refresh, and call ``freeze_after`` refreshes for the last time and freezes. ``every=1`` is the training of
    Zhou et al. (2021).

    Args:
        handle: from :func:`attach_masks`.
        patterns: one for all layers, or one by name; ``None`` leaves a layer dense.
        every: steps between refreshes.
        freeze_after: step at which masks are frozen; ``None`` for never.
        score: score of the weights, see :data:`Score`.
        check_nan: raise on a NaN score, which waits for the device at each refresh.

    Attributes:
        count: number of calls of :meth:`step` so far.

    Raises:
        ValueError: ``every`` below 1, ``freeze_after`` below 0, or a layer without a pattern.
    """

    def __init__(
        self,
        handle: MaskedModel,
        patterns: Pattern | Mapping[str, Pattern | None] = TWO_FOUR,
        *,
        every: int = 1,
        freeze_after: int | None = None,
        score: Score = "magnitude",
        check_nan: bool = True,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 step, got {every}")
        if freeze_after is not None and freeze_after < 0:
            raise ValueError(f"freeze_after must be at least step 0, got {freeze_after}")
        if score != "magnitude" and not callable(score):
            raise ValueError(f"score must be 'magnitude' or a function of name and weight, got {score!r}")
        names = list(handle.masks)
        if isinstance(patterns, Mapping):
            missing = [name for name in names if name not in patterns]
            if missing:
                raise ValueError(f"no pattern for layers {', '.join(missing)} (None leaves a layer dense)")
            self._patterns = {name: patterns[name] for name in names}
        else:
            self._patterns = dict.fromkeys(names, patterns)
        self.handle = handle
        self.count = 0
        self._every = every
        self._freeze_after = freeze_after
        self._score = score
        self._check_nan = check_nan

    @torch.no_grad()
    def step(self) -> Refresh:
        """Refresh or freeze the masks if it is time."""
        step = self.count
        self.count += 1
        last = self._freeze_after is not None and step >= self._freeze_after
        if self.handle.frozen or not (last or step % self._every == 0):
            return self._report(step, {}, {}, refreshed=False)
        before = self.handle.masks
        after = {name: self._mask(name, weight) for name, weight in self.handle.weights.items()}
        flipped = {name: before[name] != mask for name, mask in after.items()}
        sizes = {name: mask.numel() for name, mask in after.items()}
        flips = {name: entries.sum() for name, entries in flipped.items()}
        self.handle.set_masks(after)
        if last:
            self.handle.freeze()
        return self._report(step, flips, sizes, refreshed=True)

    def state_dict(self) -> dict[str, Any]:
        """Return the step count; the model's state dict holds the masks and if they are frozen."""
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from :meth:`state_dict`."""
        self.count = int(state["count"])

    def _mask(self, name: str, weight: Tensor) -> Tensor:
        pattern = self._patterns[name]
        module = self.handle.model.get_submodule(name)
        score = weight.detach().abs() if self._score == "magnitude" else self._score(name, weight.detach())
        rows = outputs_first(module, score)
        mask = pattern_mask(outputs_first(module, weight), pattern, rows, check_nan=self._check_nan)
        return outputs_first(module, mask)

    def _report(
        self, step: int, flips: dict[str, Tensor], sizes: dict[str, int], *, refreshed: bool
    ) -> Refresh:
        device = next(iter(self.handle.masks.values())).device
        total = torch.zeros((), dtype=torch.int64, device=device)
        for flip in flips.values():
            total = total + flip.to(device)
        return Refresh(
            step=step,
            refreshed=refreshed,
            frozen=self.handle.frozen,
            share=total / max(1, sum(sizes.values())),
            layers={name: flip / sizes[name] for name, flip in flips.items()},
        )
