"""Second stage: box arithmetic, crops and samples against other implementations."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from perception.boxes import points_in_boxes, wrap_angle
from perception.config import PillarConfig, RefineConfig
from perception.geometry import BirdsEyeGrid
from perception.model import refine
from perception.model.pillars import Pillars, make_pillars
from perception.model.refine import (
    RefineStage,
    apply_residuals,
    crop_points,
    residuals_between,
    sample_bilinear,
    segment_max,
    to_local,
)


def random_boxes(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.rand(count, 7, generator=generator)
    boxes[:, :3] = boxes[:, :3] * 8 - 4
    boxes[:, 3:6] = boxes[:, 3:6] * 3 + 0.5
    boxes[:, 6] = (boxes[:, 6] - 0.5) * 2 * math.pi
    return boxes


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_residuals_turn_boxes_into_targets(seed: int) -> None:
    boxes, targets = random_boxes(20, seed), random_boxes(20, seed + 1)
    targets[:, 3:6] = boxes[:, 3:6] * torch.exp((targets[:, 3:6] - 2).clamp(-0.9, 0.9))
    residuals, flipped = residuals_between(boxes, targets)
    assert (residuals[:, 6].abs() <= math.pi / 2 + 1e-5).all()
    found = apply_residuals(boxes, residuals)
    torch.testing.assert_close(found[:, :6], targets[:, :6], atol=1e-4, rtol=1e-4)
    turn = wrap_angle(found[:, 6] + math.pi * flipped - targets[:, 6])
    assert torch.minimum(turn.abs(), 2 * math.pi - turn.abs()).max() < 1e-4


def test_a_reversed_box_is_a_flip_and_nothing_else() -> None:
    boxes = random_boxes(8, 0)
    reversed_boxes = boxes + torch.tensor([0, 0, 0, 0, 0, 0, math.pi])
    residuals, flipped = residuals_between(boxes, reversed_boxes)
    assert flipped.all()
    torch.testing.assert_close(residuals, torch.zeros(8, 7), atol=1e-5, rtol=0)
    assert not residuals_between(boxes, boxes)[1].any()


def test_to_local_puts_the_front_ahead() -> None:
    box = torch.tensor([[1.0, 2.0, 0.5, 4.0, 2.0, 1.0, math.pi / 2]])
    front_left_top = torch.tensor([[1.0 - 1.0, 2.0 + 2.0, 1.0]])
    torch.testing.assert_close(
        to_local(front_left_top, box), torch.tensor([[2.0, 1.0, 0.5]]), atol=1e-6, rtol=0
    )


GRID = PillarConfig(range_m=(-5.12, -5.12, -5.0, 5.12, 5.12, 5.0), pillar_size_m=0.32)


def inside_by_hand(
    pillars: Pillars, boxes: torch.Tensor, box_frames: torch.Tensor, margin: float
) -> torch.Tensor:
    """(N, R) bool."""
    enlarged = boxes.clone()
    enlarged[:, 3:6] += 2 * margin
    inside = points_in_boxes(pillars.points, enlarged)
    inside = inside if len(inside) == len(pillars.points) else inside.T
    return inside & (pillars.frames[:, None] == box_frames)


def test_crops_are_the_points_in_enlarged_boxes_of_the_same_frame() -> None:
    generator = torch.Generator().manual_seed(0)
    pillars = make_pillars([torch.rand(2000, 4, generator=generator) * 10 - 5 for _ in range(2)], GRID)
    boxes, box_frames = random_boxes(40, 3), torch.arange(40) % 2
    boxes[0, :2] = torch.tensor([100.0, 0.0])
    boxes[1, :2] = torch.tensor([-5.0, 5.0])
    crop = crop_points(pillars, boxes, box_frames, margin_m=0.4)
    inside = inside_by_hand(pillars, boxes, box_frames, 0.4)
    assert torch.equal(crop.counts, inside.sum(dim=0))
    assert int(crop.counts.max()) > 100
    rows, points = inside.T.nonzero(as_tuple=True)
    assert torch.equal(crop.rows, rows)
    assert torch.equal(crop.points, pillars.points[points])
    torch.testing.assert_close(crop.local, to_local(crop.points[:, :3], boxes[crop.rows]))


def test_crops_of_dense_boxes_are_thinned_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "MAX_CANDIDATES", 100)
    pillars = make_pillars([torch.rand(5000, 4) * 2 - 1], GRID)
    boxes = torch.tensor([[0.0, 0, 0, 4, 4, 4, 0.0], [0.0, 0, 0, 0.4, 0.4, 4, 0.3]])
    crop = crop_points(pillars, boxes, torch.zeros(2, dtype=torch.int64), margin_m=0.0)
    assert int(crop.counts[0]) == 100
    assert torch.equal(crop.points[:100], pillars.points[::50])


@pytest.mark.parametrize(("points", "boxes"), [(0, 5), (100, 0), (0, 0)])
def test_crops_of_nothing(points: int, boxes: int) -> None:
    crop = crop_points(
        make_pillars([torch.rand(points, 4)], GRID),
        random_boxes(boxes, 0) + torch.tensor([4.0, 0, 0, 0, 0, 0, 0]),
        torch.zeros(boxes, dtype=torch.int64),
        margin_m=-3.0,
    )
    assert crop.points.shape == (0, 4)
    assert crop.local.shape == (0, 3)
    assert crop.counts.tolist() == [0] * boxes


def test_samples_are_those_of_grid_sample() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(3, 5, 7, 9, generator=generator)
    cells = torch.rand(11, 6, 2, generator=generator) * torch.tensor([13.0, 11.0]) - 2.0
    frames = torch.arange(11) % 3
    found = sample_bilinear(features, cells, frames)
    grid = (cells + 0.5) * 2 / torch.tensor([9.0, 7.0]) - 1
    expected = F.grid_sample(features[frames], grid[:, :, None], align_corners=False)[..., 0].movedim(1, 2)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_segment_max_is_zero_for_empty_runs() -> None:
    values = torch.tensor([[1.0, 5.0], [2.0, 4.0], [0.5, 0.5]])
    found = segment_max(values, torch.tensor([0, 2, 0, 1, 0]))
    assert found.tolist() == [[0, 0], [2, 5], [0, 0], [0.5, 0.5], [0, 0]]
    assert segment_max(values[:0], torch.tensor([0, 0])).tolist() == [[0, 0], [0, 0]]


def make_stage() -> RefineStage:
    torch.manual_seed(0)
    return RefineStage(
        RefineConfig(channels=(8, 12)),
        classes=2,
        map_channels=3,
        grid=BirdsEyeGrid((-6.0, -6.0, -3.0, 80.0, 40.0, 1.0), 0.5),
    )


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("points", "boxes"), [(500, 6), (0, 6), (500, 0), (0, 0), (500, 1), (1, 1)])
def test_stage_with_any_number_of_points_and_boxes(points: int, boxes: int, training: bool) -> None:
    stage = make_stage().train(training)
    where = random_boxes(boxes, 1)
    cloud = torch.rand(points, 4) * 8 - 4
    if boxes and points == 1:
        cloud[0, :3] = where[0, :3]  # exactly one point in exactly one crop
    output = stage(
        make_pillars([cloud], GRID),
        torch.randn(1, 3, 24, 24),
        where,
        torch.zeros(boxes, dtype=torch.int64),
        torch.zeros(boxes, dtype=torch.int64),
    )
    assert output.residuals.shape == (boxes, 7)
    assert output.fit_logits.shape == output.flip_logits.shape == (boxes,)
    assert all(part.isfinite().all() for part in output)
    assert all(value.isfinite().all() for value in stage.state_dict().values())


def test_a_box_sees_only_points_around_it() -> None:
    stage = make_stage().eval()
    boxes = random_boxes(2, 5)
    boxes[0, :2], boxes[1, :2] = torch.tensor([-4.0, -4.0]), torch.tensor([4.0, 4.0])
    frames, labels = torch.zeros(2, dtype=torch.int64), torch.tensor([0, 1])
    features = torch.randn(1, 3, 24, 24)
    near = boxes[0, :3] + torch.randn(60, 3) * 0.3
    far = boxes[1, :3] + torch.randn(60, 3) * 0.3
    first = torch.cat([near, torch.rand(60, 1)], dim=1)
    both = torch.cat([first, torch.cat([far, torch.rand(60, 1)], dim=1)])
    alone = stage(make_pillars([first], GRID), features, boxes, frames, labels)
    together = stage(make_pillars([both], GRID), features, boxes, frames, labels)
    torch.testing.assert_close(alone.residuals[0], together.residuals[0], atol=1e-7, rtol=1e-5)
    assert not torch.equal(alone.residuals[1], together.residuals[1])
