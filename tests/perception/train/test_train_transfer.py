"""Finished weights for other classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from perception.checkpoints.compression import compress_network, save_compressed_weights
from perception.checkpoints.weights import load_weights, save_weights
from perception.config import DetectorConfig, TrainConfig
from perception.errors import CheckpointError, ConfigError, DataError
from perception.model.network import Network
from perception.model.pillars import make_pillars
from perception.train.data.frames import TrainingFrame, with_measured_sizes
from perception.train.fine_tune import FineTune
from perception.train.run import FEW_BOXES, train
from perception.train.trainer import Trainer
from perception.train.transfer import same_outputs, transfer_weights

Street = Callable[[int], TrainingFrame]


def networks(config: DetectorConfig, *classes: str) -> tuple[Network, Network]:
    torch.manual_seed(1)
    return Network(config).eval(), Network(config.with_classes(classes)).eval()


def boxes_of(network: Network, frame: TrainingFrame, cells: torch.Tensor, label: int) -> torch.Tensor:
    """Boxes that a class is said to have at cells, refined as that class."""
    pillars = make_pillars([torch.from_numpy(frame.points)], network.config.pillars)
    maps = network.maps(pillars)
    labels = torch.full((len(cells),), label)
    boxes = network.head.decode(network.head.box_codes(maps.features, cells, labels), cells, labels)
    heat = maps.heat_logits[0, label].flatten()[: len(cells), None]
    frames = torch.zeros(len(cells), dtype=torch.int64)
    refined, output = network.refine(pillars, maps.features, boxes, frames, labels)
    return torch.cat([boxes, heat, refined, output.fit_logits[:, None]], 1)


def test_a_class_of_the_same_name_is_detected_as_before(tiny_config: DetectorConfig, street: Street) -> None:
    sized = tiny_config.with_classes(("pallet", "Pedestrian", "Van"))
    sized = replace(sized, head=replace(sized.head, sizes_m={"Pedestrian": (0.5, 0.5, 2.0)}))
    torch.manual_seed(1)
    source, target = Network(tiny_config).eval(), Network(sized).eval()
    found = transfer_weights(source, target, where="tiny")
    assert (found.kept, found.new, found.left) == (("Pedestrian",), ("pallet", "Van"), ("Car",))
    assert found.sentence("tiny") == (
        "from tiny: copied everything except class-specific values in head.heat, head.box,"
        " refinements.0.hidden.0.linear, refinements.1.hidden.0.linear; new: pallet, Van; kept: Pedestrian;"
        " dropped: Car"
    )
    cells = torch.tensor([[0, row, column] for row in (3, 20) for column in (2, 17)])
    with torch.no_grad():
        before = boxes_of(source, street(0), cells, 1)
        after = boxes_of(target, street(0), cells, 1)
        other = boxes_of(target, street(0), cells, 0)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(other, before, atol=1e-2)


def test_as_many_other_classes_are_not_taken_for_the_old_ones(tiny_config: DetectorConfig) -> None:
    source, target = networks(tiny_config, "pallet", "forklift")
    fresh = target.head.heat.weight.clone()
    found = transfer_weights(source, target, where="tiny")
    assert found.new == ("pallet", "forklift")
    assert torch.equal(target.head.heat.weight, fresh)
    assert torch.equal(target.head.heat_hidden.weight, source.head.heat_hidden.weight)
    kept = source.backbone.state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in target.backbone.state_dict().items())


def test_the_order_of_classes_is_theirs(tiny_config: DetectorConfig) -> None:
    source, target = networks(tiny_config, "Pedestrian", "Car")
    transfer_weights(source, target, where="tiny")
    assert torch.equal(target.head.heat.weight, source.head.heat.weight.flip(0))
    assert torch.equal(target.head.box.bias, source.head.box.bias.view(2, 8).flip(0).flatten())


def test_another_architecture_is_an_error(tiny_config: DetectorConfig) -> None:
    wider = replace(tiny_config.with_classes(("pallet",)), neck=replace(tiny_config.neck, channels=24))
    with pytest.raises(CheckpointError, match=r"tiny: .*do not fit the configuration"):
        transfer_weights(Network(tiny_config), Network(wider), where="tiny")


def test_compressed_weights_keep_their_classes(
    tiny_training: TrainConfig, tiny_weights: Path, street: Street, tmp_path: Path
) -> None:
    network = load_weights(tiny_weights).fold()
    packed = save_compressed_weights(compress_network(network), network.config, tmp_path / "p.safetensors")
    config = replace(tiny_training, detector=tiny_training.detector.with_classes(("Pedestrian",)))
    with pytest.raises(CheckpointError, match="compressed weights for Car, Pedestrian do not fit"):
        Trainer(config, tmp_path / "run", [street(0)], fine_tune=FineTune(str(packed), coding="int8"))


def test_sizes_of_unknown_classes_are_measured(tiny_config: DetectorConfig, street: Street) -> None:
    config = tiny_config.with_classes(("Car", "pallet"))
    found = with_measured_sizes(config, [street(0), street(1)]).head.sizes_m
    boxes = np.concatenate([frame.boxes[frame.labels == 1] for frame in (street(0), street(1))])
    assert found.keys() == {"pallet"}
    np.testing.assert_allclose(found["pallet"], boxes[:, 3:6].mean(0), atol=0.006)
    given = replace(config, head=replace(config.head, sizes_m={"pallet": (1.2, 0.8, 0.15)}))
    assert with_measured_sizes(given, [street(0)]) == given
    assert with_measured_sizes(config, []) == config
    flat = Network(given).head.mean_sizes[1]
    torch.testing.assert_close(flat, torch.tensor([1.2, 0.8, 0.15]))


@pytest.mark.parametrize("sizes", [{"Lorry": (1.0, 1.0, 1.0)}, {"Car": (1.0, 2.0)}, {"Car": (1.0, 0.0, 1.0)}])
def test_sizes_that_cannot_be(tiny_config: DetectorConfig, sizes: dict[str, tuple[float, ...]]) -> None:
    with pytest.raises(ConfigError, match=r"head\.sizes_m"):
        replace(tiny_config.head, sizes_m=sizes)


def test_a_training_for_other_classes(
    tiny_training: TrainConfig, tiny_weights: Path, kitti_folder: Path, tmp_path: Path
) -> None:
    detector = tiny_training.detector.with_classes(("Pedestrian", "Tram"))
    config = replace(tiny_training, detector=detector, steps=2)
    said: list[str] = []
    start = FineTune(str(tiny_weights))
    outcome = train(
        config, kitti_folder, tmp_path, show_progress=False, fine_tune=start, max_seconds=0.0,
        on_remark=said.append,
    )  # fmt: skip
    assert outcome.remarks == tuple(said)
    assert "new: Tram; kept: Pedestrian; dropped: Car" in said[0]
    assert said[1].startswith("few boxes to learn from: 6 of Pedestrian, 0 of Tram.")
    assert str(FEW_BOXES) in said[1]
    again = train(config, kitti_folder, tmp_path, show_progress=False, fine_tune=start)
    assert again.finished
    assert again.metrics is None
    assert any(remark.startswith("not evaluated: no label has the class Tram") for remark in again.remarks)
    assert load_weights(tmp_path / "weights.safetensors").config.head.classes == ("Pedestrian", "Tram")


def test_classes_that_no_label_has(tiny_training: TrainConfig, kitti_folder: Path, tmp_path: Path) -> None:
    config = replace(tiny_training, detector=tiny_training.detector.with_classes(("pallet",)))
    with pytest.raises(DataError, match=r"contains pallet; the labels contain Car \(6\), Pedestrian \(6\)"):
        train(config, kitti_folder, tmp_path, show_progress=False)


def test_weights_keep_their_sizes(tiny_config: DetectorConfig, tmp_path: Path) -> None:
    config = tiny_config.with_classes(("pallet",))
    config = replace(config, head=replace(config.head, sizes_m={"pallet": (1.2, 0.8, 0.15)}))
    save_weights(Network(config), tmp_path / "own.safetensors")
    assert load_weights(tmp_path / "own.safetensors").config == config


def test_weights_for_one_scan_start_several_sweeps_with_velocities(
    tiny_config: DetectorConfig, street: Street
) -> None:
    """At first ages change nothing, so the boxes are those of the weights."""
    torch.manual_seed(1)
    source = Network(tiny_config).eval()
    config = replace(
        tiny_config,
        pillars=replace(tiny_config.pillars, sweeps=3),
        head=replace(tiny_config.head, velocity=True),
    )
    target = Network(config).eval()
    assert not same_outputs(source, target)
    found = transfer_weights(source, target, where="tiny")
    assert found.kept == tiny_config.head.classes
    assert "the velocity head" in found.sentence("tiny")
    assert "ages of points in encoder.points" in found.sentence("tiny")
    points = torch.from_numpy(street(0).points)
    aged = torch.cat([points, torch.rand(len(points), 1)], dim=1)
    with torch.no_grad():
        wanted = source.encoder.rows(make_pillars([points], tiny_config.pillars))
        made = target.encoder.rows(make_pillars([aged], config.pillars))
    torch.testing.assert_close(made.sum(0), wanted.sum(0), rtol=1e-4, atol=1e-3)
    # The other way around, the weights do not fit.
    with pytest.raises(CheckpointError, match="do not fit the configuration"):
        transfer_weights(target, source, where="tiny")
