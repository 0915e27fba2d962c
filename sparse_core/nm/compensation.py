"""One factor for each output row that makes up for part of what pruning took away."""

from __future__ import annotations

import torch
from torch import Tensor

from sparse_core.nm.calibration import InputStatistics


def compensate_scale(
    weight: Tensor, mask: Tensor, statistics: InputStatistics | None = None, *, pruned: Tensor | None = None
) -> Tensor:
    """Factors for the rows of ``weight * mask``.

    Without statistics a factor restores the row's Euclidean norm. With them it is the least-squares optimum
    a = (w H vᵀ) / (v H vᵀ) for v = w * mask and H = 2/rows · XᵀX: no other factor brings the outputs on those
    inputs closer. The factor of a row that is or becomes zero is 1.

    Args:
        weight: (out, in) or (out, in, kernel height, kernel width), before pruning.
        mask: bool of the same shape.
        statistics: inputs of the layer with their Hessian.
        pruned: the weight after pruning, where it is not ``weight * mask``.

    Returns:
        (out,) factors, float32, or float64 for a float64 weight.

    Raises:
        ValueError: shapes that do not fit, or statistics without a Hessian.
    """
    if mask.shape != weight.shape:
        raise ValueError(f"mask must have the weight's shape {tuple(weight.shape)}, got {tuple(mask.shape)}")
    if pruned is not None and pruned.shape != weight.shape:
        raise ValueError(
            f"pruned must have the weight's shape {tuple(weight.shape)}, got {tuple(pruned.shape)}"
        )
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    # float64 because the factor is a ratio of sums that may nearly cancel.
    before = weight.detach().to(torch.float64).flatten(1)
    after = (weight.detach() * mask if pruned is None else pruned.detach()).to(torch.float64).flatten(1)
    if statistics is None:
        above, below = before.square().sum(1).sqrt(), after.square().sum(1).sqrt()
    else:
        hessian = _hessian(statistics, weight)
        shape = (len(hessian), -1, before.shape[1])
        response = after.reshape(shape) @ hessian
        above = (before.reshape(shape) * response).sum(2).flatten()
        below = (after.reshape(shape) * response).sum(2).flatten()
    usable = below > 0
    factor = torch.where(usable, above / torch.where(usable, below, 1.0), 1.0)
    return factor.to(dtype)


def _hessian(statistics: InputStatistics, weight: Tensor) -> Tensor:
    """(groups, columns, columns) float64."""
    if statistics.hessian is None:
        raise ValueError(
            "compensation by least squares needs the Hessian: collect_inputs(..., hessian=True), or leave the"
            " statistics out to keep each row's norm"
        )
    columns = weight.shape[1:].numel()
    hessian = statistics.hessian.to(weight.device, torch.float64).reshape(-1, *statistics.hessian.shape[-2:])
    if hessian.shape[-1] != columns or len(weight) % len(hessian):
        raise ValueError(
            f"the Hessian of shape {tuple(statistics.hessian.shape)} does not fit a weight of shape"
            f" {tuple(weight.shape)}, which has {columns} columns"
        )
    return hessian
