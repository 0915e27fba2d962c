"""Pillars: against plain loops, whatever the order of the points, and with bad points."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from perception.config import PillarConfig
from perception.model.encoder import PillarEncoder
from perception.model.layers import PointUnit
from perception.model.pillars import Pillars, _lexicographic_order, make_pillars
from sparse_core.errors import CapacityWarning

CONFIG = PillarConfig(range_m=(0.0, -8.0, -3.0, 16.0, 8.0, 1.0), pillar_size_m=0.5, channels=16)


def cloud(count: int, seed: int = 0, *, margin_m: float = 0.0) -> Tensor:
    random = np.random.default_rng(seed)
    low, high = np.array([0, -8, -3, 0.0]) - margin_m, np.array([16, 8, 1, 1.0]) + margin_m
    return torch.from_numpy(random.uniform(low, high, (count, 4)).astype(np.float32))


def encoder() -> PillarEncoder:
    torch.manual_seed(1)
    made = PillarEncoder(CONFIG)
    for unit in (made.points, made.pillars):
        torch.nn.init.normal_(unit.norm.running_mean, std=0.2)
        torch.nn.init.uniform_(unit.norm.running_var, 0.5, 2.0)
    return made.eval()


def unit_by_hand(unit: PointUnit, row: np.ndarray) -> np.ndarray:
    norm = unit.norm
    hidden = unit.linear.weight.detach().double().numpy() @ row
    hidden = (hidden - norm.running_mean.double().numpy()) / np.sqrt(
        norm.running_var.double().numpy() + norm.eps
    )
    return np.maximum(hidden * norm.weight.detach().numpy() + norm.bias.detach().numpy(), 0.0)


def features_by_hand(made: PillarEncoder, points: np.ndarray, iy: int, ix: int) -> np.ndarray:
    x0, y0 = CONFIG.range_m[:2]
    size = CONFIG.pillar_size_m
    centre = np.array([x0 + (ix + 0.5) * size, y0 + (iy + 0.5) * size])
    mean = points[:, :3].mean(axis=0)
    hidden = []
    for point in points:
        row = [*point[:2] / 40, *point[2:4], *(point[:2] - centre) / size, *(point[:3] - mean)]
        hidden.append(unit_by_hand(made.points, np.array(row)))
    summary = [*np.max(hidden, axis=0), *np.mean(hidden, axis=0), mean[2], np.log(len(points))]
    return unit_by_hand(made.pillars, np.array(summary))


def test_features_equal_a_plain_loop() -> None:
    points = torch.cat([cloud(600, margin_m=1.0), cloud(40) * 0.02])  # many pillars and a crowded one
    pillars = make_pillars([points], CONFIG)
    made = encoder()
    with torch.no_grad():
        encoded = made(pillars)
    cells: dict[tuple[int, int], list[np.ndarray]] = {}
    for point in points.double().numpy():
        if (point[:3] >= CONFIG.range_m[:3]).all() and (point[:3] < CONFIG.range_m[3:]).all():
            cell = int((point[1] + 8) // 0.5), int(point[0] // 0.5)
            cells.setdefault(cell, []).append(point)
    assert [(0, *cell) for cell in sorted(cells)] == [tuple(row) for row in encoded.coordinates.tolist()]
    assert pillars.counts.tolist() == [len(cells[cell]) for cell in sorted(cells)]
    expected = [features_by_hand(made, np.array(cells[cell]), *cell) for cell in sorted(cells)]
    np.testing.assert_allclose(encoded.features.numpy(), np.array(expected), atol=2e-5)


def same_pillars(first: Pillars, second: Pillars) -> bool:
    return all(
        torch.equal(a, b)
        for a, b in (
            (first.points, second.points),
            (first.frames, second.frames),
            (first.rows, second.rows),
            (first.counts, second.counts),
            (first.table.coordinates, second.table.coordinates),
        )
    )


def test_order_of_points_does_not_matter() -> None:
    points = torch.cat([cloud(3000), cloud(200)[:50].repeat(3, 1), cloud(500) * 0.01])
    shuffled = points[torch.randperm(len(points), generator=torch.Generator().manual_seed(1))]
    first, second = make_pillars([points], CONFIG), make_pillars([shuffled], CONFIG)
    assert same_pillars(first, second)
    made = encoder()
    with torch.no_grad():
        assert torch.equal(made(first).features, made(second).features)


def test_digest_clashes_are_put_in_lexicographic_order() -> None:
    random = np.random.default_rng(0)
    bits, rows = random.integers(-2, 2, (300, 4)), random.integers(0, 5, 300)
    order = _lexicographic_order(torch.from_numpy(bits), torch.from_numpy(rows)).numpy()
    ranked = np.column_stack([rows, bits[:, ::-1]])[order].tolist()
    assert ranked == sorted(ranked)
    assert sorted(order.tolist()) == list(range(300))


def test_bad_points_are_left_out_and_counted() -> None:
    good = cloud(50)
    bad = good[:6].clone()
    bad[[0, 1, 2, 3], [0, 1, 2, 3]] = torch.nan
    bad[4, 0], bad[5, 2] = torch.inf, -torch.inf
    pillars = make_pillars([torch.cat([bad, good]), good], CONFIG)
    assert pillars.invalid.tolist() == [6, 0]
    assert same_pillars(pillars, make_pillars([good, good], CONFIG))


def test_edges_of_the_range() -> None:
    x1, y1 = CONFIG.range_m[3:5]
    below = float(np.nextafter(np.float32(x1), np.float32(0)))
    kept = torch.tensor([[0.0, -8.0, -3.0, 0.5], [below, 7.9999995, 0.9999999, 0.5]])
    dropped = torch.tensor([[x1, 0, 0, 0], [1, y1, 0, 0], [1, 0, 1, 0], [-1e-6, 0, 0, 0], [1, 0, -3.001, 0]])
    pillars = make_pillars([torch.cat([dropped, kept])], CONFIG)
    assert pillars.table.coordinates.tolist() == [[0, 0, 0], [0, 31, 31]]
    assert len(pillars.points) == 2
    assert pillars.invalid.tolist() == [0]


def test_all_points_in_one_pillar() -> None:
    points = cloud(5000) * torch.tensor([0.01, 0.01, 1.0, 1.0]) + torch.tensor([3.1, 0.2, 0.0, 0.0])
    pillars = make_pillars([points], CONFIG)
    assert pillars.counts.tolist() == [5000]
    assert encoder()(pillars).features.isfinite().all()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("count", [0, 1])
def test_hardly_any_points(count: int, training: bool) -> None:
    made = encoder().train(training)
    encoded = made(make_pillars([cloud(count)], CONFIG))
    assert encoded.features.shape == (count, 16)
    assert encoded.features.isfinite().all()
    assert all(value.isfinite().all() for value in made.state_dict().values())


def test_no_frame_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one frame"):
        make_pillars([], CONFIG)


def test_capacity_keeps_the_nearest_of_each_frame() -> None:
    small = replace(CONFIG, max_pillars=100)
    crowded, sparse = cloud(4000), cloud(60, seed=1)
    with pytest.warns(CapacityWarning, match="pillars left out.*max_pillars"):
        pillars = make_pillars([crowded, sparse], small)
    full = make_pillars([crowded, sparse], CONFIG)
    cells = full.table.coordinates.numpy()
    first = cells[cells[:, 0] == 0]
    distance = np.hypot((first[:, 2] + 0.5) * 0.5, (first[:, 1] + 0.5) * 0.5 - 8)
    kept = {tuple(row) for row in pillars.table.coordinates.tolist()}
    inside = np.array([tuple(row) in kept for row in first.tolist()])
    assert inside.sum() == 100
    assert distance[inside].max() <= distance[~inside].min()
    assert pillars.overflow.tolist() == [len(first) - 100, 0]
    assert {tuple(row) for row in cells[cells[:, 0] == 1].tolist()} <= kept


def test_batch_equals_frames_one_by_one() -> None:
    clouds = [cloud(2000), cloud(0), cloud(3, seed=2), cloud(500, seed=3)]
    together = make_pillars(clouds, CONFIG)
    made = encoder()
    with torch.no_grad():
        encoded = made(together)
    for frame, points in enumerate(clouds):
        alone = make_pillars([points], CONFIG)
        mine = encoded.coordinates[:, 0] == frame
        assert torch.equal(encoded.coordinates[mine][:, 1:], alone.table.coordinates[:, 1:])
        assert torch.equal(together.points[together.frames == frame], alone.points)
        with torch.no_grad():
            torch.testing.assert_close(encoded.features[mine], made(alone).features, atol=1e-6, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1.0, 0.01])
def test_five_million_points(spread: float) -> None:
    points = torch.rand(5_000_000, 4, generator=torch.Generator().manual_seed(0))
    points = points * torch.tensor([15.9, 7.9, 1.0, 1.0]) * torch.tensor([spread, spread, 1.0, 1.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CapacityWarning)
        first = make_pillars([points], CONFIG)
        second = make_pillars([points.flip(0)], CONFIG)
    assert int(first.counts.sum()) == 5_000_000
    assert same_pillars(first, second)
