"""Training with a teacher: what is learned from it, and which weights can teach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from perception.checkpoints.weights import save_weights
from perception.config import DetectorConfig, TrainConfig
from perception.errors import ConfigError
from perception.model.network import DenseNetwork, Network, NetworkMaps
from perception.model.pillars import make_pillars
from perception.train.data.batches import collate
from perception.train.data.frames import TrainingFrame
from perception.train.losses import HeatTargets, heat_targets, map_loss, network_losses, soft_focal_loss
from perception.train.teacher import load_teacher
from perception.train.trainer import Trainer

Street = Callable[[int], TrainingFrame]
CPU = torch.device("cpu")


@pytest.fixture
def teacher_weights(tiny_config: DetectorConfig, tmp_path: Path) -> str:
    """A dense network with weights of its own."""
    dense = replace(tiny_config, backbone=replace(tiny_config.backbone, kind="dense"))
    torch.manual_seed(7)
    path = tmp_path / "teacher.safetensors"
    save_weights(DenseNetwork(dense).eval(), path)
    return str(path)


def test_heat_like_the_teachers_costs_nothing() -> None:
    taught = torch.randn(1, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    peaks = torch.zeros(1, 2, 4, 4, dtype=torch.bool)
    peaks[0, 0, 1, 1] = True
    nowhere = torch.zeros(1, 1, 4, 4, dtype=torch.bool)
    assert soft_focal_loss(taught, taught, peaks, nowhere) == 0
    other = taught.clone()
    other[0, 1, 2, 2] += 4.0
    there = nowhere.clone()
    there[0, 0, 2, 2] = True
    assert soft_focal_loss(other, taught, peaks, nowhere) > 0.1
    assert soft_focal_loss(other, taught, peaks, there) == 0


def test_features_follow_the_teacher_near_objects_only() -> None:
    heat = torch.zeros(1, 1, 4, 4)
    heat[0, 0, 1, 1] = 1.0
    none = torch.zeros(0)
    targets = HeatTargets(heat, torch.zeros(1, 1, 4, 4, dtype=torch.bool), none, none, none, none)
    quiet = torch.full((1, 1, 4, 4), -9.0)
    taught = NetworkMaps(torch.ones(1, 3, 4, 4), quiet)
    far, near = torch.ones(1, 3, 4, 4), torch.ones(1, 3, 4, 4)
    far[0, 0, 3, 3], near[0, 0, 1, 1] = 2.0, 2.0
    assert map_loss(NetworkMaps(far, quiet), taught, targets) == 0
    assert float(map_loss(NetworkMaps(near, quiet), taught, targets)) == pytest.approx(1 / 3)
    # A peak of the teacher counts as well.
    peak = quiet.clone()
    peak[0, 0, 3, 3] = 3.0
    assert map_loss(NetworkMaps(far, quiet), NetworkMaps(taught.features, peak), targets) > 0


def test_features_near_objects_of_other_classes_are_left_alone() -> None:
    heat = torch.zeros(1, 2, 4, 4)
    heat[0, 0, 1, 1] = heat[0, 1, 3, 3] = heat[0, 1, 1, 2] = 1.0
    heat[0, 0, 1, 2] = 0.5  # Between both objects.
    none = torch.zeros(0)
    targets = HeatTargets(heat, torch.zeros(1, 1, 4, 4, dtype=torch.bool), none, none, none, none)
    quiet = torch.full((1, 2, 4, 4), -9.0)
    taught = NetworkMaps(torch.ones(1, 3, 4, 4), quiet)
    for row, column, counts in ((1, 1, True), (3, 3, False), (1, 2, False)):
        changed = torch.ones(1, 3, 4, 4)
        changed[0, 0, row, column] = 2.0
        assert (map_loss(NetworkMaps(changed, quiet), taught, targets, rows=[0]) > 0) == counts
        assert map_loss(NetworkMaps(changed, quiet), taught, targets) > 0


def test_only_the_named_classes_are_taught(
    tiny_config: DetectorConfig, street: Street, teacher_weights: str
) -> None:
    network = Network(tiny_config).train()
    batch = collate([street(0)])
    pillars = make_pillars(batch.clouds, tiny_config.pillars)
    teacher = load_teacher(teacher_weights, tiny_config, CPU)
    classes = tiny_config.head.classes

    def heat_loss(*names: str) -> float:
        generator = torch.Generator().manual_seed(0)
        losses = network_losses(network, pillars, batch, generator, teacher=teacher, teacher_classes=names)
        return float(losses["teacher_heat"].detach())

    assert heat_loss() == heat_loss(*classes)
    before = heat_loss(classes[0])
    assert teacher.head.heat.bias is not None
    with torch.no_grad():
        teacher.head.heat.bias[1:] += 5.0
    assert heat_loss(classes[0]) == before
    assert heat_loss() != before
    with pytest.raises(ConfigError, match="teacher_classes"):
        TrainConfig(detector=tiny_config, teacher_classes=("Tram",))


def test_a_sparse_network_approaches_its_dense_teacher(
    tiny_training: TrainConfig, street: Street, teacher_weights: str, tmp_path: Path
) -> None:
    frames = [street(number) for number in range(3)]
    config = replace(tiny_training, steps=25, average_decay=0.0)
    taught = Trainer(replace(config, teacher=teacher_weights), tmp_path / "taught", frames)
    alone = Trainer(config, tmp_path / "alone", frames)
    # The teacher does not change the starting weights.
    states = [made.network.state_dict() for made in (taught, alone)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])
    assert taught.teacher is not None
    before = {name: value.clone() for name, value in taught.teacher.state_dict().items()}
    distances = []
    for made in (taught, alone):
        assert made.run(show_progress=False)
        distances.append(_distance(made.network, taught.teacher, frames[0]))
    assert distances[0] < 0.8 * distances[1]
    after = taught.teacher.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    header, *rows = (tmp_path / "taught/log.csv").read_text().splitlines()
    assert all(
        float(rows[-1].split(",")[header.split(",").index(f"teacher_{part}")]) > 0 for part in ("heat", "map")
    )


def _distance(network: Network, teacher: Network, frame: TrainingFrame) -> float:
    # In training mode, because so few steps do not fill the statistics of the batch norms.
    batch = collate([frame])
    pillars = make_pillars(batch.clouds, network.config.pillars)
    with torch.no_grad():
        maps, taught = network.maps(pillars), teacher.maps(pillars)
        rows, columns = maps.heat_logits.shape[2:]
        targets = heat_targets(network.head, batch, (rows, columns))
        return float(map_loss(maps, taught, targets))


def test_a_batch_without_objects_has_no_peaks_to_divide_by(
    tiny_config: DetectorConfig, without_objects: TrainingFrame, teacher_weights: str
) -> None:
    network = Network(tiny_config).train()
    batch = collate([without_objects])
    pillars = make_pillars(batch.clouds, tiny_config.pillars)
    teacher = load_teacher(teacher_weights, tiny_config, CPU)
    losses = network_losses(network, pillars, batch, torch.Generator().manual_seed(0), teacher=teacher)
    torch.stack(list(losses.values())).sum().backward()
    assert all(value.isfinite() for value in losses.values())
    assert all(part.grad is None for part in teacher.parameters())


def test_other_classes_cannot_teach(tiny_config: DetectorConfig, teacher_weights: str) -> None:
    with pytest.raises(ConfigError, match=r"head\.classes"):
        load_teacher(teacher_weights, tiny_config.with_classes(["Tram"]), CPU)
    wider = replace(
        tiny_config, neck=replace(tiny_config.neck, out_channels=tiny_config.neck.out_channels + 8)
    )
    with pytest.raises(ConfigError, match=r"neck\.out_channels"):
        load_teacher(teacher_weights, wider, CPU)
