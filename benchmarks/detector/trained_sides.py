"""Training of variants of the detector side by side: on the same frames, changed alike, step by step."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from rich.console import Console

from perception.checkpoints.weights import save_weights
from perception.cli.train.command import resolve_config
from perception.config import DetectorConfig, TrainConfig, load_config
from perception.data import open_data_set
from perception.detector import Detector
from perception.evaluate.data_set import evaluate_detector
from perception.evaluate.kitti import KittiResult
from perception.model.network import Network
from perception.model.pillars import make_pillars
from perception.registry import make_network
from perception.train.data.batches import batches, collate
from perception.train.data.frames import load_frames
from perception.train.losses import LOSS_WEIGHTS, network_losses
from perception.train.trainer import Trainer

#: The side that others are compared with: the detector as it ships.
PLAIN = "plain"
#: Steps that compile and fill queues, and steps whose time is taken; no more than are asked for.
_WARMUP, _TIMED = 15, 25
_LINE_EVERY_S = 20.0


def as_it_ships(config: DetectorConfig) -> DetectorConfig:
    """The same detector."""
    return config


class Side(NamedTuple):
    """A variant; of functions and classes that a process can be given.

    Attributes:
        change: makes its detector of the shipped one.
        trainer: class that trains it.
    """

    change: Callable[[DetectorConfig], DetectorConfig] = as_it_ships
    trainer: type[Trainer] = Trainer


class SidesRun(NamedTuple):
    """The training of all sides from one seed; plain values, so that a process can be given it.

    Attributes:
        sides: by name; :data:`PLAIN` is among them.
        seed: of weights, order and augmentation of the frames.
        steps: of each side.
        config: name or file of the shipped training configuration.
        data: folder with the split ``train``.
        parts: splits that are evaluated on.
        frames: at most so many frames of each; 0: all.
        folder: one with the weights of each side is made in it.
        device: torch's name for it.
        precision: of the training.
        batch_size: frames a step.
        workers: processes that prepare frames.
        threads: of torch.
    """

    sides: Mapping[str, Side]
    seed: int
    steps: int
    config: str
    data: str
    parts: tuple[str, ...]
    frames: int
    folder: str
    device: str
    precision: Literal["float32", "bfloat16"]
    batch_size: int
    workers: int
    threads: int

    @classmethod
    def each_seed(
        cls, sides: Mapping[str, Side], options: argparse.Namespace, folder: Path
    ) -> list[SidesRun]:
        """Return a run per seed of a benchmark's options."""
        quick = options.quick
        return [
            cls(
                sides,
                seed,
                3 if quick else options.steps,
                "smoke" if quick else options.config,
                str(options.data),
                tuple(options.parts),
                2 if quick else 0,
                str(folder),
                options.device,
                "bfloat16" if options.device == "cuda" else "float32",
                2 if quick else options.batch_size,
                0 if quick else options.workers,
                options.threads,
            )
            for seed in range(options.seed, options.seed + options.seeds)
        ]

    def weights(self, side: str) -> Path:
        """Return the path of the trained weights of a side."""
        return Path(self.folder) / f"{side}-{self.seed}" / "weights.safetensors"


def seconds_a_step(run: SidesRun) -> float:
    """Time all sides together, frames included, with as many concurrent runs as later."""
    warmup, timed = min(_WARMUP, run.steps), min(_TIMED, run.steps)
    with tempfile.TemporaryDirectory() as folder:
        steps = _steps(_trainers(run._replace(folder=folder, steps=warmup + timed)))
        for _ in islice(steps, warmup):
            pass
        started = time.perf_counter()
        for _ in steps:
            pass
        if torch.device(run.device).type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - started) / timed


def train_sides(run: SidesRun) -> dict[str, Any]:
    """Train all sides, then measure the averaged weights of each, which are kept in files.

    Returns:
        ``seed``, ``steps``, and by side ``step_ms`` (median), ``parameters``, and for each part ``loss``
        (mean over its frames of the weighted sum of losses) and AP40 in percent.
    """
    trainers = _trainers(run)
    console, told = Console(stderr=True), time.perf_counter()
    times: dict[str, list[float]] = {side: [] for side in run.sides}
    for number, taken in enumerate(_steps(trainers), start=1):
        for side, seconds in taken.items():
            times[side].append(seconds)
        if time.perf_counter() - told > _LINE_EVERY_S:
            told = time.perf_counter()
            console.print(f"seed {run.seed}: step {number} of {run.steps}", highlight=False)
    sides = {}
    for side, trainer in trainers.items():
        network = trainer.averaged_network()
        save_weights(network, run.weights(side))
        sides[side] = {
            "step_ms": round(1e3 * statistics.median(times[side]), 2),
            "parameters": sum(value.numel() for value in network.parameters()),
            **{part: _measured(network, run, part) for part in run.parts},
        }
    return {"seed": run.seed, "steps": run.steps, "sides": sides}


def trained(runs: Sequence[SidesRun], seconds: float | None) -> tuple[list[SidesRun], list[dict[str, Any]]]:
    """The trainings as they were run, all at a time, and what was measured of each.

    Args:
        runs: one a seed.
        seconds: steps that take so long in place of ``SidesRun.steps``, if given.
    """
    with _mapping(len(runs)) as mapped:
        if seconds:
            steps = max(1, int(seconds / max(mapped(seconds_a_step, runs))))
            runs = [run._replace(steps=steps) for run in runs]
        return list(runs), mapped(train_sides, runs)


@contextlib.contextmanager
def _mapping(count: int) -> Iterator[Callable[[Callable[[SidesRun], Any], Sequence[SidesRun]], list[Any]]]:
    """A map over trainings: several are processes at a time."""
    if count == 1:
        yield lambda function, runs: list(map(function, runs))
        return
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield lambda function, runs: list(pool.map(function, runs))


def cases(records: Sequence[dict[str, Any]], parts: Sequence[str]) -> list[dict[str, Any]]:
    """Return mean, minimum and maximum over the seeds by part and side, and the same of gains over the plain
    side."""
    sides, found = list(records[0]["sides"]), []
    for part in parts:
        rows = {side: [record["sides"][side][part] for record in records] for side in sides}
        gained = {
            side: {
                name: _spread([b[name] - a[name] for a, b in zip(rows[PLAIN], rows[side], strict=True)])
                for name in rows[PLAIN][0]
            }
            for side in sides
            if side != PLAIN
        }
        measured = {
            side: {name: _spread([row[name] for row in taken]) for name in taken[0]}
            for side, taken in rows.items()
        }
        found.append({"part": part, "seeds": len(records), "sides": measured, "gained": gained})
    training = {
        side: {
            "step_ms": round(statistics.median(record["sides"][side]["step_ms"] for record in records), 2),
            "parameters": records[0]["sides"][side]["parameters"],
        }
        for side in sides
    }
    return [*found, {"part": "training", "sides": training}]


def _spread(found: Sequence[float]) -> dict[str, float]:
    return {
        "mean": round(statistics.fmean(found), 3),
        "least": round(min(found), 3),
        "most": round(max(found), 3),
    }


def _trainers(run: SidesRun) -> dict[str, Trainer]:
    torch.set_num_threads(run.threads)
    config = replace(
        load_config(TrainConfig, resolve_config(run.config)),
        steps=run.steps,
        batch_size=run.batch_size,
        precision=run.precision,
        workers=run.workers,
        seed=run.seed,
    )
    frames = load_frames(open_data_set(run.data, "train"), config.detector.head.classes)
    return {
        name: side.trainer(
            replace(config, detector=side.change(config.detector)),
            run.weights(name).parent,
            frames,
            device=run.device,
        )
        for name, side in run.sides.items()
    }


def _steps(trainers: Mapping[str, Trainer]) -> Iterator[dict[str, float]]:
    """Seconds that each side took, step by step; all are given the same batch."""
    first = trainers[PLAIN]
    made = batches(first.samples, first_step=0, workers=first.config.workers, pin=first.device.type == "cuda")
    for batch in made:
        taken = {}
        for side, trainer in trainers.items():
            started = time.perf_counter()
            trainer.train_step(batch)
            trainer.step += 1
            taken[side] = time.perf_counter() - started
        yield taken


def _measured(network: Network, run: SidesRun, part: str) -> dict[str, float]:
    """Loss and AP of a network that is not folded yet, on a split."""
    data_set = open_data_set(run.data, part)
    if run.frames:
        data_set.frame_ids = data_set.frame_ids[: run.frames]
    device = torch.device(run.device)
    frames = load_frames(data_set, network.config.head.classes)
    losses = []
    network.to(device)
    with torch.no_grad():
        for number, frame in enumerate(frames):
            batch = collate([frame]).to(device)
            generator = torch.Generator(device).manual_seed(number)
            pillars = make_pillars(batch.clouds, network.config.pillars)
            found = network_losses(network, pillars, batch, generator)
            losses.append(float(torch.stack([found[name] * LOSS_WEIGHTS[name] for name in found]).sum()))
    with tempfile.TemporaryDirectory() as folder:
        # A copy from the file, because a detector folds its network.
        detector = Detector(_copy(network), device=device, fast=False)
        result = evaluate_detector(detector, data_set, folder)
        assert isinstance(result, KittiResult), "frames with a camera"
    return {"loss": round(statistics.fmean(losses), 4), **_precision(result)}


def _copy(network: Network) -> Network:
    copied = make_network(network.config)
    copied.load_state_dict({name: value.cpu() for name, value in network.state_dict().items()})
    return copied.eval()


def _precision(result: KittiResult) -> dict[str, float]:
    """AP40 of cars in 3D, and seen from above; of the others in 3D."""
    values = {f"car_3d_{level}": result.ap("Car", "3d", level) for level in ("easy", "moderate", "hard")}
    values["car_bev_moderate"] = result.ap("Car", "bev", "moderate")
    for name in result.classes[1:]:
        values[f"{name.lower()}_3d_moderate"] = result.ap(name, "3d", "moderate")
    return {name: round(value, 3) for name, value in values.items()}
