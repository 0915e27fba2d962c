"""The same model at several sparsities, pruned and converted once, ready to switch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn

from sparse_core.common.surgery import Select
from sparse_core.nm.layers.conversion import sparsify
from sparse_core.nm.pattern import TWO_FOUR, Block, NMPattern
from sparse_core.nm.pruning import prune

#: Dense, 2:4, and blocks at 75 % and 90 % sparsity, best quality first.
LEVELS: dict[str, NMPattern | Block | None] = {
    "dense": None,
    "2:4": TWO_FOUR,
    "block 75 %": Block(16, 0.75),
    "block 90 %": Block(16, 0.9),
}


def prepare_levels(
    model: nn.Module,
    levels: Mapping[str, NMPattern | Block | None] | None = None,
    *,
    select: Select = None,
    **options: Any,
) -> dict[str, nn.Module]:
    """Return a copy of the model for each level; unpruned parts share memory with the model.

    Args:
        model: does not change.
        levels: pattern by name, ``None`` for the model itself; :data:`LEVELS` by default.
        select: layers to prune, see :func:`sparse_core.nm.prune`.
        **options: further options of :func:`sparse_core.nm.prune`, for example ``score`` and ``calibration``.

    Returns:
        Modules by name in the order of ``levels``, for evaluation; fine-tune each one if its accuracy is too
        low.

    Raises:
        ValueError: no levels, or a pattern that fits no layer.
    """
    chosen = LEVELS if levels is None else dict(levels)
    if not chosen:
        raise ValueError("needs at least one level")
    prepared: dict[str, nn.Module] = {}
    for name, pattern in chosen.items():
        if pattern is None:
            prepared[name] = model
            continue
        pruned = copy.deepcopy(model).eval()
        report = prune(pruned, pattern, select=select, **options)
        _share(pruned, model, except_in=set(report.masks))
        prepared[name] = sparsify(pruned, pattern, select=select).model
    return prepared


def _share(copied: nn.Module, model: nn.Module, *, except_in: set[str]) -> None:
    """Make unpruned layers share parameters and buffers with the model again."""
    originals = dict(model.named_modules())
    for name, module in copied.named_modules():
        if name in except_in or name not in originals:
            continue
        module._parameters.update(originals[name]._parameters)
        module._buffers.update(originals[name]._buffers)
