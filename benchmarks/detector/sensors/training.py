"""Several trainings at once on one or more GPUs, each without the frames of some sensors.

All trainings get the same number of steps: as many as fit into the time, measured by a first few steps. The
number is kept next to the runs, so that the same command resumes them.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.detector.sensors.archive import read_frames
from benchmarks.detector.sensors.sources import LATE_FRAMES, LATE_NUSCENES, SOURCES
from perception.checkpoints.weights import save_weights
from perception.config import TrainConfig, load_config
from perception.train.data.frames import LoadedFrames, TrainingFrame, class_counts
from perception.train.fine_tune import FineTune
from perception.train.trainer import Trainer
from sparse_core.common.files import replacing

#: Sensors that shipped weights have seen, the most general weights first. A training starts from weights that
#: have not seen what it leaves out, or from random ones.
_SEEN = {
    "pointpillars-anywhere": {*SOURCES, LATE_NUSCENES},
    "pointpillars-kitti": {"kitti"},
}
#: Peak learning rate of trainings that start from finished weights.
_FINE_TUNE_RATE = 0.0015
_STEPS_FILE = "steps.json"
#: Seconds left for writing weights and results.
_RESERVE_S = 25.0


@dataclass(frozen=True)
class TrainingOptions:
    """Options of all trainings of a call.

    Attributes:
        packed: folder of files of :mod:`benchmarks.detector.sensors.archive`.
        work: folder of the runs, with their checkpoints.
        out: folder for weights and ``training.json``.
        config: training configuration.
        validation: names of KITTI frames that no training uses; empty if none.
        steps: of each training; 0: as many as fit.
        most: largest number of steps.
        probe: steps that measure the time of a step.
        max_seconds: for everything, from ``started`` on.
        started: time of the call's start, seconds since the epoch.
        workers: processes that prepare frames, of each training.
        batch_size: frames per step; 0: that of the configuration.
        fine_tune: start from finished weights where possible.
        device: where to train; ``cuda`` spreads the trainings over all GPUs.
    """

    packed: Path
    work: Path
    out: Path
    config: Path
    validation: tuple[str, ...]
    steps: int
    most: int
    probe: int
    max_seconds: float
    started: float
    workers: int
    batch_size: int
    fine_tune: bool
    device: str

    @property
    def left_s(self) -> float:
        """Seconds until trainings must stop."""
        return self.max_seconds - _RESERVE_S - (time.time() - self.started)


def training_frames(
    options: TrainingOptions, config: TrainConfig, without: Sequence[str]
) -> tuple[LoadedFrames, LoadedFrames]:
    """Return real frames, repeated by source, without some sources and without validation frames; and
    simulated frames.
    """
    real: list[TrainingFrame] = []
    for name, source in SOURCES.items():
        path = options.packed / f"{name}.xz"
        frames = [] if name in without else read_frames(path)
        if name == "nuscenes" and LATE_NUSCENES in without:
            frames = frames[:-LATE_FRAMES]
        used = [frame for frame in frames if frame.frame_id not in options.validation]
        real += used * (source.repeat_ten if config.names else source.repeat)
    if "kitti" not in without and (drives := options.packed / "drives.xz").exists():
        real += read_frames(drives)
    simulated = [
        frame for path in sorted(options.packed.glob("simulated-*.xz")) for frame in read_frames(path)
    ]
    return LoadedFrames(real), LoadedFrames(simulated)


def starting_weights(without: Sequence[str]) -> str:
    """Return the shipped weights that have seen none of these sensors; "" if there are none."""
    return next((name for name, seen in _SEEN.items() if seen.isdisjoint(without)), "")


def job_name(without: Sequence[str]) -> str:
    """Return the name of a training."""
    return "without-" + "-".join(without) if without else "all"


def train_all(jobs: Sequence[tuple[str, ...]], options: TrainingOptions) -> list[dict[str, Any]]:
    """Run all jobs at once, each in its own process; return and write a report of each.

    Args:
        jobs: sources that each training leaves out.
        options: of the call.
    """
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    rates, answers = context.Queue(), context.Queue()
    steps = options.steps or _known_steps(options.work)
    processes = [
        context.Process(target=_work, args=(number, job, replace(options, steps=steps), rates, answers))
        for number, job in enumerate(jobs)
    ]
    for process in processes:
        process.start()
    if not steps:
        found = [rates.get() for _ in jobs]
        slowest = max((rate for rate in found if rate is not None), default=1.0)
        steps = max(2, min(options.most, int(0.97 * options.left_s / slowest)))
        _write_json(options.work / _STEPS_FILE, steps)
        print(f"seconds a step: {found}; {steps} steps each", flush=True)
        for _ in jobs:
            answers.put(steps)
    for process in processes:
        process.join(max(1.0, options.left_s + _RESERVE_S))
        if process.is_alive():
            process.kill()
    reports = [_report(options.work, job) for job in jobs]
    _write_json(options.out / "training.json", reports)
    return reports


def _known_steps(work: Path) -> int:
    path = work / _STEPS_FILE
    return int(json.loads(path.read_text())) if path.is_file() else 0


def _report(work: Path, job: Sequence[str]) -> dict[str, Any]:
    path = work / f"{job_name(job)}.json"
    return json.loads(path.read_text()) if path.is_file() else {"name": job_name(job), "error": "no report"}


def _write_json(path: Path, values: Any) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(values, indent=1))


def _work(number: int, job: tuple[str, ...], options: TrainingOptions, rates: Any, answers: Any) -> None:
    try:
        _train(number, job, options, rates, answers)
    except BaseException as error:
        rates.put(None)
        traceback.print_exc()
        _write_json(options.work / f"{job_name(job)}.json", {"name": job_name(job), "error": repr(error)})
        raise


def _train(number: int, job: tuple[str, ...], options: TrainingOptions, rates: Any, answers: Any) -> None:
    torch.set_num_threads(1)
    name, device = job_name(job), options.device
    if device == "cuda":
        device = f"cuda:{number % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    base = load_config(TrainConfig, options.config)
    base = replace(base, workers=options.workers, batch_size=options.batch_size or base.batch_size)
    if device == "cpu":
        base = replace(base, precision="float32")
    start = starting_weights(job) if options.fine_tune else ""
    if start:
        base = replace(base, learning_rate=_FINE_TUNE_RATE)
    real, simulated = training_frames(options, base, job)
    steps = options.steps
    if not steps:
        rates.put(_seconds_a_step(replace(base, steps=options.probe), real, simulated, device))
        steps = answers.get()
    trainer = Trainer(
        replace(base, steps=steps),
        options.work / name,
        real,
        extra=simulated,
        device=device,
        fine_tune=FineTune(start) if start else None,
    )
    first, begun = trainer.step, time.time()
    finished = trainer.run(max_seconds=max(1.0, options.left_s), show_progress=False)
    seconds = time.time() - begun
    for folder in (options.work, options.out):
        save_weights(trainer.averaged_network(), folder / f"{name}.safetensors")
    report = {
        "name": name,
        "without": list(job),
        "from": start,
        "frames": len(real),
        "simulated": len(simulated),
        "objects": class_counts(real, base.detector.head.classes),
        "steps": steps,
        "step": trainer.step,
        "finished": finished,
        "seconds_a_step": round(seconds / max(1, trainer.step - first), 4),
        "device": torch.cuda.get_device_name(device) if device != "cpu" else "cpu",
    }
    _write_json(options.work / f"{name}.json", report)


def _seconds_a_step(config: TrainConfig, real: LoadedFrames, simulated: LoadedFrames, device: str) -> float:
    """Train a little in a temporary folder; the first steps, which warm up, do not count."""
    warmup, begun = max(1, config.steps // 3), 0.0
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(config, folder, real, extra=simulated, device=device)
        for batch in trainer._batches():
            trainer.train_step(batch)
            trainer.step += 1
            if trainer.step == warmup:
                _wait(device)
                begun = time.time()
        _wait(device)
    return (time.time() - begun) / max(1, config.steps - warmup)


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)
