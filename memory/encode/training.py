"""Contrastive training of a scene encoder."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.nn import functional

from memory.encode.scene import SceneEncoder, SceneEncoderConfig, TokenBatch
from memory.encode.tokens import STRUCTURE, SceneTokens
from sparse_core.common.files import save_torch
from sparse_core.common.interruption import Interrupted, stop_requests


@dataclass(frozen=True)
class TrainingOptions:
    """Options of the training.

    Attributes:
        steps: number of optimiser steps.
        places: places per batch, with two views each.
        learning_rate: maximum, after a warm-up of 5 % of the steps; a cosine schedule ends at zero.
        weight_decay: of AdamW.
        temperature: of the similarities.
        seed: of weights, batches and augmentation.
        drop: maximum share of tokens that a view loses.
        spurious: maximum share of tokens that are replaced by random ones.
        shift_m: standard deviation of the robot's position.
        turn_rad: standard deviation of its heading.
        reverse: probability that a view is turned by 180 degrees.
        jitter_m: standard deviation of each token's position.
        detections_only: share of the places whose views lose all :data:`STRUCTURE` tokens.
        save_every: steps between checkpoints.

    Raises:
        ValueError: a number is out of range.
    """

    steps: int = 400
    places: int = 64
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    temperature: float = 0.07
    seed: int = 0
    drop: float = 0.3
    spurious: float = 0.1
    shift_m: float = 0.3
    turn_rad: float = 0.05
    reverse: float = 0.1
    jitter_m: float = 0.1
    detections_only: float = 0.2
    save_every: int = 50

    def __post_init__(self) -> None:
        if min(self.steps, self.save_every) < 1 or self.places < 2:
            raise ValueError("steps and save_every must be at least 1, places at least 2")
        if self.learning_rate <= 0 or self.temperature <= 0:
            raise ValueError("learning_rate and temperature must be positive")
        for name in ("drop", "spurious", "reverse", "detections_only"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {getattr(self, name)}")
        for name in ("shift_m", "turn_rad", "jitter_m", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")


@dataclass(frozen=True)
class TrainingResult:
    """Result of the training.

    Attributes:
        encoder: trained encoder in evaluation mode.
        losses: loss of each step.
    """

    encoder: SceneEncoder
    losses: list[float]


def train_scene_encoder(
    scenes: Sequence[Sequence[SceneTokens]],
    *,
    config: SceneEncoderConfig | None = None,
    options: TrainingOptions | None = None,
    checkpoint: str | Path | None = None,
    stop_after: int | None = None,
    progress: bool = False,
) -> TrainingResult:
    """Train with symmetric InfoNCE (van den Oord et al. 2018) between two views of each place.

    Each step has its own seed, so a resumed training gives the same result.

    Args:
        scenes: places, each with two or more views from other poses or times.
        config: sizes of the encoder.
        options: options of the training.
        checkpoint: checkpoint file; training resumes from it if it exists.
        stop_after: stop after this number of steps, with a checkpoint.
        progress: show a progress bar.

    Raises:
        ValueError: fewer places than a batch needs, a place with one view, or a checkpoint of another
            training.
        Interrupted: SIGINT or SIGTERM; the step was finished and the checkpoint written.
    """
    settings = TrainingOptions() if options is None else options
    if len(scenes) < settings.places:
        raise ValueError(f"a batch has {settings.places} places, but there are only {len(scenes)}")
    for number, views in enumerate(scenes):
        if len(views) < 2:
            raise ValueError(f"place {number} must have at least two views, got {len(views)}")
    encoder = SceneEncoder(config, seed=settings.seed).train()
    optimiser = torch.optim.AdamW(
        encoder.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    file = None if checkpoint is None else Path(checkpoint)
    losses = _resume(file, encoder, optimiser, settings)
    end = settings.steps if stop_after is None else min(stop_after, settings.steps)
    data = _Views(encoder, scenes)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with stop_requests() as stop, Progress(*columns, TimeRemainingColumn(), disable=not progress) as bar:
        resumed = f"resumed at step {len(losses)}" if losses else ""
        task = bar.add_task(resumed, total=settings.steps, completed=len(losses))
        for step in range(len(losses), end):
            losses.append(_step(encoder, optimiser, data, settings, step))
            bar.update(task, advance=1, description=f"loss {losses[-1]:.3f}")
            done = step + 1
            if file is not None and (done % settings.save_every == 0 or done == end or stop):
                _save(file, encoder, optimiser, settings, losses)
            if stop:
                saved = f"saved in {file}" if file is not None else "not saved: give a checkpoint file"
                raise Interrupted(
                    f"interrupted at step {done} of {settings.steps}, {saved}; the same call resumes",
                    stop.signal_number,
                )
    return TrainingResult(encoder.eval(), losses)


class _Views:
    """All views of all places as padded arrays."""

    def __init__(self, encoder: SceneEncoder, scenes: Sequence[Sequence[SceneTokens]]) -> None:
        flat = [view for views in scenes for view in views]
        self.batch = encoder.batch(flat)
        counts = np.array([len(views) for views in scenes])
        self.first, self.counts = np.cumsum(counts) - counts, counts

    def pairs(self, places: int, rng: np.random.Generator) -> TokenBatch:
        """Return two views of each of some places: first one of each, then the other."""
        chosen = rng.choice(len(self.counts), places, replace=False)
        count = self.counts[chosen]
        one = rng.integers(0, count)
        other = (one + 1 + rng.integers(0, count - 1)) % count
        rows = torch.from_numpy(np.concatenate([self.first[chosen] + one, self.first[chosen] + other]))
        lengths = self.batch.lengths[rows]
        most = max(1, int(lengths.max()))
        return TokenBatch(
            self.batch.classes[rows, :most],
            self.batch.boxes[rows, :most],
            self.batch.scores[rows, :most],
            lengths,
        )


def changed_views(
    batch: TokenBatch, options: TrainingOptions, rng: np.random.Generator, *, structure: int = -1
) -> TokenBatch:
    """Augment views as if seen from another pose and by another detector.

    Args:
        batch: views, an even number; not modified.
        options: strength of the changes.
        rng: random generator.
        structure: row of :data:`STRUCTURE` among the classes.
    """
    count, most = batch.scores.shape
    boxes = batch.boxes.numpy().astype(np.float64)
    classes, scores, lengths = batch.classes.numpy(), batch.scores.numpy(), batch.lengths.numpy()
    exists = np.arange(most) < lengths[:, None]
    spurious = exists & (rng.random((count, most)) < rng.uniform(0, options.spurious, (count, 1)))
    boxes[..., :2] = np.where(spurious[..., None], rng.uniform(-45, 45, (count, most, 2)), boxes[..., :2])
    boxes[..., :2] += rng.normal(0, options.jitter_m, (count, most, 2))
    turn = rng.normal(0, options.turn_rad, count) + np.pi * (rng.random(count) < options.reverse)
    cosine, sine = np.cos(turn)[:, None], np.sin(turn)[:, None]
    x, y = (boxes[..., k] - rng.normal(0, options.shift_m, (count, 1)) for k in range(2))
    boxes[..., 0], boxes[..., 1] = cosine * x + sine * y, cosine * y - sine * x
    boxes[..., 6] -= turn[:, None]
    scores = np.clip(scores + rng.normal(0, 0.05, scores.shape), 0, 1)
    kept = exists & (rng.random((count, most)) >= rng.uniform(0, options.drop, (count, 1)))
    bare = np.tile(rng.random(count // 2) < options.detections_only, 2)
    kept &= ~(bare[:, None] & (classes == structure))
    order = np.argsort(~kept, axis=1, kind="stable")
    return TokenBatch(
        torch.from_numpy(np.take_along_axis(classes, order, 1)),
        torch.from_numpy(np.take_along_axis(boxes, order[..., None], 1)).float(),
        torch.from_numpy(np.take_along_axis(scores, order, 1)).float(),
        torch.from_numpy(kept.sum(axis=1)),
    )


def contrast(vectors: Tensor, temperature: float) -> Tensor:
    """Compute symmetric InfoNCE between the two halves of the vectors.

    Args:
        vectors: (2 P, dim) unit vectors; rows k and P + k are of one place.
        temperature: of the similarities.
    """
    one, other = vectors.chunk(2)
    logits = one @ other.T / temperature
    target = torch.arange(len(one), device=vectors.device)
    return (functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)) / 2


def _step(
    encoder: SceneEncoder,
    optimiser: torch.optim.Optimizer,
    views: _Views,
    options: TrainingOptions,
    step: int,
) -> float:
    rng = np.random.default_rng([options.seed, step])
    structure = encoder.config.classes.index(STRUCTURE) if STRUCTURE in encoder.config.classes else -1
    batch = changed_views(views.pairs(options.places, rng), options, rng, structure=structure)
    warm = max(1, options.steps // 20)
    rate = 0.5 * (1 + math.cos(math.pi * step / options.steps)) * min(1.0, (step + 1) / warm)
    for group in optimiser.param_groups:
        group["lr"] = options.learning_rate * rate
    loss = contrast(encoder(batch), options.temperature)
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
    optimiser.step()
    return float(loss.detach())


def _settings(encoder: SceneEncoder, options: TrainingOptions) -> str:
    """Return the settings that a checkpoint must match."""
    found: dict[str, Any] = {"config": dataclasses.asdict(encoder.config), **dataclasses.asdict(options)}
    del found["save_every"]
    return json.dumps(found)


def _save(
    file: Path,
    encoder: SceneEncoder,
    optimiser: torch.optim.Optimizer,
    options: TrainingOptions,
    losses: list[float],
) -> None:
    save_torch(
        file,
        {
            "settings": _settings(encoder, options),
            "weights": encoder.state_dict(),
            "optimiser": optimiser.state_dict(),
            "losses": losses,
        },
    )


def _resume(
    file: Path | None, encoder: SceneEncoder, optimiser: torch.optim.Optimizer, options: TrainingOptions
) -> list[float]:
    """Load a checkpoint; return the losses so far."""
    if file is None or not file.exists():
        return []
    try:
        found = torch.load(file, weights_only=True)
        same = found["settings"] == _settings(encoder, options)
    except Exception as error:  # torch.load can raise any unpickling error.
        raise ValueError(f"{file}: not a checkpoint of this training ({error})") from error
    if not same:
        raise ValueError(
            f"{file}: the checkpoint has other settings. Use its settings, or choose another file"
        )
    encoder.load_state_dict(found["weights"])
    optimiser.load_state_dict(found["optimiser"])
    return list(found["losses"])
