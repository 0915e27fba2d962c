"""Distribution of connections over layers: uniform, Erdős–Rényi, and Erdős–Rényi with the kernel.

Mocanu et al., "Scalable training of artificial neural networks with adaptive sparse connectivity inspired by
network science" (2018); Evci et al. (2020), section 3, for the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

Budget = Literal["uniform", "erdos-renyi", "erdos-renyi-kernel"]


def layer_densities(
    shapes: Mapping[str, Sequence[int]],
    sparsity: float,
    *,
    budget: Budget = "erdos-renyi-kernel",
    dense: Collection[str] = (),
) -> dict[str, float]:
    """Return the density of each layer, so that the whole network has the target sparsity.

    Erdős–Rényi densities are proportional to ``(in + out) / (in * out)``, with the kernel to
    ``(in + out + height + width) / (in * out * height * width)``. A layer that would need more than 1 is
    dense, and the others share the rest.

    Args:
        shapes: (out, in) or (out, in, kernel height, kernel width) of each weight.
        sparsity: share of all weights left out, at least 0 and below 1.
        budget: the rule; ``"uniform"`` gives every layer the same density.
        dense: layers that stay dense. As in the paper, ``"uniform"`` does not make the others sparser in
            return; the other rules do.

    Raises:
        ValueError: an option out of range, unknown names, or more dense weights than the sparsity allows.
    """
    if budget not in get_args(Budget):
        raise ValueError(f"budget must be one of {get_args(Budget)}, got {budget!r}")
    if not 0 <= sparsity < 1:
        raise ValueError(f"sparsity must be at least 0 and below 1, got {sparsity}")
    if unknown := set(dense) - set(shapes):
        raise ValueError(f"no such layers to keep dense: {sorted(unknown)}; there are {sorted(shapes)}")
    for name, shape in shapes.items():
        if len(shape) not in (2, 4) or min(shape) < 1:
            raise ValueError(f"{name}: shape must be (out, in) or (out, in, height, width), got {shape}")
    if budget == "uniform":
        return {name: 1.0 if name in dense else 1 - sparsity for name in shapes}
    return _erdos_renyi(shapes, sparsity, budget, set(dense))


def _erdos_renyi(
    shapes: Mapping[str, Sequence[int]], sparsity: float, budget: Budget, full: set[str]
) -> dict[str, float]:
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    parts = {name: shape if budget == "erdos-renyi-kernel" else shape[:2] for name, shape in shapes.items()}
    raw = {name: sum(part) / math.prod(part) for name, part in parts.items()}
    while True:
        # Connections left for the sparse layers: their own budget minus the excess of dense layers.
        sparse = [name for name in shapes if name not in full]
        allowed = sum((1 - sparsity) * sizes[name] for name in sparse)
        allowed -= sum(sparsity * sizes[name] for name in full)
        if not sparse and sparsity == 0:
            return dict.fromkeys(shapes, 1.0)
        if allowed <= 0:
            raise ValueError(
                f"dense layers {sorted(full)} alone have more weights than sparsity {sparsity} leaves"
            )
        factor = allowed / sum(raw[name] * sizes[name] for name in sparse)
        largest = max(raw[name] for name in sparse)
        if factor * largest <= 1 + 1e-12:
            return {name: 1.0 if name in full else min(1.0, factor * raw[name]) for name in shapes}
        full |= {name for name in sparse if raw[name] == largest}
