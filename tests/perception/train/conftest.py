"""A small training run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from perception.config import AugmentConfig, DetectorConfig, TrainConfig
from perception.train.data.batches import Batch, collate
from perception.train.data.frames import TrainingFrame


@pytest.fixture(scope="session")
def tiny_training(tiny_config: DetectorConfig) -> TrainConfig:
    """Six steps of two frames on a CPU."""
    return TrainConfig(
        detector=tiny_config,
        augment=AugmentConfig(paste={"Car": 3, "Pedestrian": 3}),
        steps=6,
        batch_size=2,
        precision="float32",
        workers=0,
        checkpoint_every=100,
        seed=4,
    )


@pytest.fixture(scope="session")
def to_batch() -> Callable[[Sequence[TrainingFrame]], Batch]:
    """Frames to a batch."""
    return collate


@pytest.fixture
def without_objects(street: Callable[[int], TrainingFrame]) -> TrainingFrame:
    """A street that nobody is in."""
    frame = street(0)
    return TrainingFrame("empty", frame.points, np.zeros((0, 7), np.float32), np.zeros(0, np.int64))


@pytest.fixture(autouse=True)
def _one_thread(one_thread: None) -> None:
    """Every test of this folder runs on one thread."""
