"""What C++ does with points is what arrays do, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from background_library import same, with_and_without
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from perception.config import PillarConfig
from perception.model import compiled, pillars, refine
from perception.model.pillars import make_pillars
from perception.model.refine import CroppedPoints, crop_points
from sparse_core.kernels import native

pytestmark = pytest.mark.skipif(native.compiler() is None, reason="needs a C++ compiler")

CONFIG = PillarConfig(range_m=(0.0, -6.4, -3.0, 12.8, 6.4, 1.0), pillar_size_m=0.2, max_pillars=4096)


def both(function: Callable[[], Any]) -> tuple[Any, Any]:
    return with_and_without(compiled.POINTS, function)


def cloud(count: int, seed: int, *, spread: float, bad: bool = False) -> Tensor:
    """Points in and around the range; some on its edges and on those of pillars, some twice, some bad."""
    random = np.random.default_rng(seed)
    points = random.normal([6.0, 0.0, -1.0, 0.3], [spread, spread, 1.0, 0.2], (count, 4)).astype(np.float32)
    third = count // 3
    points[:third, :2] = (points[:third, :2] / np.float32(0.2)).round() * np.float32(0.2)
    points[third : third + third // 2] = points[: third // 2]
    if bad and count:
        for value in (np.nan, np.inf, -np.inf):
            points[random.integers(0, count, 1 + count // 20), random.integers(0, 4)] = value
    return torch.from_numpy(points)


@settings(max_examples=60)
@given(
    counts=st.lists(st.sampled_from([0, 1, 2, 50, 3000]), min_size=1, max_size=3),
    spread=st.sampled_from([0.05, 3.0, 20.0]),
    bad=st.booleans(),
    seed=st.integers(0, 999),
)
def test_pillars(counts: list[int], spread: float, bad: bool, seed: int) -> None:
    clouds = [cloud(count, seed + at, spread=spread, bad=bad) for at, count in enumerate(counts)]
    quick, plain = both(lambda: make_pillars(clouds, CONFIG))
    assert same(quick, plain)


def test_points_on_the_edges_of_the_range() -> None:
    low, high = torch.tensor([CONFIG.range_m[:3]]), torch.tensor([CONFIG.range_m[3:]])
    around = [
        low,
        high,
        torch.nextafter(low, high),
        torch.nextafter(high, low),
        torch.nextafter(low, -high - 9),
    ]
    corners = torch.cat(
        [
            torch.stack([a[0, 0], b[0, 1], c[0, 2], a[0, 0]])[None]
            for a in around
            for b in around
            for c in around
        ]
    )
    quick, plain = both(lambda: make_pillars([corners, corners.flip(0)], CONFIG))
    assert same(quick, plain)
    assert len(quick.points) == 2 * 3**3


def test_more_pillars_than_there_may_be_are_left_to_arrays() -> None:
    small = PillarConfig(range_m=CONFIG.range_m, pillar_size_m=0.2, max_pillars=30)
    with pytest.warns(match="pillars left out"):
        quick, plain = both(lambda: make_pillars([cloud(3000, 0, spread=3.0)], small))
    assert same(quick, plain)
    assert len(quick.table) == 30


def test_different_points_with_one_digest_have_an_order_of_their_own() -> None:
    # Among three million points of one pillar some eight pairs have one digest of 39 bits.
    random = np.random.default_rng(0)
    points = random.uniform(0.01, 0.19, (3_000_000, 4)).astype(np.float32)
    digest = np.zeros(len(points), np.uint64)
    for column in points.view(np.int32).astype(np.int64).view(np.uint64).T:
        digest = (digest ^ column) * np.uint64(0x9E3779B97F4A7C1) + np.uint64(0x7F4A7C15)
        digest ^= (digest.view(np.int64) >> np.int64(29)).view(np.uint64)
    digest &= np.uint64((1 << 39) - 1)
    order = np.argsort(digest)
    first = np.flatnonzero(digest[order[1:]] == digest[order[:-1]])
    pairs = torch.from_numpy(points[np.stack([order[first], order[first + 1]], 1).ravel()])
    assert len(pairs) >= 2
    around = torch.cat([cloud(2 * pillars._CLASHES_FROM, 1, spread=3.0), pairs])
    one, other = (both(lambda cloud=each: make_pillars([cloud], CONFIG)) for each in (around, around.flip(0)))
    assert same(*one)
    assert same(one[0].points, other[0].points)


@settings(max_examples=60)
@given(
    points=st.sampled_from([0, 1, 200, 5000]),
    boxes=st.sampled_from([0, 1, 40]),
    most=st.sampled_from([1, 7, refine.MAX_CANDIDATES]),
    seed=st.integers(0, 999),
)
def test_crops(points: int, boxes: int, most: int, seed: int) -> None:
    made = make_pillars([cloud(points, seed, spread=3.0), cloud(points, seed + 1, spread=3.0)], CONFIG)
    random = torch.Generator().manual_seed(seed)
    drawn = torch.rand((boxes, 7), generator=random)
    boxes_ = drawn * torch.tensor([14.0, 14.0, 3.0, 5.0, 3.0, 2.0, 7.0]) - torch.tensor(
        [0.0, 7, 2.5, 0, 0, 0, 3.5]
    )
    frames = torch.randint(0, 2, (boxes,), generator=random)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(refine, "MAX_CANDIDATES", most)
        quick, plain = both(lambda: crop_points(made, boxes_, frames, margin_m=0.3))
    assert isinstance(quick, CroppedPoints)
    assert same(quick, plain)
