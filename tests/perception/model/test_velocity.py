"""The velocity head: its axes, the same velocities from every way of running a detector, and in records."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from perception.checkpoints.weights import load_weights, save_weights
from perception.config import DetectorConfig
from perception.data.sample import sample_frames
from perception.detector import Detector
from perception.errors import ConfigError
from perception.model.network import Network
from perception.model.refine import HIDDEN, VelocityHead
from perception.registry import graph_steps, kind_of
from perception.run.eager import EagerRunner
from perception.run.graph import FrameRunner
from perception.scans.tensors import as_tensor
from perception.types import Detections


def test_velocities_turn_with_the_box() -> None:
    torch.manual_seed(0)
    head, features = VelocityHead(), torch.rand(3, HIDDEN)
    boxes = torch.zeros(3, 7)
    straight = head(features, boxes)
    boxes[:, 6] = math.pi / 2
    turned = head(features, boxes)
    torch.testing.assert_close(turned, torch.stack([-straight[:, 1], straight[:, 0]], dim=1))
    assert head(features.view(1, 3, HIDDEN), boxes[None]).shape == (1, 3, 2)
    assert head(features[:0], boxes[:0]).shape == (0, 2)


@pytest.fixture(scope="module")
def network() -> Network:
    """Random weights with peaks all over, an embedding head and large velocities."""
    torch.manual_seed(0)
    config = DetectorConfig()
    config = replace(
        config,
        pillars=replace(
            config.pillars, range_m=(0.0, -15.36, -3.0, 61.44, 15.36, 1.0), pillar_size_m=0.32, channels=8
        ),
        backbone=replace(config.backbone, channels=(8, 8, 16), blocks=(1, 0, 0)),
        neck=replace(config.neck, channels=16, blocks=1, out_channels=16),
        head=replace(config.head, channels=16, velocity=True),
        refine=replace(config.refine, channels=(8, 12, 20), proposals=20, iterations=2),
        embedding=replace(config.embedding, enabled=True),
        nms=replace(config.nms, score_threshold=0.05, score_maps={"Car": (0.3, -1.0)}),
    )
    made = Network(config)
    with torch.no_grad():
        made.head.heat.bias.fill_(-1.0)
        made.head.heat.weight.mul_(20.0)
        assert made.velocity is not None
        made.velocity.out.weight.mul_(20.0)
        for stage in made.refinements:
            stage.out.weight.normal_(std=0.05)
    return made.eval()


@pytest.mark.parametrize("embedded", [True, False])
def test_steps_of_graphs_give_the_velocities_of_eager_code(network: Network, embedded: bool) -> None:
    if not embedded:
        plain = Network(replace(network.config, embedding=replace(network.config.embedding, enabled=False)))
        plain.load_state_dict(network.state_dict(), strict=False)
        network = plain.eval()
    clouds = [as_tensor(frame.cloud, network.config.pillars) for frame in sample_frames()[:2]]
    clouds.append(torch.zeros(0, 4))
    folded = Detector(network).network
    eager = EagerRunner(folded, kind_of(folded.config).eager)
    graph = FrameRunner(folded, graph_steps(folded.config), dtype=torch.float32, impl="reference")
    for found, wanted in zip(graph(clouds), eager(clouds), strict=True):
        assert found.velocities is not None
        assert wanted.velocities is not None
        assert wanted.velocities.shape == (len(wanted.boxes), 2)
        torch.testing.assert_close(found.boxes, wanted.boxes, rtol=0, atol=2e-4)
        torch.testing.assert_close(found.velocities, wanted.velocities, rtol=1e-3, atol=1e-3)
        assert (found.embeddings is None) == (not embedded)
        if embedded:
            torch.testing.assert_close(found.embeddings, wanted.embeddings, rtol=0, atol=1e-3)
    assert not len(eager(clouds)[2].boxes)


def test_detections_have_velocities_in_the_order_of_the_boxes(network: Network, tmp_path: object) -> None:
    detector = Detector(network)
    found = detector(sample_frames()[0].cloud)
    assert found.velocities is not None
    assert len(found) > 3
    assert np.abs(found.velocities).max() > 0.1
    some = detector.with_score_threshold(float(found.scores[2]))(sample_frames()[0].cloud)
    assert some.velocities is not None
    assert np.array_equal(some.velocities, found.velocities[: len(some)])
    picked = found[[2, 0]].velocities
    assert picked is not None
    assert np.array_equal(picked, found.velocities[[2, 0]])


def test_a_shrunk_scene_gives_velocities_in_metres(network: Network) -> None:
    result = EagerRunner(Detector(network).network, kind_of(network.config).eager)(
        [as_tensor(sample_frames()[0].cloud, network.config.pillars)]
    )[0]
    whole = Detector(network)._report(result, sample_frames()[0].cloud)
    shrunk = replace(network.config, pillars=replace(network.config.pillars, shrink=2.0))
    other = Detector(network)
    other.config = shrunk
    half = type(other._report)(shrunk)(result, sample_frames()[0].cloud)
    assert whole.velocities is not None
    assert half.velocities is not None
    np.testing.assert_allclose(half.velocities, 2 * whole.velocities, rtol=1e-6)


def test_records_keep_velocities() -> None:
    velocities = np.array([[1.2345, -2.0], [np.nan, np.nan]], np.float32)
    found = Detections(np.ones((2, 7), np.float32), np.ones(2, np.float32), ["a", "b"], velocities=velocities)
    record = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert record["velocities"] == [[1.234, -2.0], None] or record["velocities"] == [[1.235, -2.0], None]
    again = Detections.from_dict(record)
    assert again.velocities is not None
    np.testing.assert_allclose(again.velocities, velocities, atol=1e-3)
    plain = Detections(found.boxes, found.scores, found.labels)
    assert "velocities" not in plain.to_dict()
    assert Detections.from_dict(plain.to_dict()).velocities is None
    with pytest.raises(ValueError, match=r"velocities must be \(2, 2\)"):
        Detections(found.boxes, found.scores, found.labels, velocities=velocities[:1])


def test_there_is_no_head_by_default(network: Network, tmp_path: object) -> None:
    assert Network(DetectorConfig()).velocity is None
    assert Detector(Network(DetectorConfig())).__call__(sample_frames()[0].cloud).velocities is None
    config = network.config
    with pytest.raises(ConfigError, match=r"head\.velocity must be false without a refinement"):
        replace(
            config,
            refine=replace(config.refine, enabled=False),
            embedding=replace(config.embedding, enabled=False),
        )


def test_weights_keep_the_head(network: Network, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("weights") / "velocity.safetensors"
    save_weights(Network(network.config), path)
    loaded = load_weights(path)
    assert loaded.config.head.velocity
    assert loaded.velocity is not None
    assert loaded.velocity.out.weight.any()
