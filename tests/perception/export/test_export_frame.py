"""The frame that is exported, run as it is: the detector's boxes, and what cannot be exported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from perception import Detector
from perception.boxes import wrap_angle
from perception.checkpoints.weights import load_weights
from perception.config import BackboneConfig, DetectorConfig
from perception.errors import CheckpointError, ConfigError
from perception.export.cells import Cells
from perception.export.frame import ExportSteps
from perception.model.network import Network
from perception.registry import make_network
from perception.train.data.frames import TrainingFrame
from perception.types import Detections

pytestmark = pytest.mark.usefixtures("one_thread")
Street = Callable[[int], TrainingFrame]


def assert_same(found: tuple[Tensor, Tensor, Tensor], wanted: Detections, classes: tuple[str, ...]) -> None:
    boxes, scores, labels = (part.numpy() for part in found)
    assert [classes[label] for label in labels] == wanted.labels
    np.testing.assert_allclose(boxes[:, :6], wanted.boxes[:, :6], rtol=0, atol=1e-4)
    np.testing.assert_allclose(wrap_angle(boxes[:, 6] - wanted.boxes[:, 6]), 0, atol=1e-4)
    np.testing.assert_allclose(scores, wanted.scores, rtol=0, atol=1e-5)


def with_low_threshold(network: Network, **nms: object) -> Network:
    settings = replace(network.config.nms, score_threshold=0.005, report_thresholds={}, **nms)
    network.config = replace(network.config, nms=settings)
    return network


@pytest.mark.parametrize("exporting", [False, True])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_boxes_are_those_of_the_detector(
    tiny_config: DetectorConfig, street: Street, monkeypatch: pytest.MonkeyPatch, kind: str, exporting: bool
) -> None:
    torch.manual_seed(5)
    config = replace(tiny_config, backbone=replace(tiny_config.backbone, kind=kind))
    network = with_low_threshold(make_network(config).eval())
    detector, steps = Detector(network), ExportSteps(network.fold())
    for seed in range(3):
        points = torch.from_numpy(street(seed).points)
        wanted = detector(points)
        assert len(wanted) > 0
        with torch.no_grad(), monkeypatch.context() as tracing:
            # The operators that exported programs have, on values.
            tracing.setattr("torch.compiler.is_exporting", lambda: exporting)
            tracing.setattr("torch.compiler.is_compiling", lambda: exporting)
            assert_same(steps(points), wanted, config.head.classes)


def test_shipped_weights_with_maps_of_scores(street: Street) -> None:
    changes = {
        "score_maps": {"Car": (0.5, 0.2)},
        "footprints_m": {"Car": (4.5, 2.0)},
        "size_offsets_m": {"Car": (0.3, 0.2, 0.5), "Pedestrian": (0.2, 0.1, 0.1)},
    }
    network = with_low_threshold(load_weights("pointpillars-kitti"), **changes).fold()
    detector, steps = Detector(network), ExportSteps(network)
    points = street(1).points.copy()
    points[::50, 0] = np.nan
    with torch.no_grad():
        found = steps(torch.from_numpy(points))
    assert len(found[0]) > 2
    assert (found[0][found[2] == 0][:, 3:5] == torch.tensor([4.5, 2.0])).all()
    assert_same(found, detector(points), network.config.head.classes)


@pytest.mark.parametrize(
    "points", [torch.zeros(0, 4), torch.full((3, 4), torch.nan), torch.full((2, 4), 1e6)]
)
def test_nothing_gives_nothing(tiny_network: Network, points: Tensor) -> None:
    with torch.no_grad():
        boxes, scores, labels = ExportSteps(with_low_threshold(tiny_network).fold())(points)
    assert (boxes.shape, scores.shape, labels.shape) == ((0, 7), (0,), (0,))


def test_one_point(tiny_network: Network) -> None:
    network = with_low_threshold(tiny_network).fold()
    point = torch.tensor([[4.0, 1.0, -1.0, 0.3]])
    with torch.no_grad():
        boxes = ExportSteps(network)(point)[0].numpy()
    wanted = Detector(network)(point).boxes
    assert len(boxes) == len(wanted) > 0
    # Far from the point all cells are alike: their scores are equal, and so no order is right.
    near = np.abs(boxes[:, None, :6] - wanted[None, :, :6]).max(2) < 1e-4
    assert (near.sum(0) == 1).all()
    assert (near.sum(1) == 1).all()


def test_what_cannot_be_exported(tiny_network: Network) -> None:
    with pytest.raises(ConfigError, match="range_m is null"):
        ExportSteps(Detector(tiny_network).with_range(None).network)
    tiny_network.config = replace(
        tiny_network.config, backbone=replace(tiny_network.config.backbone, dilating=False)
    )
    with pytest.raises(ConfigError, match="dilat"):
        ExportSteps(tiny_network)

    class Other(torch.nn.Conv2d):
        """A layer that does more than torch's."""

    tiny_network.head.heat = Other(16, 2, 1)
    tiny_network.config = replace(tiny_network.config, backbone=BackboneConfig())
    with pytest.raises(CheckpointError, match=r"head\.heat, a foreign layer"):
        ExportSteps(tiny_network)


def test_cells_at_the_edge_reach_theirs() -> None:
    occupied = torch.zeros(7, 6, dtype=torch.bool)
    occupied[6, 5] = occupied[0, 0] = occupied[3, 3] = True
    cells = Cells.where(occupied)
    image = torch.nn.functional.max_pool2d(occupied[None, None].float(), 3, stride=2, padding=1)[0, 0]
    reached = cells.reached()
    assert reached.shape == tuple(image.shape)
    assert reached.active.tolist() == image.reshape(-1).nonzero()[:, 0].tolist()
    assert cells.around(cells, 1)[0].tolist() == [3, 3, 3, 3, 0, 3, 3, 3, 3]
