"""The patterns that demos/sparse_attention.py draws, and the point cloud of one of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from perception.io import load_point_cloud
from sparse_core.attention import (
    BlockPattern,
    bigbird,
    dynamic_blocks,
    from_distance,
    global_tokens,
    local_window,
    random_blocks,
    strided,
    top_k_blocks,
)

CURVE_BITS = 10


@dataclass(frozen=True)
class Setting:
    """What the patterns are made for.

    Attributes:
        length: tokens.
        block_size: tokens along a side of a block.
        heads, dim: of the queries and keys that dynamic patterns are chosen by.
        positions: (points, 3) metres in the order of the tokens, at most ``length`` of them.
        radius_m: how far a point sees.
        device: of the patterns.
        seed: of all random numbers.
    """

    length: int
    block_size: int
    heads: int
    dim: int
    positions: Tensor
    radius_m: float
    device: torch.device
    seed: int = 0

    @property
    def window(self) -> int:
        """Tokens on either side, a 32nd of the length."""
        return max(1, self.length // 32)

    @property
    def stride(self) -> int:
        """About an eighth of the length, in whole blocks."""
        return self.block_size * max(2, self.length // 8 // self.block_size)

    def queries_and_keys(self) -> tuple[Tensor, Tensor]:
        """(1, heads, length, dim) each: stretches of the sequence are about one of eight topics."""
        draw = torch.Generator().manual_seed(self.seed)
        stretch = max(1, self.length // 24)
        topics = torch.randn(self.heads, 8, self.dim, generator=draw)
        which = torch.randint(8, (self.heads, -(-self.length // stretch)), generator=draw)
        subject = topics.gather(1, which[..., None].expand(-1, -1, self.dim))
        subject = subject.repeat_interleave(stretch, dim=1)[:, : self.length]
        q, k = (subject + 0.5 * torch.randn(subject.shape, generator=draw) for _ in range(2))
        return q[None].to(self.device), k[None].to(self.device)


class Pattern(NamedTuple):
    """One that the demo draws."""

    title: str
    build: Callable[[Setting], BlockPattern]


def _local(at: Setting) -> BlockPattern:
    return local_window(at.length, at.window, at.block_size, device=at.device)


def _strided(at: Setting) -> BlockPattern:
    columns = strided(at.length, at.stride, at.block_size, device=at.device)
    return (columns | local_window(at.length, at.stride // 2, at.block_size, device=at.device)).causal()


def _global(at: Setting) -> BlockPattern:
    return global_tokens(at.length, at.block_size, at.block_size, device=at.device)


def _random(at: Setting) -> BlockPattern:
    return random_blocks(at.length, 0.1, at.block_size, seed=at.seed, device=at.device)


def _bigbird(at: Setting) -> BlockPattern:
    tokens = at.block_size
    return bigbird(at.length, at.window, tokens, 3, at.block_size, seed=at.seed, device=at.device)


def _radius(at: Setting) -> BlockPattern:
    return from_distance(at.positions.to(at.device), radius=at.radius_m, block_size=at.block_size)


PATTERNS = {
    "local": Pattern("local window", _local),
    "strided": Pattern("strided and local, causal", _strided),
    "global": Pattern("global tokens", _global),
    "random": Pattern("random blocks", _random),
    "bigbird": Pattern("BigBird", _bigbird),
    "causal-bigbird": Pattern("causal BigBird", lambda at: _bigbird(at).causal()),
    "radius": Pattern("radius in space", _radius),
    "top-k": Pattern(
        "top-k of the scores",
        lambda at: top_k_blocks(*at.queries_and_keys(), 0.1, block_size=at.block_size),
    ),
    "dynamic": Pattern(
        "90 % of the probability",
        lambda at: dynamic_blocks(*at.queries_and_keys(), mass=0.9, block_size=at.block_size),
    ),
}


def read_points(path: Path | None, seed: int = 0) -> Tensor:
    """(points, 3) float32 metres of a file, without those that are not finite, or of a made-up street."""
    if path is None:
        return street_scan(seed)
    points = torch.from_numpy(load_point_cloud(path).points[:, :3])
    points = points[points.isfinite().all(dim=1)]
    if not len(points):
        raise ValueError(f"{path}: no point with finite coordinates")
    return points


def street_scan(seed: int = 0) -> Tensor:
    """What a rotating LiDAR sees between house fronts, among cars and trunks.

    Returns:
        (points, 3) float32 metres in the LiDAR frame, beam by beam.
    """
    draw = torch.Generator().manual_seed(seed)

    def between(low: float, high: float, count: int) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=draw)

    cars, trunks, height_m = 14, 12, 1.8
    sides = torch.arange(cars) % 2 * 2 - 1.0
    middle = torch.cat(
        [
            torch.stack([between(-45, 45, cars), sides * between(3.5, 6, cars), torch.zeros(cars)], dim=1),
            torch.stack([between(-40, 40, trunks), between(7.5, 8.5, trunks), torch.zeros(trunks)], dim=1),
        ]
    )
    size = torch.cat(
        [torch.tensor([4.2, 1.8, 3.0]).expand(cars, 3), torch.tensor([0.4, 0.4, 8.0]).expand(trunks, 3)]
    )
    # The ground and two rows of houses are boxes too.
    ground = torch.tensor([[0.0, 0.0, -1.0], [5.0, 14.0, 0.0], [-8.0, -13.0, 0.0]])
    spread = torch.tensor([[200.0, 200.0, 2.0], [70.0, 4.0, 18.0], [80.0, 4.0, 14.0]])
    middle, size = torch.cat([ground, middle]), torch.cat([spread, size])
    middle[:, 2] -= height_m
    azimuth = torch.linspace(-math.pi, math.pi, 1025)[:-1]
    elevation = torch.linspace(-24.0, 4.0, 48).deg2rad()[:, None]
    ray = torch.stack(
        [
            elevation.cos() * azimuth.cos(),
            elevation.cos() * azimuth.sin(),
            elevation.sin().expand(-1, len(azimuth)),
        ],
        dim=2,
    ).reshape(-1, 1, 3)
    ray = torch.where(ray.abs() < 1e-6, 1e-6, ray)
    enter, leave = (middle - size / 2) / ray, (middle + size / 2) / ray
    near, far = torch.minimum(enter, leave).amax(dim=2), torch.maximum(enter, leave).amin(dim=2)
    range_m = near.masked_fill((near > far) | (near <= 0), math.inf).amin(dim=1)
    seen = range_m < 70.0
    range_m = range_m[seen] + 0.02 * torch.randn(int(seen.sum()), generator=draw)
    return ray[seen, 0] * range_m[:, None]


def curve_order(positions: Tensor) -> Tensor:
    """(points,) indices along the Z curve, whose code interleaves the bits of the cells (Morton 1966)."""
    low = positions.amin(dim=0)
    extent = (positions.amax(dim=0) - low).amax().clamp(min=1e-9)
    cell = ((positions - low) / extent * (2**CURVE_BITS - 1)).long()
    code = torch.zeros(len(positions), dtype=torch.long)
    for bit in range(CURVE_BITS):
        for axis in range(3):
            code |= (cell[:, axis] >> bit & 1) << (3 * bit + axis)
    return torch.argsort(code, stable=True)


def sampled(positions: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """At most ``count`` points, spread evenly along the Z curve; sorted along it, and in their own order."""
    order = curve_order(positions)
    kept = order[torch.linspace(0, len(order) - 1, min(count, len(order))).round().long()]
    return positions[kept], positions[kept.sort().values]
