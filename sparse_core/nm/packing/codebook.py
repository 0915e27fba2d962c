"""Weight sharing: values replaced by the nearest of a few centroids, found by k-means.

Han, Mao, Dally, "Deep Compression", ICLR 2016, section 3: centroids start evenly between the smallest and the
largest value, which keeps some for the few large weights. The gradient of a centroid is the sum of the
gradients of the values that share it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

#: Codes fit in a byte.
MOST_ENTRIES = 256


class Codebook(NamedTuple):
    """Result of :func:`fit_codebook`; ``lookup(centroids, codes, zero=zero)`` returns the values.

    Attributes:
        centroids: (entries,) float32, rising.
        codes: uint8 of the values' shape. If ``zero`` is set, code 0 is zero and code i + 1 is centroid i;
            else code i is centroid i.
        zero: True if some value is zero, which stays exactly zero and is not trained.
        error: sum of squared differences from the values.
        rounds: k-means rounds until no value changed its centroid.
    """

    centroids: Tensor
    codes: Tensor
    zero: bool
    error: float
    rounds: int


def fit_codebook(
    values: Tensor, entries: int = 16, *, rounds: int = 100, importance: Tensor | None = None
) -> Codebook:
    """Run one-dimensional k-means over the non-zero values, from evenly spaced centroids; deterministic.

    Args:
        values: any shape, floating point, finite.
        entries: different values wanted, 1 to 256, including zero if it occurs. Centroids without values are
            dropped, so fewer may come back. It is lossless if it reaches the number of different values.
        rounds: largest number of k-means rounds.
        importance: weight of each value's error, of its shape, at least 0; equal by default.

    Raises:
        TypeError: ``values`` is not floating point.
        ValueError: NaN or infinite values, entries below 1, above 256 or above the number of values, or
            ``importance`` of another shape or negative.
    """
    if not values.is_floating_point():
        raise TypeError(f"values must be floating point, got {values.dtype}")
    exact = values.detach().double().flatten()
    _check(exact, entries)
    zero = bool((exact == 0).any())
    nonzero = exact != 0
    wanted = entries - zero
    if not wanted and bool(nonzero.any()):
        raise ValueError("a codebook of 1 entry cannot hold zero and other values: use entries=2 or more")
    weights = _importance(importance, values)[nonzero]
    # Equal values are counted together: k-means on distinct values gives the same with less work.
    distinct, place = torch.unique(exact[nonzero], return_inverse=True)
    ordered, order = torch.sort(place, stable=True)
    mass = _sums(weights[order], ordered, len(distinct))
    centroids, used = _k_means(distinct, mass, wanted, rounds) if len(distinct) else (distinct, 0)
    kept = centroids.float()
    codes = torch.zeros(exact.shape, dtype=torch.uint8, device=values.device)
    if len(kept):
        codes[nonzero] = (_nearest(distinct, kept.double())[place] + zero).to(torch.uint8)
    error = float((lookup(kept, codes, zero=zero).double() - exact).square().sum())
    return Codebook(kept, codes.reshape(values.shape), zero, error, used)


def lookup(centroids: Tensor, codes: Tensor, *, zero: bool) -> Tensor:
    """Return the values of codes; differentiable in ``centroids``."""
    if zero:
        centroids = torch.cat([centroids.new_zeros(1), centroids])
    found: Tensor = _Lookup.apply(centroids, codes)
    return found


class _Lookup(torch.autograd.Function):
    """Values of codes, with a gradient that is summed in a fixed order on every device."""

    generate_vmap_rule = True

    @staticmethod
    def forward(centroids: Tensor, codes: Tensor) -> Tensor:
        return centroids.index_select(0, codes.flatten().int()).reshape(codes.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.entries = len(inputs[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (codes,) = ctx.saved_tensors
        if not gradient.is_cuda:
            total = gradient.new_zeros(ctx.entries)
            return total.index_add_(0, codes.flatten().int(), gradient.flatten()), None
        return torch.stack(
            [torch.where(codes == code, gradient, 0).sum() for code in range(ctx.entries)]
        ), None


def code_bits(entries: int) -> int:
    """Return the bits of a code for ``entries`` entries."""
    return (entries - 1).bit_length()


def _k_means(distinct: Tensor, mass: Tensor, wanted: int, rounds: int) -> tuple[Tensor, int]:
    """Return centroids of sorted, weighted values and the number of rounds (Lloyd's algorithm)."""
    if len(distinct) <= wanted:
        return distinct, 0
    centroids = torch.linspace(
        float(distinct[0]), float(distinct[-1]), wanted, dtype=distinct.dtype, device=distinct.device
    )
    members = _nearest(distinct, centroids)
    for used in range(1, rounds + 1):
        total = _sums(mass, members, len(centroids))
        moment = _sums(mass * distinct, members, len(centroids))
        filled = total > 0
        centroids = moment[filled] / total[filled]
        if len(centroids) < wanted:
            centroids = _refill(distinct, mass, centroids, wanted)
        fresh = _nearest(distinct, centroids)
        if torch.equal(fresh, members):
            return centroids, used
        members = fresh
    return centroids, rounds


def _sums(numbers: Tensor, members: Tensor, count: int) -> Tensor:
    """Sum numbers by rising member, 0 to ``count - 1``, in a fixed order on every device."""
    if not numbers.is_cuda:
        return numbers.new_zeros(count).index_add_(0, members, numbers)
    edges = torch.searchsorted(members, torch.arange(count + 1, device=members.device))
    if count > MOST_ENTRIES:
        return torch.segment_reduce(numbers, "sum", lengths=edges.diff(), unsafe=True, initial=0.0)
    # Few long segments: each is summed by many threads.
    return torch.stack([part.sum() for part in numbers.split(edges.diff().tolist())])


def _refill(distinct: Tensor, mass: Tensor, centroids: Tensor, wanted: int) -> Tensor:
    """Move centroids without values to the values with the largest error."""
    nearest = centroids[_nearest(distinct, centroids)]
    error = mass * (distinct - nearest).square()
    worst = torch.sort(error, descending=True, stable=True).indices[: wanted - len(centroids)]
    worst = worst[error[worst] > 0]
    merged: Tensor = torch.unique(torch.cat([centroids, distinct[worst]]))
    return merged


def _nearest(values: Tensor, centroids: Tensor) -> Tensor:
    """Return the index of the nearest of rising centroids; ties go to the lower one."""
    middles = (centroids[1:] + centroids[:-1]) / 2
    places: Tensor = torch.searchsorted(middles, values)
    return places


def _importance(importance: Tensor | None, values: Tensor) -> Tensor:
    if importance is None:
        return torch.ones(values.numel(), dtype=torch.float64, device=values.device)
    if importance.shape != values.shape or not bool((importance.isfinite() & (importance >= 0)).all()):
        raise ValueError(
            f"importance must be finite, at least 0 and of shape {tuple(values.shape)}, got"
            f" {tuple(importance.shape)}"
        )
    # Values of zero importance still need a centroid, so they get a tiny weight.
    return importance.detach().double().flatten().clamp_min(1e-30)


def _check(values: Tensor, entries: int) -> None:
    if not bool(values.isfinite().all()):
        raise ValueError("values hold NaN or infinite values: no codebook fits them")
    if not 1 <= entries <= MOST_ENTRIES:
        raise ValueError(f"a codebook has 1 to {MOST_ENTRIES} entries, got {entries}")
    if entries > values.numel():
        raise ValueError(
            f"a codebook of {entries} entries is larger than the {values.numel()} values:"
            " use fewer entries, or store the values"
        )
