"""Whole frames without a range in fixed shapes: the boxes of the detector on a CPU, growth, overflow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from perception import Detector
from perception.model.level import Level
from perception.model.thinning import thinned
from perception.registry import graph_steps
from perception.run.fixed import FixedSteps
from perception.run.graph import FrameRunner, why_no_graph
from perception.run.results import FrameResult
from perception.run.unbounded import UnboundedGrid
from perception.stages.refine import unbounded as refine_module
from perception.train.data.frames import TrainingFrame
from perception.types import Detections
from sparse_core.errors import CapacityWarning

Street = Callable[[int], TrainingFrame]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def detector() -> Detector:
    """Few proposals: the rows of all that there is room for are computed."""
    network = Detector.from_pretrained("pointpillars-kitti").with_range(None).network
    few = thinned(network, Level("few", refinements=1, proposals=4))
    # Frames are compared as the network scores them.
    plain = replace(few.config.nms, score_maps={}, footprints_m={}, report_thresholds={})
    few.config = replace(few.config, nms=plain)
    return Detector(few).with_score_threshold(0.02)


@pytest.fixture
def small_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain torch computes rows without use too."""
    monkeypatch.setattr("perception.run.room._LEAST_POINTS", 256)
    monkeypatch.setattr("perception.run.room._LEAST_PILLARS", 512)
    monkeypatch.setattr(refine_module, "MOST_POINTS", 512)


def runner(detector: Detector, **options: Any) -> FrameRunner:
    settings: dict[str, Any] = {"dtype": torch.float32, "impl": "reference", "config": detector.config}
    return FrameRunner(detector.network, graph_steps(detector.network.config), **settings, **options)


def cloud(street: Street, seed: int) -> Tensor:
    """Objects of a street before the sensor, and of one behind it."""
    behind = street(seed + 1).points[1200:1500] * np.array([-1, 1, 1, 1], np.float32)
    return torch.from_numpy(np.concatenate([street(seed).points[1000:1500], behind]))


def assert_same(found: FrameResult, wanted: Detections) -> None:
    assert len(found.boxes) == len(wanted)
    np.testing.assert_allclose(found.boxes[:, :6], wanted.boxes[:, :6], rtol=0, atol=1e-4)
    np.testing.assert_allclose(np.cos(found.boxes[:, 6]), np.cos(wanted.boxes[:, 6]), atol=1e-3)
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("small_room")
def test_frames_give_the_detectors_boxes(detector: Detector, street: Street) -> None:
    clouds = [cloud(street, 0), torch.zeros((0, 4))]
    frames = runner(detector)
    steps = frames.graph_for(clouds).steps
    assert isinstance(steps, FixedSteps)
    assert isinstance(steps.grid, UnboundedGrid)
    found = frames(clouds)
    assert len(found[0].boxes) > 1
    for mine, theirs in zip(found, detector.detect_batch(clouds), strict=True):
        assert_same(mine, theirs)
    assert [result.overflow for result in found] == [0, 0]
    assert found[1].pillars == 0
    again = frames(clouds)
    assert all(np.array_equal(mine.boxes, once.boxes) for mine, once in zip(found, again, strict=True))


@pytest.mark.usefixtures("small_room")
def test_points_in_any_order_and_what_is_left_out(detector: Detector, street: Street) -> None:
    points = cloud(street, 1)[::3]
    bad = torch.tensor([[torch.nan, 0, 0, 0.5], [0, 1e6, 0, 0.5], [0, 0, torch.inf, 0.5], [-3e38, 0, 0, 0.5]])
    mixed = torch.cat([bad, points])[torch.randperm(len(points) + 4, generator=torch.manual_seed(0))]
    frames = runner(detector)
    (clean,), (found,) = frames([points]), frames([mixed])
    assert (found.invalid, found.far) == (2, 2)
    assert (clean.invalid, clean.far) == (0, 0)
    torch.testing.assert_close(found.boxes, clean.boxes, rtol=0, atol=1e-5)
    assert found.pillars == clean.pillars


@pytest.mark.slow
@pytest.mark.usefixtures("small_room")
def test_room_grows(detector: Detector, street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perception.run.room._LEAST_PILLARS", 128)
    points = cloud(street, 0)
    growing = runner(detector)
    found = growing([points])[0]
    room = growing.graph_for([points]).room
    assert found.overflow == 0
    assert room.capacities[0] >= found.pillars > 128
    assert_same(found, detector(points))


@pytest.mark.usefixtures("small_room")
def test_what_finds_no_room_is_told(
    detector: Detector, street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perception.run.room._LEAST_PILLARS", 32)
    points = cloud(street, 0)
    with pytest.warns(CapacityWarning, match="the CUDA graph is too small"):
        told = runner(detector, overflow="warn")([points])[0]
    assert told.overflow > 0


def test_which_detectors_have_graphs(detector: Detector) -> None:
    cuda = torch.device("cuda")
    bare = thinned(detector.network, Level("bare", neck_blocks=0))
    assert "neck has no block" in str(why_no_graph(bare.config, graph_steps(bare.config), cuda))
    assert "range" not in str(why_no_graph(detector.config, graph_steps(detector.config), cuda))


@pytest.mark.gpu
def test_a_graph_gives_the_boxes_of_a_cpu(street: Street) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    behind = street(1).points * np.array([-1, 1, 1, 1], np.float32)
    points = np.concatenate([street(0).points, behind])
    on_host, on_device = (
        Detector.from_pretrained("pointpillars-kitti", device, precision="float32")
        .with_range(None)
        .with_score_threshold(0.003)
        for device in ("cpu", "cuda")
    )
    assert on_device.fast
    wanted, found = on_host(points), on_device(points)
    assert len(found) == len(wanted) > 10
    away = np.abs(found.boxes[:, None, :6] - wanted.boxes[None, :, :6]).max(axis=2)
    assert away.min(axis=0).max() < 2e-3
    assert away.min(axis=1).max() < 2e-3
    again = on_device(points)
    assert again.boxes.tobytes() == found.boxes.tobytes()
