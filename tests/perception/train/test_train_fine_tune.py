"""Training with masks and with the values that will be stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from perception.checkpoints.compression import compress_network, kept_masks, save_compressed_weights
from perception.checkpoints.weights import load_weights
from perception.config import TrainConfig
from perception.errors import CheckpointError
from perception.train.coded_weights import RoundedWeight, SharedWeight
from perception.train.data.frames import TrainingFrame
from perception.train.fine_tune import FineTune, masks_of
from perception.train.run import train
from perception.train.trainer import Trainer
from sparse_core.compression import Coding, compress
from sparse_core.nm import NMPattern
from sparse_core.nm.masks import nm_mask

Street = Callable[[int], TrainingFrame]
# Three small scans are few rows to calibrate with.
pytestmark = pytest.mark.filterwarnings("ignore::sparse_core.nm.CalibrationWarning")


def trainer(config: TrainConfig, directory: Path, street: Street, fine_tune: FineTune) -> Trainer:
    return Trainer(config, directory, [street(number) for number in range(3)], fine_tune=fine_tune)


def test_masks_stay_while_weights_move(
    tiny_training: TrainConfig, tiny_weights: Path, street: Street, tmp_path: Path
) -> None:
    made = trainer(tiny_training, tmp_path, street, FineTune(str(tiny_weights), "2:4"))
    masks = {name: mask.clone() for name, mask in masks_of(made.network).items()}
    before = made.averaged_network().state_dict()
    assert made.run(show_progress=False)
    plain = made.averaged_network()
    after = plain.state_dict()
    assert "neck.blocks.0.first.conv" in masks
    assert "encoder.points.linear" not in masks
    for name, mask in masks.items():
        weight = after[f"{name}.weight"]
        assert not weight[~mask].any()
        assert not torch.equal(weight, before[f"{name}.weight"])
        assert torch.equal(mask, masks_of(made.network)[name])
    assert kept_masks(plain) is not None
    # What starts from them again keeps these zeros.
    again = Trainer(
        replace(tiny_training, steps=1),
        tmp_path / "again",
        [street(0)],
        fine_tune=FineTune(str(saved(made, tmp_path)), "2:4"),
    )
    for name, mask in masks_of(again.network).items():
        weight = after[f"{name}.weight"].half()
        assert not weight[~mask].any()


def saved(made: Trainer, folder: Path) -> Path:
    from perception.checkpoints.weights import save_weights

    save_weights(made.averaged_network(), folder / "masked.safetensors")
    return folder / "masked.safetensors"


def test_stopping_and_going_on_changes_no_bit(
    tiny_training: TrainConfig, tiny_weights: Path, street: Street, tmp_path: Path
) -> None:
    config = replace(tiny_training, steps=3)
    start = FineTune(str(tiny_weights), "2:4", "codebook4")
    straight = trainer(config, tmp_path / "straight", street, start)
    straight.run(show_progress=False)
    for _ in range(2):
        stopped = trainer(config, tmp_path / "stopped", street, start)
        stopped.run(max_seconds=0.0, show_progress=False)
    resumed = trainer(config, tmp_path / "stopped", street, start)
    assert resumed.step == 2
    resumed.run(show_progress=False)
    first, second = straight.averaged_network().state_dict(), resumed.averaged_network().state_dict()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


@pytest.mark.parametrize(("masks", "coding"), [(None, "int8"), ("2:4", "int4/8"), ("2:4", "codebook4")])
def test_the_file_is_what_was_trained(
    tiny_training: TrainConfig,
    tiny_weights: Path,
    street: Street,
    tmp_path: Path,
    coding: str,
    masks: str | None,
) -> None:
    start = FineTune(str(tiny_weights), masks, coding)  # type: ignore[arg-type]
    made = trainer(replace(tiny_training, steps=2), tmp_path, street, start)
    made.run(show_progress=False)
    plain = made.averaged_network()
    found = masks_of(made.network)
    compressed = compress_network(
        plain, coding, pattern=NMPattern(2, 4, "channels_last") if masks else None, masks=found or None
    )
    path = save_compressed_weights(compressed, plain.config, tmp_path / "coded.safetensors")
    stored = load_weights(path).state_dict()
    for name, value in plain.state_dict().items():
        # Float16 scales, and biases of the layers that stay as they are.
        assert torch.allclose(stored[name], value, rtol=2e-3, atol=1e-6), name
    assert bool(found) == (masks is not None)


def test_training_improves_on_pruning(
    tiny_training: TrainConfig, tiny_weights: Path, street: Street, tmp_path: Path
) -> None:
    config = replace(tiny_training, steps=12, average_decay=0.0)
    made = trainer(config, tmp_path, street, FineTune(str(tiny_weights), "2:4"))
    losses = [float(made.train_step(batch)["total"]) for batch in made._batches()]
    assert sum(losses[-3:]) < sum(losses[:3])


def test_rounded_weights_pass_the_gradient_through() -> None:
    layer = nn.Linear(8, 4, bias=False)
    mask = nm_mask(layer.weight, 2, 4)
    coded = compress(layer.weight, NMPattern(2, 4), "int4", mask=mask).to_dense()
    parametrize.register_parametrization(
        layer, "weight", RoundedWeight(layer.weight, Coding("int4"), NMPattern(2, 4), "rows", mask)
    )
    assert torch.allclose(layer.weight, coded, atol=1e-7)
    assert not torch.equal(layer.weight, layer.parametrizations.weight.original)
    slope = torch.randn(4, 8)
    (layer.weight * slope).sum().backward()
    assert torch.equal(layer.parametrizations.weight.original.grad, slope)


def test_shared_weights_train_their_centroids() -> None:
    stored = compress(torch.randn(6, 8), None, "codebook4")
    assert stored.centroids is not None
    made = SharedWeight(stored)
    dense = made(torch.zeros(6, 8))
    assert torch.equal(dense, stored.to_dense())
    slope = torch.randn(6, 8)
    (dense * slope).sum().backward()
    wanted = torch.stack([slope[dense == centroid].sum() for centroid in stored.centroids])
    assert made.centroids.grad is not None
    assert torch.allclose(made.centroids.grad, wanted, atol=1e-5)


def test_a_whole_fine_tuning(
    tiny_training: TrainConfig, tiny_weights: Path, kitti_folder: Path, tmp_path: Path
) -> None:
    config = replace(tiny_training, steps=2)
    masked = train(
        config,
        kitti_folder,
        tmp_path / "masked",
        show_progress=False,
        fine_tune=FineTune(str(tiny_weights), "2:4"),
    )
    assert masked.finished
    weights = masked.directory / "weights.safetensors"
    assert kept_masks(load_weights(weights)) is not None
    coded = train(
        config,
        kitti_folder,
        tmp_path / "coded",
        show_progress=False,
        fine_tune=FineTune(str(weights), "2:4", "int8"),
    )
    assert coded.metrics is not None
    assert coded.directory.joinpath("weights.safetensors").stat().st_size < 0.7 * weights.stat().st_size
    network = load_weights(coded.directory / "weights.safetensors")
    assert network.config == config.detector
    assert kept_masks(network) is not None


def test_a_folder_of_another_fine_tuning(
    tiny_training: TrainConfig, tiny_weights: Path, street: Street, tmp_path: Path
) -> None:
    start = FineTune(str(tiny_weights), "2:4")
    trainer(tiny_training, tmp_path, street, start).save_checkpoint()
    with pytest.raises(CheckpointError, match="another 'fine_tune'"):
        trainer(tiny_training, tmp_path, street, replace(start, coding="int8"))
    with pytest.raises(CheckpointError, match="another 'fine_tune'"):
        Trainer(tiny_training, tmp_path, [street(0)])
    stored = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    del stored["network"]["head.box_middle.parametrizations.weight.0.mask"]
    torch.save(stored, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="damaged"):
        trainer(tiny_training, tmp_path, street, start)


def test_what_cannot_be_started_from(
    tiny_training: TrainConfig, tiny_weights: Path, street: Street, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="no weights 'none'"):
        trainer(tiny_training, tmp_path, street, FineTune("none"))
    wider = replace(tiny_training.detector, neck=replace(tiny_training.detector.neck, channels=24))
    with pytest.raises(CheckpointError, match="another configuration"):
        trainer(replace(tiny_training, detector=wider), tmp_path, street, FineTune(str(tiny_weights)))
    network = load_weights(tiny_weights).fold()
    packed = save_compressed_weights(compress_network(network), network.config, tmp_path / "p.safetensors")
    with pytest.raises(CheckpointError, match=r"p\.safetensors: .*folded"):
        trainer(tiny_training, tmp_path, street, FineTune(str(packed), "2:4"))
    assert trainer(tiny_training, tmp_path, street, FineTune(str(packed), "2:4", "int8")).step == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"masks": "1:4"}, "masks must be '2:4'"),
        ({"coding": "float16"}, "does not change training"),
        ({"coding": "int5"}, "is not a coding"),
    ],
)
def test_what_cannot_be_asked_for(fields: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FineTune("weights", **fields)  # type: ignore[arg-type]
