"""Merge one tensor of several models by weighted sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from sparse_core.merging.arithmetic.masks import (
    Keep,
    RandomShare,
    band,
    largest,
    largest_of_each,
    random_share,
    ranked_share,
    sums_of_magnitudes,
)
from sparse_core.merging.arithmetic.pieces import Delta, compute_dtype, in_threads, piece_size, ranges, spans
from sparse_core.merging.rules import Rule

#: Closer directions are interpolated linearly, because the spherical formula divides by nearly zero.
_PARALLEL = 0.9995
#: Sums of magnitudes below this are not rescaled, as in mergekit.
_TINY_SUM = 1e-7


@dataclass(frozen=True)
class Share:
    """Contribution of one model to a tensor.

    Attributes:
        delta: its difference from the base, or the model itself if models are merged.
        weight: factor; the position on the path for slerp.
        density: share of the numbers to keep.
        gamma: share of the largest magnitudes that breadcrumbs drop.
        epsilon: largest distance of DELLA's keep probabilities from the density.
        number: number of the task vector, for its random mask.
    """

    delta: Delta
    weight: float
    density: float = 1.0
    gamma: float = 0.01
    epsilon: float = 0.15
    number: int = 0


@dataclass(frozen=True)
class _Contribution:
    share: Share
    keep: Keep | None
    #: Weight times the rescaling of kept numbers; normalising divides by the weight alone.
    factor: float

    def for_thread(self) -> _Contribution:
        return replace(self, keep=self.keep.for_thread()) if isinstance(self.keep, RandomShare) else self

    def read(self, start: int, stop: int, out: Tensor) -> Tensor:
        piece = self.share.delta.read(start, stop, out)
        return piece if self.keep is None else self.keep(piece, start)


def merge_tensor(
    base: Tensor | None, shares: Sequence[Share], rule: Rule, *, name: str = "", out: Tensor | None = None
) -> Tensor:
    """Merge the deltas of one tensor and add them to the base, in the type of ``out``.

    Without a base the result is a sum of the models themselves. ``name`` is used for random masks and errors.
    """
    like = shares[0].delta.values if base is None else base
    result = torch.empty_like(like, memory_format=torch.contiguous_format) if out is None else out
    flat, merged = (None if base is None else base.detach().reshape(-1)), result.view(-1)
    count, device = merged.numel(), merged.device
    parts = _parts(shares, rule, name, like.shape, device)
    dtype = compute_dtype(like, *(share.delta.values for share in shares))

    def fill(first: int, last: int) -> None:
        combine = (_SignElection if rule.method.elects else _DeltaSum)(
            parts, rule, last - first, dtype, device
        )
        for start, stop in spans(first, last, piece_size(device)):
            total = combine.piece(start, stop)
            if flat is not None:
                total.add_(flat[start:stop])
            merged[start:stop].copy_(total)
            require_fit(total, merged.dtype, shares, flat, name)

    in_threads([partial(fill, first, last) for first, last in ranges(count, device)], count, device)
    return result


def _parts(
    shares: Sequence[Share], rule: Rule, name: str, shape: torch.Size, device: torch.device
) -> list[_Contribution]:
    """Return the kept part of each share: computed in threads on a CPU, together on a GPU."""
    keeps: list[Keep | None]
    count = shape.numel()
    if rule.method.sparsifier == "largest" and device.type != "cpu":
        keeps = largest_of_each([share.delta for share in shares], [share.density for share in shares])
    else:
        keeps = in_threads([partial(_keep, share, rule, name, shape) for share in shares], count, device)
    if rule.rescale == "l1":
        tasks = [partial(_l1_factor, share, keep) for share, keep in zip(shares, keeps, strict=True)]
        factors = in_threads(tasks, count, device)
        return [
            _Contribution(share, keep, share.weight * factor)
            for share, keep, factor in zip(shares, keeps, factors, strict=True)
        ]
    parts = []
    for share, keep in zip(shares, keeps, strict=True):
        divisor = 1.0
        if isinstance(keep, RandomShare) and rule.rescale == "probability":
            divisor = keep.probability
        parts.append(_Contribution(share, keep, share.weight / divisor))
    return parts


def _l1_factor(share: Share, keep: Keep | None) -> float:
    """Return the factor that restores the sum of magnitudes; 1 if a sum is nearly zero."""
    if keep is None:
        return 1.0
    before, after = sums_of_magnitudes(share.delta, keep)
    return 1.0 if before < _TINY_SUM or after < _TINY_SUM else before / after


def _keep(share: Share, rule: Rule, name: str, shape: torch.Size) -> Keep | None:
    kind = rule.method.sparsifier
    if kind == "largest":
        return largest(share.delta, share.density)
    if kind == "band":
        return band(share.delta, share.density, share.gamma)
    if kind == "random":
        return random_share(share.density, seed=rule.seed, vector=share.number, name=name)
    if kind == "ranked":
        return ranked_share(
            share.delta, shape, share.density, share.epsilon, seed=rule.seed, vector=share.number, name=name
        )
    return None


class _DeltaSum:
    """Weighted sum of the deltas."""

    def __init__(
        self, parts: Sequence[_Contribution], rule: Rule, count: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.parts, self.rule = [part.for_thread() for part in parts], rule
        self.buffer = torch.empty(min(count, piece_size(device)), dtype=dtype, device=device)
        self.total = torch.empty_like(self.buffer)
        divisor = math.fsum(part.share.weight for part in parts) if rule.divides else 1.0
        self.scale = rule.scale / (divisor if abs(divisor) > 1e-8 else 1.0)

    def piece(self, start: int, stop: int) -> Tensor:
        total = self.total[: stop - start].zero_()
        for part in self.parts:
            total.add_(part.read(start, stop, self.buffer), alpha=part.factor)
        return total if self.scale == 1 else total.mul_(self.scale)


class _SignElection:
    """Sign election per position, and the sum or mean of the deltas with that sign (TIES)."""

    def __init__(
        self, parts: Sequence[_Contribution], rule: Rule, count: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.parts, self.rule, self.device = [part.for_thread() for part in parts], rule, device
        # The pieces of all models are read twice; small ones stay in the cache.
        shape = (len(parts), min(count, piece_size(device)))
        self.rows = torch.empty(shape, dtype=dtype, device=device)
        self.total, self.sign, self.weights = (
            torch.empty(shape[1], dtype=dtype, device=device) for _ in range(3)
        )
        self.one = torch.ones((), dtype=dtype, device=device)

    def piece(self, start: int, stop: int) -> Tensor:
        count = stop - start
        total, sign, weights = self.total[:count].zero_(), self.sign[:count], self.weights[:count].zero_()
        rows = [part.read(start, stop, row) for part, row in zip(self.parts, self.rows, strict=True)]
        for part, row in zip(self.parts, rows, strict=True):
            if part.factor != 1:
                row.mul_(part.factor)
            total.add_(row if self.rule.elect == "mass" else torch.sign(row, out=sign))
        # A sum that starts at +0 never becomes -0, so this is -1 below zero and 1 elsewhere.
        torch.copysign(self.one, total, out=sign)
        total.zero_()
        if self.device.type != "cpu":
            # The same with fewer and larger operations.
            self.rows[:, :count].mul_(sign).clamp_min_(0)
            for row in rows:
                total.add_(row)
        for part, row in zip(self.parts, rows, strict=True):
            if self.device.type == "cpu":
                total.add_(row.mul_(sign).clamp_min_(0))
            if self.rule.divides:
                weights.add_(row.sign_(), alpha=part.share.weight)
        if self.rule.divides:
            # The sum is zero if no delta has the sign, or if weights of both signs cancel.
            least = min(part.share.weight for part in self.parts)
            total.div_(weights.clamp_min_(least) if least > 0 else weights.masked_fill_(weights == 0, 1))
        return total.mul_(sign if self.rule.scale == 1 else sign.mul_(self.rule.scale))


def require_fit(
    total: Tensor, dtype: torch.dtype, shares: Sequence[Share], base: Tensor | None, name: str
) -> None:
    """Raise if a piece of the result is not finite; the error names the input that causes it."""
    if total.numel() == 0:
        return
    low, high = torch.stack(torch.aminmax(total)).tolist()
    largest_value = torch.finfo(dtype).max
    if -largest_value <= low and high <= largest_value:
        return
    if base is not None:
        Delta(base, label=f"the base, tensor {name!r},").require_finite(base)
    for share in shares:
        share.delta.require_finite(share.delta.values)
    kind = str(dtype).removeprefix("torch.")
    raise ValueError(
        f"tensor {name!r}: the merged numbers reach {max(-low, high):.3g}, more than {kind} holds:"
        " use smaller weights or dtype float32"
    )


def slerp_tensor(
    first: Tensor, second: Delta, t: float, *, name: str = "", out: Tensor | None = None
) -> Tensor:
    """Interpolate a flattened tensor on the sphere (Shoemake 1985), ``first`` at t = 0, ``second`` at 1.

    Directions within 1.8 degrees, and zero vectors, are interpolated linearly. ``second`` is a :class:`Delta`
    without a base.
    """
    result = torch.empty_like(first, memory_format=torch.contiguous_format) if out is None else out
    ours, merged = Delta(first, label=f"the base, tensor {name!r},"), result.view(-1)
    dtype = compute_dtype(first, second.values)
    size = piece_size(first.device)
    left, right = (torch.empty(min(second.count, size), dtype=dtype, device=first.device) for _ in range(2))
    products = torch.zeros(3, dtype=torch.float64, device=first.device)
    for start, stop in spans(0, second.count, size):
        a, b = ours.read(start, stop, left), second.read(start, stop, right)
        ours.require_finite(a)
        second.require_finite(b)
        for place, (x, y) in enumerate(((a, a), (b, b), (a, b))):
            products[place] += (x * y).sum(dtype=torch.float64)
    length_a, length_b = math.sqrt(float(products[0])), math.sqrt(float(products[1]))
    cosine = float(products[2]) / (length_a * length_b) if length_a and length_b else 1.0
    if abs(cosine) > _PARALLEL:
        of_first, of_second = 1 - t, t
    else:
        angle = math.acos(cosine)
        of_first, of_second = (math.sin(part * angle) / math.sin(angle) for part in (1 - t, t))
    for start, stop in spans(0, second.count, size):
        total = ours.read(start, stop, left).mul_(of_first)
        total.add_(second.read(start, stop, right), alpha=of_second)
        merged[start:stop].copy_(total)
        require_fit(total, merged.dtype, (), None, name)
    return result
