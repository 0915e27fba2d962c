"""A feed-forward layer that predicts which hidden blocks are active and computes only those.

After Liu et al., "Deja Vu: Contextual Sparsity for Efficient LLMs at Inference Time" (2023): a small low-rank
network predicts which hidden units an input excites.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import torch
from rich.progress import track
from torch import Tensor, nn

from sparse_core.dynamic.grouped_products import collect, grouped_linear, plan_dispatch, send
from sparse_core.dynamic.ranking import best_entries, check_batch, nan_first, true_positions

Share = Literal["batch", "row"]


class BlockPredictor(nn.Module):
    """Scores of the hidden blocks from the input: two small Linear layers with a ReLU between.

    Args:
        in_features: width of the input.
        blocks: number of scores.
        rank: width between the two layers.

    Raises:
        ValueError: a size below 1.
    """

    def __init__(self, in_features: int, blocks: int, *, rank: int = 32) -> None:
        super().__init__()
        if min(in_features, blocks, rank) < 1:
            raise ValueError(f"sizes must be at least 1, got {in_features}, {blocks} and rank {rank}")
        self.down, self.up = nn.Linear(in_features, rank), nn.Linear(rank, blocks)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores (N, blocks) for inputs (N, in)."""
        scores: Tensor = self.up(torch.relu(self.down(x)))
        return scores


class PredictedFeedForward(nn.Module):
    """``contract(relu(expand(x)))`` that computes only the predicted hidden blocks.

    Args:
        in_features, hidden_features, out_features: widths.
        block_size: hidden units per block; divides ``hidden_features``.
        keep: number of blocks to compute.
        share: ``"batch"``: all rows of a call compute the same blocks, those with the largest total
            probability; two smaller dense products. ``"row"``: each row computes its own blocks, grouped by
            block (:mod:`sparse_core.dynamic.grouped_products`).
        rank: width of the predictor.

    Attributes:
        expand, contract: the Linear layers.
        predictor: a :class:`BlockPredictor`. Train it with :func:`fit_predictor`; the task's loss does not
            change it.

    Raises:
        ValueError: blocks do not divide the hidden width, or ``keep`` is out of range.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        *,
        block_size: int = 64,
        keep: int,
        share: Share = "batch",
        rank: int = 32,
    ) -> None:
        super().__init__()
        if block_size < 1 or hidden_features % block_size:
            raise ValueError(f"block_size {block_size} does not divide hidden_features {hidden_features}")
        self.blocks = hidden_features // block_size
        if not 1 <= keep <= self.blocks:
            raise ValueError(f"keep must be 1 to {self.blocks} blocks, got {keep}")
        if share not in get_args(Share):
            raise ValueError(f"share must be one of {get_args(Share)}, got {share!r}")
        self.block_size, self.keep, self.share = block_size, keep, share
        self.expand = nn.Linear(in_features, hidden_features)
        self.contract = nn.Linear(hidden_features, out_features)
        self.predictor = BlockPredictor(in_features, self.blocks, rank=rank)

    @classmethod
    def from_dense(
        cls,
        expand: nn.Linear,
        contract: nn.Linear,
        *,
        block_size: int = 64,
        keep: int,
        share: Share = "batch",
        rank: int = 32,
    ) -> PredictedFeedForward:
        """Copy two Linear layers that have a ReLU between them."""
        layer = cls(
            expand.in_features,
            expand.out_features,
            contract.out_features,
            block_size=block_size,
            keep=keep,
            share=share,
            rank=rank,
        ).to(expand.weight)
        with torch.no_grad():
            for mine, theirs in ((layer.expand, expand), (layer.contract, contract)):
                mine.weight.copy_(theirs.weight)
                mine.bias.copy_(theirs.bias) if theirs.bias is not None else mine.bias.zero_()
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., out) for (..., in).

        Raises:
            ValueError: an empty batch, or another width.
        """
        check_batch(x)
        if x.shape[-1] != self.expand.in_features:
            raise ValueError(f"x must have {self.expand.in_features} features, got shape {tuple(x.shape)}")
        rows = x.reshape(-1, x.shape[-1])
        chosen = self.choose(rows)
        y = self._for_batch(rows, chosen[0]) if self.share == "batch" else self._by_row(rows, chosen)
        return y.reshape(*x.shape[:-1], -1)

    def choose(self, rows: Tensor) -> Tensor:
        """Return the predicted blocks, rising: (N, keep) int64, or (1, keep) with ``share="batch"``."""
        with torch.no_grad():
            scores = torch.sigmoid(self.predictor(rows))
            if self.share == "batch":
                scores = scores.sum(dim=0, keepdim=True)
            return true_positions(best_entries(nan_first(scores), self.keep), self.keep)

    def dense(self, x: Tensor) -> Tensor:
        """Return the result with every block computed."""
        y: Tensor = self.contract(torch.relu(self.expand(x)))
        return y

    def predictor_loss(self, x: Tensor) -> Tensor:
        """Return the cross-entropy of the predictor against the ``keep`` blocks of largest activation."""
        wanted = self._strongest(x).to(x.dtype)
        return nn.functional.binary_cross_entropy_with_logits(
            self.predictor(x.detach().reshape(-1, x.shape[-1])), wanted
        )

    def recall(self, x: Tensor) -> Tensor:
        """Return the share of the squared hidden activation in the computed blocks, a scalar tensor."""
        rows = x.reshape(-1, x.shape[-1])
        with torch.no_grad():
            energy = self._energy(rows)
            chosen = self.choose(rows).expand(len(rows), -1)
            return energy.gather(1, chosen).sum() / energy.sum().clamp(min=torch.finfo(energy.dtype).tiny)

    def _energy(self, rows: Tensor) -> Tensor:
        hidden = torch.relu(self.expand(rows))
        return hidden.reshape(len(rows), self.blocks, self.block_size).square().sum(dim=2)

    def _strongest(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return best_entries(nan_first(self._energy(x.reshape(-1, x.shape[-1]))), self.keep)

    def _for_batch(self, rows: Tensor, blocks: Tensor) -> Tensor:
        width, size = rows.shape[1], self.block_size
        first = self.expand.weight.reshape(self.blocks, size, width).index_select(0, blocks)
        bias = self.expand.bias.reshape(self.blocks, size).index_select(0, blocks)
        hidden = torch.relu(nn.functional.linear(rows, first.reshape(-1, width), bias.reshape(-1)))
        second = self.contract.weight.reshape(-1, self.blocks, size).index_select(1, blocks)
        return nn.functional.linear(hidden, second.reshape(len(second), -1), self.contract.bias)

    def _by_row(self, rows: Tensor, chosen: Tensor) -> Tensor:
        plan = plan_dispatch(chosen, self.blocks)
        first = self.expand.weight.reshape(self.blocks, self.block_size, -1)
        bias = self.expand.bias.reshape(self.blocks, self.block_size)
        hidden = torch.relu(grouped_linear(send(rows, plan), first, plan, bias))
        second = self.contract.weight.reshape(-1, self.blocks, self.block_size).transpose(0, 1)
        return collect(grouped_linear(hidden, second, plan), plan) + self.contract.bias

    def extra_repr(self) -> str:
        """Return the blocks for ``print(model)``."""
        return f"{self.keep} of {self.blocks} blocks of {self.block_size}, share={self.share!r}"


def fit_predictor(
    layer: PredictedFeedForward,
    batches: Iterable[Tensor],
    *,
    epochs: int = 10,
    learning_rate: float = 1e-2,
    progress: bool = False,
) -> float:
    """Train the predictor alone on inputs of the layer; the layer's own weights do not change.

    Args:
        layer: its predictor is changed in place.
        batches: inputs (N, in).
        epochs: passes over the batches.
        learning_rate: learning rate of Adam.
        progress: show a progress bar.

    Returns:
        The mean loss of the last pass.

    Raises:
        ValueError: no batches.
    """
    inputs = list(batches)
    if not inputs or epochs < 1:
        raise ValueError(f"needs at least one batch and one epoch, got {len(inputs)} and {epochs}")
    optimiser = torch.optim.Adam(layer.predictor.parameters(), lr=learning_rate)
    losses: list[Tensor] = []
    for _ in track(range(epochs), "predictor", disable=not progress):
        losses = []
        for x in inputs:
            optimiser.zero_grad()
            loss = layer.predictor_loss(x)
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
    return float(torch.stack(losses).mean())
