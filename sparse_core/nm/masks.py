"""Masks that keep the best n of each m neighbouring weights, or the best blocks."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from sparse_core.nm.pattern import (
    Block,
    ConvLayout,
    NMPattern,
    Pattern,
    check_groups,
    weight_from_matrix,
    weight_matrix,
)

# Up to this size of a group all pairs of weights are compared; larger groups are sorted.
COMPARED_GROUP = 8


def nm_mask(
    weight: Tensor,
    n: int,
    m: int,
    score: Tensor | Literal["magnitude"] = "magnitude",
    *,
    conv_layout: ConvLayout = "unfold",
    check_nan: bool = True,
) -> Tensor:
    """Return a mask that keeps the ``n`` best scores in each group of ``m`` along the input dimension.

    Ties go to the lower position, so the mask is the same on every device.

    Args:
        weight: (out, in) or (out, in, kernel height, kernel width), floating point or integer.
        n: weights to keep per group.
        m: weights per group.
        score: ``"magnitude"``, or a real tensor of the weight's shape; larger is kept, infinities are valid.
        conv_layout: order of a convolution's input dimension, see :class:`NMPattern`.
        check_nan: raise on NaN, which waits for the device; otherwise NaN ranks as minus infinity.

    Returns:
        Bool tensor of the weight's shape.

    Raises:
        TypeError: complex ``weight`` or ``score``.
        ValueError: an invalid n:m, m does not divide the input dimension, another shape of ``score``, or NaN.
    """
    NMPattern(n, m, conv_layout)
    ranked = _scores_to_rank(weight, score, check_nan=check_nan)
    matrix = weight_matrix(ranked, conv_layout)
    check_groups(matrix.shape[1], m)
    groups = matrix.reshape(matrix.shape[0], matrix.shape[1] // m, m)
    kept = _best_by_comparison(groups, n) if m <= COMPARED_GROUP else _best_by_sorting(groups, n)
    return weight_from_matrix(kept.reshape(matrix.shape), tuple(weight.shape), conv_layout).contiguous()


def block_mask(
    weight: Tensor,
    block: Block,
    score: Tensor | Literal["magnitude"] = "magnitude",
    *,
    conv_layout: ConvLayout = "unfold",
) -> Tensor:
    """Return a mask of the blocks with the largest sum of squared scores; at least one.

    The edge of the matrix may cut the last blocks. Ties go to the first block in row-major order.

    Args:
        weight: (out, in) or (out, in, kernel height, kernel width).
        block: block size and share to drop; ``round(density * blocks)`` are kept.
        score: ``"magnitude"``, or a real tensor of the weight's shape.
        conv_layout: order of a convolution's input dimension, see :class:`NMPattern`.

    Returns:
        Bool tensor of the weight's shape.

    Raises:
        TypeError: complex ``weight`` or ``score``.
        ValueError: another shape of ``score``, or NaN.
    """
    ranked = weight_matrix(_scores_to_rank(weight, score, check_nan=True), conv_layout)
    rows, columns = ranked.shape
    size = block.size
    down, across = -(-rows // size), -(-columns // size)
    padded = torch.nn.functional.pad(
        ranked.to(torch.float64), (0, across * size - columns, 0, down * size - rows)
    )
    energy = padded.square().reshape(down, size, across, size).sum(dim=(1, 3)).flatten()
    kept = torch.zeros_like(energy, dtype=torch.bool)
    count = min(len(energy), max(1, round(block.density * len(energy))))
    kept[torch.sort(energy, descending=True, stable=True).indices[:count]] = True
    entries = kept.reshape(down, across).repeat_interleave(size, 0).repeat_interleave(size, 1)
    return weight_from_matrix(entries[:rows, :columns], tuple(weight.shape), conv_layout).contiguous()


def check_nm(
    tensor: Tensor, n: int, m: int, *, conv_layout: ConvLayout = "unfold", name: str | None = None
) -> None:
    """Raise unless ``tensor`` is n:m along the input dimension.

    Args:
        tensor: a bool mask, which must keep exactly ``n`` per group, or a weight, which may have at most
            ``n`` nonzeros; (out, in) or (out, in, kernel height, kernel width).
        n: weights to keep per group.
        m: weights per group.
        conv_layout: order of a convolution's input dimension, see :class:`NMPattern`.
        name: name in errors; ``"mask"`` or ``"weight"`` by default.

    Raises:
        ValueError: a group has another number; the message names the first row and group.
    """
    is_mask = tensor.dtype == torch.bool
    name = name or ("mask" if is_mask else "weight")
    NMPattern(n, m, conv_layout)
    matrix = weight_matrix(tensor, conv_layout, name=name)
    check_groups(matrix.shape[1], m, name=name)
    kept = (matrix != 0).reshape(matrix.shape[0], matrix.shape[1] // m, m).sum(dim=2)
    wrong = kept != n if is_mask else kept > n
    places = wrong.nonzero()
    if len(places):
        row, group = (int(place) for place in places[0])
        found = int(kept[row, group])
        expected = f"exactly {n} true entries" if is_mask else f"at most {n} nonzeros"
        raise ValueError(
            f"{name} is not {n}:{m}: row {row}, group {group} (columns {group * m} to {group * m + m - 1})"
            f" has {found}, expected {expected}; {len(places)} of {kept.numel()} groups are wrong"
        )


def _scores_to_rank(weight: Tensor, score: Tensor | str, *, check_nan: bool) -> Tensor:
    """Return the scores to compare: real, of the weight's shape, without NaN."""
    if weight.is_complex():
        raise TypeError(f"weight must be real, got {weight.dtype}")
    if isinstance(score, Tensor):
        name, ranked = "score", score.detach()
        if ranked.shape != weight.shape:
            raise ValueError(
                f"score must have the weight's shape {tuple(weight.shape)}, got {tuple(ranked.shape)}"
            )
        if ranked.is_complex():
            raise TypeError(f"score must be real, got {ranked.dtype}")
    elif score == "magnitude":
        # The absolute value of the most negative int8 needs a wider type.
        plain = weight.detach()
        name, ranked = "weight", (plain if plain.is_floating_point() else plain.to(torch.float64)).abs()
    else:
        raise ValueError(
            f"score must be 'magnitude' or a tensor of the weight's shape, got {score!r}:"
            " sparse_core.nm.pruning.scores computes the others"
        )
    if not ranked.is_floating_point():
        return ranked
    if not check_nan:
        return torch.where(ranked.isnan(), float("-inf"), ranked)
    missing = ranked.isnan()
    if missing.any():
        position = tuple(missing.nonzero()[0].tolist())
        raise ValueError(f"{name} is NaN at {position}; {int(missing.sum())} of {missing.numel()} are NaN")
    return ranked


def _best_by_comparison(groups: Tensor, n: int) -> Tensor:
    """Return a bool (out, groups, m) with the n best of each group, by counting better entries."""
    m = groups.shape[2]
    columns = groups.unbind(dim=2)
    before = [torch.zeros_like(column, dtype=torch.uint8) for column in columns]
    for left in range(m):
        for right in range(left + 1, m):
            first = columns[left] >= columns[right]
            before[right] += first
            before[left] += ~first
    return torch.stack([rank < n for rank in before], dim=2)


def _best_by_sorting(groups: Tensor, n: int) -> Tensor:
    """Return the result of :func:`_best_by_comparison` by a stable sort."""
    if groups.is_floating_point():
        groups = groups + 0.0  # A radix sort distinguishes -0.0 from 0.0.
    order = torch.sort(groups, dim=2, descending=True, stable=True).indices[:, :, :n]
    return torch.zeros_like(groups, dtype=torch.bool).scatter_(2, order, True)


def pattern_mask(
    weight: Tensor,
    pattern: Pattern | None,
    score: Tensor | Literal["magnitude"] = "magnitude",
    *,
    check_nan: bool = True,
) -> Tensor:
    """Return the best mask of the weight's shape for a pattern; all true for ``None`` (dense).

    ``score`` and ``check_nan`` are those of :func:`nm_mask`.
    """
    if pattern is None:
        return torch.ones_like(weight, dtype=torch.bool)
    if isinstance(pattern, Block):
        return block_mask(weight, pattern, score)
    if not isinstance(pattern, NMPattern):
        raise TypeError(f"pattern must be NMPattern, Block or None, got {pattern!r}")
    return nm_mask(weight, pattern.n, pattern.m, score, conv_layout=pattern.conv_layout, check_nan=check_nan)


def fits(weight: Tensor, pattern: NMPattern) -> bool:
    """Return True if (out, in) has at most n nonzeros per group; waits for the device."""
    out, columns = weight.shape
    nonzeros = (weight != 0).reshape(out, columns // pattern.m, pattern.m).sum(dim=2)
    return not bool((nonzeros > pattern.n).any())
