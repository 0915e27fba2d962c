"""Merges that are linear combinations of the inputs with factors from their dot products.

NuSLERP, model stock and Karcher means need only lengths and angles of the tensors. One pass sums all dot
products in float64, piece by piece; another sums the inputs with the resulting factors. So memory holds one
piece of each model, however large they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from sparse_core.merging.arithmetic.pieces import Delta, compute_dtype, piece_size, spans
from sparse_core.merging.arithmetic.sums import require_fit

#: Function from the dot products (rows, inputs, inputs) to the factors (rows, inputs), float64.
Factors = Callable[[Tensor], Tensor]


def combine_span(
    base: Tensor | None,
    inputs: Sequence[Delta],
    factors: Factors,
    out: Tensor,
    *,
    rows: int = 1,
    name: str = "",
) -> None:
    """Write ``base + Σ factor · input`` to ``out``, with factors from the inputs' dot products.

    ``rows`` equal parts of the flat tensor are combined, each with its own factors. Without a base it is
    zero. ``name`` names the tensor in errors.
    """
    count, device = inputs[0].count, out.device
    if not count:
        return
    width, flat = count // rows, out.view(-1)
    start_of = None if base is None else base.detach().reshape(-1)
    dtype = compute_dtype(out if base is None else base, *(one.values for one in inputs))
    size = piece_size(device)
    together = max(1, size // width)
    room = torch.empty(len(inputs), min(count, max(together * width, size)), dtype=dtype, device=device)
    for first, last in spans(0, rows, together):
        products = torch.zeros(last - first, len(inputs), len(inputs), dtype=torch.float64, device=device)
        for start, stop in _pieces(first, last, width, size):
            parts = [one.read(start, stop, buffer) for one, buffer in zip(inputs, room, strict=True)]
            for one, part in zip(inputs, parts, strict=True):
                one.require_finite(part)
            _add_products(products, [part.view(last - first, -1) for part in parts])
        weights = factors(products.cpu()).to(device, dtype)
        for start, stop in _pieces(first, last, width, size):
            total = torch.zeros(last - first, (stop - start) // (last - first), dtype=dtype, device=device)
            for number, (one, buffer) in enumerate(zip(inputs, room, strict=True)):
                total.addcmul_(one.read(start, stop, buffer).view(total.shape), weights[:, number, None])
            if start_of is not None:
                total += start_of[start:stop].view(total.shape)
            flat[start:stop].copy_(total.view(-1))
            require_fit(total, flat.dtype, (), start_of, name)


def _pieces(first: int, last: int, width: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield flat spans: several rows if they fit at once, else pieces of a row."""
    if last - first > 1:
        return iter([(first * width, last * width)])
    return spans(first * width, last * width, size)


def _add_products(products: Tensor, parts: Sequence[Tensor]) -> None:
    for i, x in enumerate(parts):
        for j, y in enumerate(parts[: i + 1]):
            found = (x * y).sum(dim=1, dtype=torch.float64)
            products[:, i, j] += found
            if i != j:
                products[:, j, i] += found


def _lengths(products: Tensor) -> Tensor:
    return products.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()


def nuslerp_factors(t: float) -> Factors:
    """Return the factors of mergekit's NuSLERP: spherical interpolation without a cut at small angles.

    ``t`` is the position on the path, 0 for the first input.
    """

    def factors(products: Tensor) -> Tensor:
        length = _lengths(products).clamp_min(1e-7)
        cosine = (products[:, 0, 1] / (length[:, 0] * length[:, 1])).clamp(-1, 1)
        parallel = 1 - cosine.square() <= 1e-16
        angle = torch.acos(torch.where(parallel, 0.0, cosine))
        around = (
            torch.stack([torch.sin((1 - t) * angle), torch.sin(t * angle)], 1) / torch.sin(angle)[:, None]
        )
        straight = torch.tensor([1 - t, t], dtype=torch.float64)
        return torch.where(parallel[:, None], straight, around)

    return factors


def model_stock_factors(products: Tensor) -> Tensor:
    """Return the factors of model stock (Jang, Yun and Han 2024, eq. 8), between base and mean.

    t = k cos / (1 + (k - 1) cos) with the mean cosine between k differences from the base; 0 if that is not
    finite.
    """
    models = products.shape[1]
    length = _lengths(products)
    cosines = [
        (products[:, i, j] / (length[:, i] * length[:, j]).clamp_min(1e-6)).clamp(-1, 1)
        for i in range(models)
        for j in range(i)
    ]
    mean = torch.stack(cosines).mean(dim=0)
    below = 1 + (models - 1) * mean
    singular = below.abs() < 1e-6
    t = torch.where(singular, 0.0, models * mean / torch.where(singular, 1.0, below))
    return (t / models)[:, None].expand(-1, models)


def karcher_factors(max_iter: int, tol: float) -> Factors:
    """Return the factors of the Karcher mean on the sphere, times the inputs' mean length.

    It minimises the sum of squared angles to all inputs (Karcher 1977; Afsari 2011), in at most ``max_iter``
    steps. Lengths, angles and steps below ``tol`` count as zero.
    """

    def factors(products: Tensor) -> Tensor:
        return torch.stack([_karcher(row, max_iter, tol) for row in products])

    return factors


def _karcher(products: Tensor, max_iter: int, tol: float) -> Tensor:
    lengths = products.diagonal().clamp_min(0).sqrt()
    valid = lengths > tol
    if not bool(valid.any()):
        return torch.zeros_like(lengths)
    inverse = torch.where(valid, 1 / lengths, 0.0)
    unit = products * inverse[:, None] * inverse
    share = valid.to(products.dtype) / valid.sum()
    # The point is a combination of unit vectors; its dot products with them are unit @ point.
    point = share.clone()
    size = _norm(unit, point)
    if size < tol:
        point = torch.zeros_like(share)
        point[int(valid.nonzero()[0])] = 1
    else:
        point = point / size
    for _ in range(max_iter):
        cosine = (unit @ point).clamp(-1, 1)
        angle = torch.acos(cosine)
        away = valid & (angle >= tol)
        pull = torch.where(away, share * angle / torch.sin(torch.where(away, angle, 1.0)), 0.0)
        tangent = pull - (pull * cosine).sum() * point
        step = _norm(unit, tangent)
        if step < tol:
            break
        point = math.cos(step) * point + math.sin(step) / step * tangent
        size = _norm(unit, point)
        if size > tol:
            point = point / size
    return point * inverse * lengths.mean()


def _norm(products: Tensor, point: Tensor) -> float:
    return math.sqrt(max(float(point @ products @ point), 0.0))
