"""The detector of the study: backbone and neck trained sparse from scratch on KITTI's frames."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from benchmarks.layers.dynamic_detector_layers import make_detector_dense, make_detector_sparse, multiply_adds
from benchmarks.layers.dynamic_rows import (
    LayerCost,
    Row,
    make_step,
    parameter_count,
    sparse_layers,
    training_cost,
)
from perception.cli.train import resolve_config
from perception.config import TrainConfig, load_config
from perception.data import open_data_set
from perception.detector import Detector
from perception.evaluate.data_set import evaluate_detector
from perception.evaluate.kitti import KittiResult
from perception.model.network import Network
from perception.model.pillars import make_pillars
from perception.train.batches import Batch, SampleSequence, batches, collate
from perception.train.frames import TrainingFrame, load_frames
from perception.train.losses import LOSS_WEIGHTS, network_losses
from perception.train.objects import collect_objects

UPDATE_EVERY = 20
CONFIG = "pointpillars-kitti"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class OutOfTimeError(RuntimeError):
    """The training was not finished in time; it leaves no result."""


class DetectorRun(NamedTuple):
    """One training of the detector; plain values, so that a process can be given it.

    Attributes:
        row: how it is trained.
        seed: of weights, topology, order and augmentation of the frames.
        steps: of a plain training; the row's length multiplies them.
        config: name or file of the training's configuration.
        batch_size: frames a step.
        data: KITTI-layout folder.
        device: torch's name for it.
        precision: of the training.
        workers: processes that prepare frames.
        frames: at most so many development frames; 0 for all.
        deadline: ``time.time()`` at which to give up; 0 for never.
    """

    row: Row
    seed: int
    steps: int
    config: str
    batch_size: int
    data: str
    device: str
    precision: Literal["float32", "bfloat16"]
    workers: int
    frames: int = 0
    deadline: float = 0.0


def train_detector(run: DetectorRun) -> dict[str, Any]:
    """Train from scratch, then measure.

    Returns:
        ``task``, ``seed``, the fields of the row, ``steps``, ``ap`` (3-D AP40 of cars: easy, moderate, hard),
        ``ap_bev`` (moderate, seen from above), ``loss`` (sum of the weighted losses on the development
        frames), ``parameters``, ``connections``, ``density``, ``cost``, ``updates``, ``seconds``.

    Raises:
        OutOfTimeError: the deadline has passed.
    """
    row, device = run.row, torch.device(run.device)
    torch.set_num_threads(1)
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
    config = _config(run)
    torch.manual_seed(run.seed)
    network = Network(config.detector).to(device)
    first = collate(_frames(run.data, "val", config.detector.head.classes)[:1]).to(device)
    counted = multiply_adds(network, make_pillars(first.clouds, config.detector.pillars))
    sizes = {name: network.get_submodule(name).weight.numel() for name in counted}  # type: ignore[operator]
    if row.is_sparse:
        make_detector_sparse(network, row, seed=1000 * run.seed)
    layers = sparse_layers(network)
    parameters, stored = parameter_count(network), sum(layer.values.numel() for layer in layers.values())
    density = {name: layers[name].grid.density if name in layers else 1.0 for name in counted}
    started = time.perf_counter()
    updates = _fit(network, config, run, device)
    seconds = time.perf_counter() - started
    loss = development_loss(network, run, device)
    average, above = _precision(make_detector_dense(network), run, device)
    cost = training_cost(
        {name: LayerCost(counted[name], density[name]) for name in counted},
        0.0,
        steps=config.steps,
        dense_steps=run.steps,
        updates=updates,
        by_gradient=row.method == "rigl",
    )
    return {
        "task": "detector",
        "seed": run.seed,
        **row._asdict(),
        "steps": config.steps,
        "ap": average,
        "ap_bev": above,
        "loss": loss,
        "parameters": parameters,
        "connections": stored,
        "density": sum(density[name] * sizes[name] for name in counted) / sum(sizes.values()),
        "cost": cost,
        "updates": updates,
        "seconds": round(seconds, 1),
    }


def _config(run: DetectorRun) -> TrainConfig:
    config = load_config(TrainConfig, resolve_config(run.config))
    return replace(
        config,
        steps=run.steps * run.row.length,
        batch_size=run.batch_size,
        precision=run.precision,
        workers=run.workers,
        seed=run.seed,
        extra_share=0.0,
    )


@lru_cache(maxsize=2)
def _frames(data: str, split: str, classes: tuple[str, ...]) -> list[TrainingFrame]:
    return list(load_frames(open_data_set(data, split), classes))


#: Batches of the last schedule: all rows of a seed see the same, and making one takes longer than a step.
_batches_made: dict[tuple[Any, ...], list[Batch]] = {}


def _batches(config: TrainConfig, run: DetectorRun, device: torch.device) -> Iterator[Batch]:
    key = (run.data, run.config, run.seed, config.steps, config.batch_size, run.device)
    kept = _batches_made.get(key)
    if kept is not None:
        yield from kept
        return
    _batches_made.clear()
    frames = _frames(run.data, "train", config.detector.head.classes)
    samples = SampleSequence(frames, [], collect_objects(frames), config)
    made = []
    for batch in batches(samples, first_step=0, workers=config.workers, pin=device.type == "cuda"):
        made.append(batch.to(device))
        yield made[-1]
    _batches_made[key] = made


def _fit(network: Network, config: TrainConfig, run: DetectorRun, device: torch.device) -> int:
    """Train in place as :mod:`perception.train` does, without its average of the weights; the exchanges.

    (An average over steps between which connections moved would have more of them than the network.)
    """
    stored = {id(layer.values) for layer in sparse_layers(network).values()}
    matrices = [value for value in network.parameters() if value.ndim > 1 or id(value) in stored]
    vectors = [value for value in network.parameters() if value.ndim <= 1 and id(value) not in stored]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.95, 0.99))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=config.learning_rate,
        total_steps=config.steps + 1,
        pct_start=0.3,
        div_factor=10.0,
        base_momentum=0.85,
        max_momentum=0.95,
    )
    take_step, _ = make_step(
        network, optimizer, run.row, steps=config.steps, update_every=UPDATE_EVERY, seed=run.seed
    )
    updates = 0
    network.train()
    for number, batch in enumerate(_batches(config, run, device)):
        if run.deadline and time.time() > run.deadline:
            raise OutOfTimeError(f"{run.row.label} stopped at step {number} of {config.steps}")
        total = _loss(network, batch, run, config.seed * 1_000_003 + number, device)
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.gradient_clip)
        updates += take_step() is not None
        schedule.step()
    return updates


def _loss(network: Network, batch: Batch, run: DetectorRun, seed: int, device: torch.device) -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    pillars = make_pillars(batch.clouds, network.config.pillars)
    dtype = _DTYPES[run.precision]
    with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
        losses = network_losses(network, pillars, batch, generator)
        return torch.stack([losses[name] * LOSS_WEIGHTS[name] for name in losses]).sum()


@torch.no_grad()
def development_loss(network: Network, run: DetectorRun, device: torch.device) -> float:
    """Mean over the development frames of the weighted sum of losses, as they are, one at a time."""
    network.eval()
    frames = _frames(run.data, "val", network.config.head.classes)[: run.frames or None]
    losses = [
        float(_loss(network, collate([frame]).to(device), run, number, device))
        for number, frame in enumerate(frames)
    ]
    return sum(losses) / len(losses)


def _precision(network: Network, run: DetectorRun, device: torch.device) -> tuple[dict[str, float], float]:
    data_set = open_data_set(run.data, "val")
    if run.frames:
        data_set.frame_ids = data_set.frame_ids[: run.frames]
    detector = Detector(network.eval(), device=device, fast=False)
    with tempfile.TemporaryDirectory() as folder:
        result = evaluate_detector(detector, data_set, Path(folder))
        assert isinstance(result, KittiResult), "frames with a camera"
    levels = ("easy", "moderate", "hard")
    return (
        {level: round(result.ap("Car", "3d", level), 3) for level in levels},  # type: ignore[arg-type]
        round(result.ap("Car", "bev", "moderate"), 3),
    )
