"""A small mixture of experts with top-k routing; rows are sorted by expert, none are padded or dropped.

Shazeer et al., "Outrageously Large Neural Networks" (2017); balance as in Fedus et al., "Switch Transformers"
(2022); dispatch as in Gale et al., "MegaBlocks" (2023).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sparse_core.dynamic.grouped_products import collect, grouped_linear, plan_dispatch, send
from sparse_core.dynamic.ranking import best_entries, check_batch, nan_first, true_positions


class MixtureOfExperts(nn.Module):
    """A mixture of experts: each row passes its ``k`` best feed-forward experts.

    Args:
        features: width of input and output.
        hidden: width of an expert.
        experts: number of experts.
        k: experts per row. Their weights are the softmax over the chosen; for ``k=1`` the probability among
            all, because the router would not learn otherwise.

    Attributes:
        balance: experts * Σ (share of rows) * (mean probability) of the last call, 1 if even, ``None``
            before; add a small multiple to the loss.
        load: (experts,) int64, rows of each expert in the last call, on the device.

    Raises:
        ValueError: a size below 1, or ``k`` over the number of experts.
    """

    def __init__(self, features: int, hidden: int, *, experts: int, k: int = 2) -> None:
        super().__init__()
        if min(features, hidden, experts) < 1:
            raise ValueError(f"sizes must be at least 1, got {features}, {hidden} and {experts} experts")
        if not 1 <= k <= experts:
            raise ValueError(f"k must be 1 to {experts} experts, got {k}")
        self.k = k
        self.router = nn.Linear(features, experts, bias=False)
        self.expand = nn.Parameter(_uniform(experts, hidden, features))
        self.expand_bias = nn.Parameter(torch.zeros(experts, hidden))
        self.contract = nn.Parameter(_uniform(experts, features, hidden))
        self.contract_bias = nn.Parameter(torch.zeros(experts, features))
        self.balance: Tensor | None = None
        self.load: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return (..., features) for the same shape.

        Raises:
            ValueError: an empty batch, or another width.
        """
        check_batch(x)
        if x.shape[-1] != self.router.in_features:
            raise ValueError(f"x must have {self.router.in_features} features, got {tuple(x.shape)}")
        rows = x.reshape(-1, x.shape[-1])
        experts = len(self.expand)
        scores = self.router(rows)
        chosen = true_positions(best_entries(nan_first(scores), self.k), self.k)
        probability = scores.softmax(dim=1)
        gates = probability.gather(1, chosen)
        if self.k > 1:
            gates = gates / gates.sum(dim=1, keepdim=True)
        plan = plan_dispatch(chosen, experts)
        hidden = torch.relu(grouped_linear(send(rows, plan), self.expand, plan, self.expand_bias))
        answers = grouped_linear(hidden, self.contract, plan, self.contract_bias)
        self.load = plan.counts
        share = plan.counts.to(scores.dtype) / plan.order.numel()
        self.balance = experts * (share * probability.mean(dim=0)).sum()
        return collect(answers, plan, gates).reshape(x.shape)

    def extra_repr(self) -> str:
        """Return the sizes for ``print(model)``."""
        experts, hidden, features = self.expand.shape
        return f"features={features}, hidden={hidden}, {self.k} of {experts} experts"


def _uniform(experts: int, rows: int, columns: int) -> Tensor:
    bound = columns**-0.5
    return torch.empty(experts, rows, columns).uniform_(-bound, bound)
