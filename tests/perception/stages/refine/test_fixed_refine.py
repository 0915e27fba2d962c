"""The reference of a fixed refinement step against the dynamic stage."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from perception.checkpoints.weights import load_weights
from perception.config import PillarConfig, RefineConfig
from perception.model.layers import fold_batch_norms
from perception.model.pillars import make_pillars
from perception.model.refine import RefineStage, apply_residuals
from perception.stages.pillars import FixedPillars, fixed_pillars
from perception.stages.refine import RefinedBoxes, RefineWorkspace, fixed_refine, pack_refine
from sparse_core.errors import ImplementationError

GRID = PillarConfig(range_m=(-3.0, -5.12, -3.0, 9.8, 5.12, 3.0), pillar_size_m=0.32)
MAP_SHAPE = (8, 10)
CLASSES, CHANNELS = 2, 6


def make_stage(widths: tuple[int, ...] = (8, 12, 20)) -> RefineStage:
    torch.manual_seed(0)
    stage = RefineStage(
        RefineConfig(channels=widths, margin_m=0.4),
        classes=CLASSES,
        map_channels=CHANNELS,
        grid=GRID.grid.coarser(4),
    )
    for part in stage.modules():
        if isinstance(part, torch.nn.BatchNorm1d):
            assert part.running_mean is not None
            part.running_mean.uniform_(-0.3, 0.3)
            part.bias.data.uniform_(-0.3, 0.3)
    stage.out.weight.data.normal_(std=0.1)
    return stage.eval()


def make_scene(seed: int, boxes: int, points: int = 1500) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """Clouds of two frames, map (2, C, H, W), boxes (2, K, 7) and labels (2, K)."""
    generator = torch.Generator().manual_seed(seed)
    low, high = torch.tensor(GRID.range_m[:3]), torch.tensor(GRID.range_m[3:])
    clouds = [torch.rand(count, 4, generator=generator) for count in (points, points // 3)]
    for cloud in clouds:
        cloud[:, :3] = cloud[:, :3] * (high - low) + low
    features = torch.randn(2, CHANNELS, *MAP_SHAPE, generator=generator)
    found = torch.rand(2, boxes, 7, generator=generator)
    found[..., :2] = found[..., :2] * 16 + torch.tensor([-5.0, -8.0])
    found[..., 3:6] = found[..., 3:6] * 4 + 0.3
    found[..., 6] = (found[..., 6] - 0.5) * 20
    return clouds, features, found, torch.randint(0, CLASSES, (2, boxes), generator=generator).int()


def fixed(clouds: list[Tensor], capacity: int = 1400) -> FixedPillars:
    points = torch.zeros(len(clouds), max(1, *map(len, clouds)), 4)
    for row, cloud in zip(points, clouds, strict=True):
        row[: len(cloud)] = cloud
    lengths = torch.tensor([len(cloud) for cloud in clouds], dtype=torch.int32)
    return fixed_pillars(points, lengths, GRID, capacity, impl="reference")


def rows(features: Tensor) -> Tensor:
    return features.permute(0, 2, 3, 1).reshape(-1, features.shape[1])


def dynamic(
    stage: RefineStage, clouds: list[Tensor], features: Tensor, boxes: Tensor, labels: Tensor
) -> RefinedBoxes:
    """The stage on every box of both frames."""
    frames = torch.arange(len(clouds)).repeat_interleave(boxes.shape[1])
    with torch.no_grad():
        output = stage(
            make_pillars(clouds, GRID), features, boxes.view(-1, 7), frames, labels.flatten().long()
        )
        refined = apply_residuals(boxes.view(-1, 7), output.residuals)
    shape = labels.shape
    return RefinedBoxes(
        refined.view(*shape, 7),
        labels,
        output.fit_logits.view(shape),
        output.flip_logits.view(shape),
        output.features.view(*shape, -1),
    )


def agree(found: RefinedBoxes, expected: RefinedBoxes) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=1e-5)


def options() -> dict[str, object]:
    return {"map_shape": MAP_SHAPE, "pillar_size_m": GRID.pillar_size_m}


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(1, 12), st.booleans())
def test_equals_the_dynamic_stage(seed: int, boxes: int, folded: bool) -> None:
    stage = make_stage()
    clouds, features, found, labels = make_scene(seed, boxes)
    expected = dynamic(stage, clouds, features, found, labels)
    if folded:
        fold_batch_norms(stage)
    weights = pack_refine(stage, dtype=torch.float32)
    result = fixed_refine(fixed(clouds), rows(features), found, labels, weights, **options())  # type: ignore[arg-type]
    agree(result, expected)
    assert (result.boxes - found).abs().max() > 1e-3


def test_chosen_boxes_absent_ones_and_half_turns() -> None:
    stage = make_stage()
    clouds, features, boxes, labels = make_scene(3, 8)
    # About half of the headings are to be turned.
    stage.out.bias.data[8] -= dynamic(stage, clouds, features, boxes, labels).flip_logits.median()
    expected = dynamic(stage, clouds, features, boxes, labels)
    indices = torch.tensor([[7, 0, -1, 3], [2, -1, 5, 4]], dtype=torch.int32)
    labels[1, 5] = -1
    boxes[1, 5] = torch.nan
    result = fixed_refine(
        fixed(clouds),
        rows(features),
        boxes,
        labels,
        pack_refine(stage, dtype=torch.float32),
        indices=indices,
        turn=True,
        **options(),  # type: ignore[arg-type]
    )
    turn = torch.where(expected.flip_logits > 0, math.pi, 0.0)
    expected.boxes[..., 6] += turn
    assert 0 < int((turn > 0).sum()) < 16
    for frame, place in ((0, 2), (1, 1), (1, 2)):
        assert result.labels[frame, place] == -1
        assert all(not part[frame, place].any() for part in (result.boxes, *result[2:]))
    for frame, place in ((0, 0), (0, 1), (0, 3), (1, 0), (1, 3)):
        source = int(indices[frame, place])
        for one, other in zip(result, expected, strict=True):
            torch.testing.assert_close(one[frame, place], other[frame, source], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("points", [0, 1])
def test_nothing_to_crop(points: int) -> None:
    stage = make_stage()
    clouds, features, boxes, labels = make_scene(0, 3, points)
    weights = pack_refine(stage, dtype=torch.float32)
    result = fixed_refine(fixed(clouds), rows(features), boxes, labels, weights, **options())  # type: ignore[arg-type]
    agree(result, dynamic(stage, clouds, features, boxes, labels))
    none = fixed_refine(
        fixed(clouds), rows(features), boxes[:, :0], labels[:, :0], weights, **options()  # type: ignore[arg-type]
    )  # fmt: skip
    assert [part.shape for part in none] == [(2, 0, 7), (2, 0), (2, 0), (2, 0), (2, 0, 256)]


def test_pillars_without_a_row_have_no_points() -> None:
    stage = make_stage()
    clouds, features, boxes, labels = make_scene(1, 6)
    pillars = fixed(clouds, capacity=300)
    assert int(pillars.grid.active) > 300
    weights = pack_refine(stage, dtype=torch.float32)
    result = fixed_refine(pillars, rows(features), boxes, labels, weights, **options())  # type: ignore[arg-type]
    # The first pillars are the first frame's, so the second frame is empty.
    kept = pillars.points[: int(pillars.kept)]
    agree(result, dynamic(stage, [kept, kept[:0]], features, boxes, labels))


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.float16, 1e-3)])
def test_trained_weights_on_a_real_frame(kitti_directory: Path, dtype: torch.dtype, error: float) -> None:
    """The shipped cascade's boxes, from float16 weights and map too."""
    network = load_weights("pointpillars-kitti").eval()
    config = network.config
    cloud = torch.from_numpy(
        np.fromfile(sorted((kitti_directory / "training").glob("velodyne*/*.bin"))[0], dtype=np.float32)
    ).view(-1, 4)
    generator = torch.Generator().manual_seed(0)
    shape = tuple(size // 4 for size in config.pillars.grid_shape)
    features = torch.randn(1, config.neck.out_channels, *shape, generator=generator).relu()
    pillars = make_pillars([cloud], config.pillars)
    near = pillars.points[torch.randperm(len(pillars.points), generator=generator)[:16]]
    sizes = torch.tensor([3.9, 1.6, 1.56]).expand(16, 3)
    boxes = torch.cat([near[:, :3], sizes, torch.rand(16, 1, generator=generator) * 6], dim=1)
    labels = torch.arange(16) % 3
    held = fixed_pillars(
        cloud[None], torch.tensor([len(cloud)], dtype=torch.int32), config.pillars, 20_000, impl="reference"
    )
    expected, found = boxes, boxes[None]
    for stage in network.refinements:
        assert isinstance(stage, RefineStage)
        with torch.no_grad():
            output = stage(pillars, features, expected, torch.zeros(16, dtype=torch.int64), labels)
        expected = apply_residuals(expected, output.residuals)
        found = fixed_refine(
            held,
            rows(features).to(dtype),
            found,
            labels[None].int(),
            pack_refine(stage, dtype=dtype),
            map_shape=(shape[0], shape[1]),
            pillar_size_m=config.pillars.pillar_size_m,
        ).boxes
    assert (expected - boxes).abs().max() > 0.1
    assert ((found[0] - expected).abs() / expected.abs().clamp(min=1.0)).max() < error


def test_packing_pads_and_leaves_the_stage_alone() -> None:
    stage = make_stage()
    before = {name: tensor.clone() for name, tensor in stage.state_dict().items()}
    weights = pack_refine(stage)
    assert weights.dtype == torch.float16
    assert [tuple(tensor.shape) for tensor in (weights.points_1, weights.points_2, weights.points_3)] == [
        (16, 16),
        (16, 16),
        (16, 32),
    ]
    assert tuple(weights.joined_map.shape) == (5, 16, 256)
    assert tuple(weights.joined_rest.shape) == (CLASSES + 4, 256)
    assert (weights.points_1.dtype, weights.out.dtype) == (torch.float32, torch.float32)
    assert all(torch.equal(before[name], tensor) for name, tensor in stage.state_dict().items())
    padding = weights.points_3.clone()
    padding[:12, :20] = 0
    assert not padding.any()
    assert all(not tensor.requires_grad for tensor in weights if isinstance(tensor, Tensor))


def test_packing_refuses() -> None:
    with pytest.raises(ValueError, match="three point layers"):
        pack_refine(make_stage((8, 8)))
    with pytest.raises(ValueError, match="evaluation mode"):
        pack_refine(make_stage().train())
    with pytest.raises(TypeError, match="dtype must be one of"):
        pack_refine(make_stage(), dtype=torch.float64)


def test_arguments_that_do_not_fit() -> None:
    clouds, features, boxes, labels = make_scene(0, 3)
    weights, pillars, maps = pack_refine(make_stage()), fixed(clouds), rows(features)

    def call(**changes: object) -> RefinedBoxes:
        arguments = {"pillars": pillars, "features": maps, "boxes": boxes, "labels": labels, **options()}
        return fixed_refine(weights=weights, **{**arguments, **changes})  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="boxes must be float32 and labels int32"):
        call(labels=labels.long())
    with pytest.raises(ValueError, match=r"boxes must be \(2, K, 7\)"):
        call(boxes=boxes[:1])
    with pytest.raises(ValueError, match="labels must be"):
        call(labels=labels[:, :2])
    with pytest.raises(TypeError, match="indices must be"):
        call(indices=labels.long())
    with pytest.raises(ValueError, match=r"indices must be \(2, M\)"):
        call(indices=labels[:1])
    with pytest.raises(TypeError, match="features must be float16"):
        call(features=maps.double())
    with pytest.raises(ValueError, match="features must be"):
        call(features=maps[:-1])
    with pytest.raises(ValueError, match="pillar_size_m must be positive"):
        call(pillar_size_m=0.0)
    with pytest.raises(ValueError, match="Make it for 6 boxes"):
        call(workspace=RefineWorkspace.make(5, weights))
    with pytest.raises(ImplementationError, match="no vendor"):
        call(impl="vendor")


def test_workspace_is_cleared() -> None:
    workspace = RefineWorkspace.make(3, pack_refine(make_stage()))
    cleared = (workspace.pooled, workspace.counts, workspace.arrivals)
    assert [tuple(part.shape) for part in cleared] == [(3, 32), (3,), (1,)]
    assert tuple(workspace.context.shape) == (5, 3, 256)
    for _ in range(2):
        assert not any(part.any() for part in cleared)
        for part in cleared:
            part.fill_(1)
        workspace.clear()
