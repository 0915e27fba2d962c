"""Point layers of a refinement in bfloat16 on a CPU against the network's own."""

from __future__ import annotations

import pytest
import torch

from perception.model.network import Network
from perception.model.refine import POINTS_AT_ONCE, CroppedPoints, RefineStage
from perception.stages.refine.cpu import PlannedPoints

pytestmark = pytest.mark.usefixtures("one_thread")


def crop_of(counts: list[int]) -> tuple[torch.Tensor, CroppedPoints]:
    """Features of points, so many a proposal."""
    total = sum(counts)
    points = torch.randn(total, 4, generator=torch.Generator().manual_seed(total))
    rows = torch.repeat_interleave(torch.tensor(counts))
    features = torch.randn(total, 12, generator=torch.Generator().manual_seed(1))
    return features, CroppedPoints(points, points[:, :3], rows, torch.tensor(counts))


def folded(network: Network) -> RefineStage:
    network.fold()
    stage = network.refinements[0]
    assert isinstance(stage, RefineStage)
    return stage


@pytest.mark.parametrize("counts", [[3, 0, 40], [POINTS_AT_ONCE, 5], [0, 0]])
def test_near_the_own_layers(tiny_network: Network, counts: list[int]) -> None:
    stage = folded(tiny_network)
    points = PlannedPoints(stage)
    features, crop = crop_of(counts)
    with torch.inference_mode():
        expected, made = stage._pooled(features, crop), points(features, crop)
    assert points.runs()
    assert made.dtype == torch.float32
    assert made.shape == expected.shape
    assert float((made - expected).abs().max()) <= 0.02 * float(expected.abs().max())
    assert torch.equal(made, expected) == (sum(counts) == 0)


def test_changed_weights_are_packed_again(tiny_network: Network) -> None:
    stage = folded(tiny_network)
    points = PlannedPoints(stage)
    features, crop = crop_of([30, 20])
    with torch.inference_mode():
        before = points(features, crop)
    with torch.no_grad():
        for weight in stage.point_layers[-1].parameters():
            weight.mul_(2.0)
    with torch.inference_mode():
        assert torch.equal(points(features, crop), 2 * before)


def test_hooks_and_other_layers_are_not_passed_by(tiny_network: Network) -> None:
    stage = folded(tiny_network)
    points = PlannedPoints(stage)
    hook = stage.point_layers[1].linear.register_forward_hook(lambda *_: None)  # type: ignore[union-attr]
    assert not points.runs()
    hook.remove()
    assert points.runs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not points.runs()
    setattr(stage.point_layers[1], "linear", torch.nn.Sequential())  # noqa: B010
    assert not points.runs()
