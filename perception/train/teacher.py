"""A finished network whose maps a training learns to reproduce."""

from __future__ import annotations

import torch

from perception.checkpoints.weights import load_weights
from perception.config import DetectorConfig
from perception.errors import ConfigError
from perception.model.network import Network


def load_teacher(weights: str, config: DetectorConfig, device: torch.device) -> Network:
    """Load the teacher of a training, folded and without gradients.

    Its backbone may be of another kind: a dense network can teach a sparse one.

    Args:
        weights: shipped name or file.
        config: of the trained detector.
        device: to train on.

    Raises:
        CheckpointError: the weights are unreadable.
        ConfigError: the teacher's pillars, classes or map differ from the detector's.
    """
    teacher = load_weights(weights)
    for name, own, wanted in (
        ("pillars", teacher.config.pillars, config.pillars),
        ("head.classes", teacher.config.head.classes, config.head.classes),
        ("neck.out_channels", teacher.config.neck.out_channels, config.neck.out_channels),
        ("backbone.channels", len(teacher.config.backbone.channels), len(config.backbone.channels)),
    ):
        if own != wanted:
            raise ConfigError(
                f"teacher: {name} of {weights} is {own}, but the detector has {wanted}. Choose weights with"
                " the same pillars, classes and map"
            )
    return teacher.to(device).fold().requires_grad_(False)
