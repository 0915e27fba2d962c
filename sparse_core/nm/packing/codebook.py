"""Weight sharing: values replaced by the nearest of a few centroids, found by k-means.

Han, Mao, Dally, "Deep Compression", ICLR 2016, section 3: centroids start evenly between the smallest and the
largest value, which keeps some for the few large weights; the gradient of a centroid is the sum of the
gradients of the values that share it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

#: Codes fit a byte.
MOST_ENTRIES = 256


class Codebook(NamedTuple):
    """The result of :func:`fit_codebook`; ``lookup(centroids, codes, zero=zero)`` gives the values.

    Attributes:
        centroids: (entries,) float32, rising.
        codes: uint8 of the values' shape. Where ``zero`` is set code 0 is zero itself and code i + 1 is
            centroid i; else code i is centroid i.
        zero: whether some value is zero, which stays exactly zero and is not trained.
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
    """One-dimensional k-means over the non-zero values, from evenly spaced centroids; no randomness.

    Args:
        values: any shape, floating point, finite.
        entries: different values wanted, 1 to 256, zero included where it occurs. Centroids without values
            are dropped, so fewer may come back; with as many as there are different values nothing is lost.
        rounds: most rounds of k-means.
        importance: how much the error of each value counts, of its shape, at least 0; ``None``: all the same.

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
    # Equal values are counted together: k-means on the distinct ones gives the same with less work.
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
    """Values of codes; differentiable in ``centroids``."""
    if zero:
        centroids = torch.cat([centroids.new_zeros(1), centroids])
    found: Tensor = _Lookup.apply(centroids, codes)
    return found


class _Lookup(torch.autograd.Function):
    """Values of codes, with a gradient that adds up in a fixed order on every device."""

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
    """Bits that tell ``entries`` codes apart."""
    return (entries - 1).bit_length()


def _k_means(distinct: Tensor, mass: Tensor, wanted: int, rounds: int) -> tuple[Tensor, int]:
    """Centroids of sorted values with weights, and the rounds it took (Lloyd's algorithm)."""
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
    """Sums of numbers by rising member, 0 to ``count - 1``, in a fixed order on every device."""
    if not numbers.is_cuda:
        return numbers.new_zeros(count).index_add_(0, members, numbers)
    edges = torch.searchsorted(members, torch.arange(count + 1, device=members.device))
    if count > MOST_ENTRIES:
        return torch.segment_reduce(numbers, "sum", lengths=edges.diff(), unsafe=True, initial=0.0)
    # Few and long ones: each in as many threads as there are.
    return torch.stack([part.sum() for part in numbers.split(edges.diff().tolist())])


def _refill(distinct: Tensor, mass: Tensor, centroids: Tensor, wanted: int) -> Tensor:
    """Put centroids that lost all values where the error is largest, so that none is wasted."""
    nearest = centroids[_nearest(distinct, centroids)]
    error = mass * (distinct - nearest).square()
    worst = torch.sort(error, descending=True, stable=True).indices[: wanted - len(centroids)]
    worst = worst[error[worst] > 0]
    merged: Tensor = torch.unique(torch.cat([centroids, distinct[worst]]))
    return merged


def _nearest(values: Tensor, centroids: Tensor) -> Tensor:
    """Index of the nearest of rising centroids; the lower one of two as near."""
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
    # A value that does not matter still needs a place: a little above nothing.
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
