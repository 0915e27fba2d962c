"""A whole training: frames from folders, the loop, weights, evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from perception.config import TrainConfig
from perception.detector import Detector
from perception.errors import DataError
from perception.evaluate.data_set import evaluate_detector
from perception.io.kitti import KittiDataset
from perception.model.compression import PATTERN, compress_network, save_compressed_weights
from perception.model.network import Network
from perception.model.weights import load_weights, save_weights
from perception.train.fine_tune import FineTune, masks_of
from perception.train.frames import load_frames
from perception.train.trainer import OnLog, Trainer


@dataclass(frozen=True)
class TrainOutcome:
    """Where a run stands.

    Attributes:
        step: steps done.
        finished: whether that is all of them.
        directory: holds config.yaml, checkpoint.pt, log.csv, curves.png and weights.safetensors; of a stopped
            run these are the averaged weights so far.
        metrics: AP by class and metric on the validation split, once finished.
    """

    step: int
    finished: bool
    directory: Path
    metrics: dict[str, Any] | None


def train(
    config: TrainConfig,
    data: str | Path,
    directory: str | Path,
    *,
    extra: Sequence[str | Path] = (),
    device: str | torch.device = "cpu",
    max_seconds: float | None = None,
    show_progress: bool = True,
    on_log: OnLog | None = None,
    fine_tune: FineTune | None = None,
) -> TrainOutcome:
    """Train on a KITTI-layout folder, evaluate on its ``val`` split, write weights.

    Args:
        config: of the run.
        data: folder with ``training`` and ``ImageSets/train.txt`` (and ``val.txt``).
        directory: of the run; an unfinished run in it goes on.
        extra: further KITTI-layout folders whose frames are mixed in.
        device: where to train.
        max_seconds: stop after this long, with weights that can be used; the next call goes on.
        show_progress: draw a progress bar.
        on_log: called whenever losses are logged: step, steps in all, loss.
        fine_tune: start from finished weights, with masks or a coding; with a coding the weights written are
            compressed by it.
    """
    classes = config.detector.head.classes
    frames = load_frames(KittiDataset(data, "train"), classes)
    more = [frame for folder in extra for frame in load_frames(KittiDataset(folder, "train"), classes)]
    trainer = Trainer(config, directory, frames, extra=more, device=device, fine_tune=fine_tune)
    finished = trainer.run(max_seconds=max_seconds, show_progress=show_progress, on_log=on_log)
    network = _save(trainer, trainer.directory / "weights.safetensors")
    metrics = _validate(network, data, trainer.directory, device) if finished else None
    return TrainOutcome(trainer.step, finished, trainer.directory, metrics)


def _save(trainer: Trainer, path: Path) -> Network:
    """Write the averaged weights as they stand; returns the network that the file describes."""
    network, fine_tune = trainer.averaged_network(), trainer.fine_tune
    if fine_tune is None or fine_tune.coding is None:
        save_weights(network, path)
        return network
    masks = {name: mask.cpu() for name, mask in masks_of(trainer.network).items()}
    pattern = PATTERN if masks else None
    compressed = compress_network(network, fine_tune.coding, pattern=pattern, masks=masks or None)
    save_compressed_weights(compressed, trainer.config.detector, path)
    return load_weights(path)


def _validate(
    network: Network, data: str | Path, directory: Path, device: str | torch.device
) -> dict[str, Any] | None:
    try:
        validation = KittiDataset(data, "val")
    except DataError:
        return None
    detector = Detector(network, device=device)
    return evaluate_detector(detector, validation, directory / "val").to_dict()
