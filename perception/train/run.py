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
from perception.network import Network
from perception.train.frames import load_frames
from perception.train.trainer import Trainer
from perception.weights import save_weights


@dataclass(frozen=True)
class TrainOutcome:
    """Where a run stands.

    Attributes:
        step: steps done.
        finished: whether that is all of them.
        directory: holds config.yaml, checkpoint.pt, log.csv, curves.png and, once finished,
            weights.safetensors.
        metrics: AP by class and metric on the validation split, once evaluated.
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
) -> TrainOutcome:
    """Train on a KITTI-layout folder, evaluate on its ``val`` split, write weights.

    Args:
        config: of the run.
        data: folder with ``training`` and ``ImageSets/train.txt`` (and ``val.txt``).
        directory: of the run; an unfinished run in it goes on.
        extra: further KITTI-layout folders whose frames are mixed in.
        device: where to train.
        max_seconds: stop after this long; the next call goes on.
        show_progress: draw a progress bar.
    """
    classes = config.detector.head.classes
    frames = load_frames(KittiDataset(data, "train"), classes)
    more = [frame for folder in extra for frame in load_frames(KittiDataset(folder, "train"), classes)]
    trainer = Trainer(config, directory, frames, extra=more, device=device)
    finished = trainer.run(max_seconds=max_seconds, show_progress=show_progress)
    metrics = None
    if finished:
        network = trainer.averaged_network()
        save_weights(network, trainer.directory / "weights.safetensors")
        metrics = _validate(network, data, trainer.directory, device)
    return TrainOutcome(trainer.step, finished, trainer.directory, metrics)


def _validate(
    network: Network, data: str | Path, directory: Path, device: str | torch.device
) -> dict[str, Any] | None:
    try:
        validation = KittiDataset(data, "val")
    except DataError:
        return None
    detector = Detector(network, device=device)
    return evaluate_detector(detector, validation, directory / "val").to_dict()
