"""RigL and SET on dense tensors with masks, as plainly as they can be written; what the layers must equal."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor


class MaskedTraining:
    """Dense weights, masks and momentum of (out, in) matrices; one call a step.

    ``by`` sums a matrix into cells, so that blocks need no code of their own.
    """

    def __init__(
        self,
        weights: list[Tensor],
        masks: list[Tensor],
        *,
        rate: float,
        momentum: float,
        block: tuple[int, int],
    ) -> None:
        self.weights = [weight.clone() for weight in weights]
        self.masks = [mask.clone() for mask in masks]
        self.moments = [torch.zeros_like(weight) for weight in weights]
        self.rate, self.momentum, self.block = rate, momentum, block

    def descend(self, gradients: list[Tensor]) -> None:
        for weight, mask, moment, gradient in zip(
            self.weights, self.masks, self.moments, gradients, strict=True
        ):
            moment.mul_(self.momentum).add_(gradient * mask)
            weight.sub_(self.rate * moment * mask)

    def exchange(self, drop: list[Tensor], grow: list[Tensor], fraction: float, per_row: bool) -> None:
        for at, mask in enumerate(self.masks):
            cells = self._cells(mask.double()) > 0
            count = int(cells.sum())
            dropped = int(count * fraction)
            scores = self._cells(drop[at].double().square()).sqrt().masked_fill(~cells, -1)
            order = _ranked(range(cells.numel()), scores)
            kept = torch.zeros(cells.numel(), dtype=torch.bool)
            kept[order[: count - dropped]] = True
            wanted = self._cells(grow[at].double().square()).sqrt()
            free = _ranked([i for i in range(cells.numel()) if not kept[i]], wanted)
            after = kept.clone()
            if per_row:
                width = cells.shape[1]
                lost = cells.sum(1) - kept.reshape(cells.shape).sum(1)
                for row in range(len(cells)):
                    mine = [i for i in free if i // width == row]
                    after[mine[: int(lost[row])]] = True
            else:
                after[free[:dropped]] = True
            self.masks[at] = self._spread(after.reshape(cells.shape))
            fresh = self.masks[at] & ~mask
            gone = ~self.masks[at]
            for tensor in (self.weights[at], self.moments[at]):
                tensor[fresh | gone] = 0

    def _cells(self, matrix: Tensor) -> Tensor:
        r, c = self.block
        return matrix.reshape(matrix.shape[0] // r, r, matrix.shape[1] // c, c).sum(dim=(1, 3))

    def _spread(self, cells: Tensor) -> Tensor:
        return cells.repeat_interleave(self.block[0], 0).repeat_interleave(self.block[1], 1)


def _ranked(places: Iterable[int], scores: Tensor) -> list[int]:
    """Places from the largest score to the smallest, of equal ones the first first."""
    numbers = scores.flatten().tolist()
    return sorted(places, key=lambda place: (-numbers[place], place))


def cosine(step: int, initial: float, stop: int) -> float:
    return initial / 2 * (1 + math.cos(math.pi * step / stop))
