"""Batches by number: sample ``i`` of a run is reproducible in any process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from perception.config import TrainConfig
from perception.train.data.augment import augment
from perception.train.data.frames import TrainingFrame
from perception.train.data.objects import ObjectSample
from perception.train.ranks import ALONE, Ranks
from sparse_core.common.interruption import ignore_stop_signals


@dataclass(frozen=True, eq=False)
class Batch:
    """Frames of one optimizer step.

    Attributes:
        clouds: one (N_i, C) float32 tensor per frame.
        boxes: (B, M, 7) float32, padded with zeros.
        labels: (B, M) int64; -1 for ignored objects, -2 for padding.
        velocities: (B, M, 2) float32, m/s; NaN where unknown.
        unlabelled: (B, U) int64 classes that the labels of a frame cannot have, padded with -2.
    """

    clouds: list[Tensor]
    boxes: Tensor
    labels: Tensor
    velocities: Tensor
    unlabelled: Tensor

    def to(self, device: torch.device) -> Batch:
        """Move the batch to another device."""
        return self._each(lambda part: part.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        """Copy the batch to page-locked memory."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        parts = map(change, (self.boxes, self.labels, self.velocities, self.unlabelled))
        return Batch([change(cloud) for cloud in self.clouds], *parts)


PADDING = -2


class SampleSequence(Dataset[TrainingFrame]):
    """Augmented samples by number; each uses a generator seeded by (seed, number).

    Args:
        frames: main data set.
        extra: further frames, mixed in with ``config.extra_share`` during the first part of training.
        objects: objects to paste, by class index.
        config: of the run.
    """

    def __init__(
        self,
        frames: Sequence[TrainingFrame],
        extra: Sequence[TrainingFrame],
        objects: Mapping[int, Sequence[ObjectSample]],
        config: TrainConfig,
    ) -> None:
        self.frames, self.extra, self.objects, self.config = frames, extra, objects, config

    def __len__(self) -> int:
        return self.config.steps * self.config.batch_size

    def __getitem__(self, number: int) -> TrainingFrame:
        random = np.random.default_rng((self.config.seed, number))
        progress = number / len(self)
        use_extra = (
            len(self.extra) > 0
            and progress < self.config.extra_until
            and random.random() < self.config.extra_share
        )
        frame = self.extra[int(random.integers(len(self.extra)))] if use_extra else self._shuffled(number)
        return augment(frame, self.objects, self.config.augment, self.config.detector.head.classes, random)

    def _shuffled(self, number: int) -> TrainingFrame:
        """Return every frame once per epoch, in a new order each epoch."""
        epoch, position = divmod(number, len(self.frames))
        order = np.random.default_rng((self.config.seed, 1, epoch)).permutation(len(self.frames))
        return self.frames[int(order[position])]


def collate(frames: Sequence[TrainingFrame]) -> Batch:
    """Collate frames to a batch."""
    most = max(1, *(len(frame.boxes) for frame in frames)) if frames else 1
    boxes = torch.zeros(len(frames), most, 7, dtype=torch.float32)
    labels = torch.full((len(frames), most), PADDING, dtype=torch.int64)
    velocities = torch.full((len(frames), most, 2), torch.nan)
    missing = max((len(frame.unlabelled) for frame in frames), default=0)
    unlabelled = torch.full((len(frames), missing), PADDING, dtype=torch.int64)
    for row, frame in enumerate(frames):
        unlabelled[row, : len(frame.unlabelled)] = torch.tensor(frame.unlabelled, dtype=torch.int64)
        velocities[row, : len(frame.boxes)] = torch.from_numpy(frame.velocities)
        boxes[row, : len(frame.boxes)] = torch.from_numpy(frame.boxes)
        labels[row, : len(frame.labels)] = torch.from_numpy(frame.labels)
    return Batch([torch.from_numpy(frame.points) for frame in frames], boxes, labels, velocities, unlabelled)


def batches(
    samples: SampleSequence, *, first_step: int, workers: int, pin: bool, ranks: Ranks = ALONE
) -> Iterator[Batch]:
    """Yield batches from ``first_step`` on, prepared by worker processes (at most one per core).

    Batches do not depend on the number of workers. Each rank gets its part of every batch.
    """
    workers = min(workers, max(1, (os.cpu_count() or 1) // ranks.count))
    whole = samples.config.batch_size
    size = whole // ranks.count
    own = range(ranks.rank * size, (ranks.rank + 1) * size)
    steps = range(first_step, len(samples) // whole)
    loader: DataLoader[TrainingFrame] = DataLoader(
        samples,
        batch_size=size,
        sampler=[step * whole + number for step in steps for number in own],
        num_workers=workers,
        collate_fn=collate,
        pin_memory=pin,
        prefetch_factor=4 if workers else None,
        worker_init_fn=_start_worker,
    )
    yield from loader


def _start_worker(worker: int) -> None:
    # The training process ends its workers after it has saved.
    ignore_stop_signals()
    torch.set_num_threads(1)
