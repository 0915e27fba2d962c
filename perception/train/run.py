"""A whole training: frames from folders, the loop, weights, evaluation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from perception.checkpoints.compression import PATTERN, compress_network, save_compressed_weights
from perception.checkpoints.weights import load_weights, save_weights
from perception.config import DetectorConfig, TrainConfig
from perception.data import DataSet, open_data_set
from perception.detector import Detector
from perception.doctor import examine_data_set
from perception.doctor.check_classes import FEW_BOXES
from perception.errors import DataError
from perception.evaluate.data_set import evaluate_detector
from perception.model.network import Network
from perception.train.data.frames import LoadedFrames, class_counts, load_frames, with_measured_sizes
from perception.train.fine_tune import FineTune, masks_of
from perception.train.ranks import ranks_of_environment
from perception.train.trainer import OnLog, Trainer
from sparse_core.interruption import Interrupted

#: Called with a sentence.
OnRemark = Callable[[str], None]
#: Damaged frames that are named.
_NAMED = 10
#: Frames that are examined before the first step.
_CHECKED_FRAMES = 40


@dataclass(frozen=True)
class TrainOutcome:
    """Where a run stands.

    Attributes:
        step: steps done.
        finished: whether that is all of them.
        directory: holds config.yaml, checkpoint.pt, log.csv, tensorboard, curves.png and
            weights.safetensors; of a stopped run these are the averaged weights so far.
        metrics: AP by class and metric on the validation split, once finished.
        remarks: sentences about what the run started from and learns from.
    """

    step: int
    finished: bool
    directory: Path
    metrics: Mapping[str, Any] | None
    remarks: tuple[str, ...] = ()


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
    on_remark: OnRemark | None = None,
    fine_tune: FineTune | None = None,
    skip_damaged: bool = False,
    check: bool = True,
) -> TrainOutcome:
    """Train on the ``train`` split of a data set, evaluate on its ``val`` split, write weights.

    In each of several processes that ``torchrun`` started, it trains together with the others: each takes its
    part of every batch, and the first alone writes, calls back and evaluates.

    Args:
        config: of the run.
        data: folder of a data set that :func:`~perception.data.open_data_set` knows.
        directory: of the run; an unfinished run in it goes on.
        extra: further such folders, whose frames are mixed in.
        device: where to train.
        max_seconds: stop after this long, with weights that can be used; the next call goes on.
        show_progress: draw a progress bar.
        on_log: called whenever losses are logged: step, steps in all, loss.
        on_remark: called with each sentence of ``TrainOutcome.remarks``, most of them before the first step.
        fine_tune: start from finished weights, with masks or a coding; with a coding the weights written are
            compressed by it.
        skip_damaged: leave frames out that cannot be read; a remark counts and names them.
        check: refuse data in which ``perceive doctor`` finds errors, looking at some of the frames.

    Raises:
        DataError: no frames, damaged ones, none with an object of a class, or errors that the doctor finds.
        Interrupted: SIGINT or SIGTERM came; the step was finished, a checkpoint and weights were written.
        CheckpointError: the directory holds another run, or weights to start from do not fit.
    """
    classes = config.detector.head.classes
    labelled = open_data_set(data, "train")
    damaged: list[str] = []
    loaded: list[LoadedFrames] = []
    for source in (labelled, *(open_data_set(folder, "train") for folder in extra)):
        left = config.memory_gb * 1e9 - sum(part.nbytes for part in loaded)
        on_damaged = damaged.append if skip_damaged else None
        loaded.append(load_frames(source, classes, memory_bytes=left, on_damaged=on_damaged))
    frames, more = loaded[0], sum(loaded[1:], LoadedFrames())
    if frames and not any(class_counts(frames, classes).values()):
        raise _nothing_of(classes, labelled)
    for folder in (data, *extra) if check else ():
        _refuse_errors(folder, config.detector, None if fine_tune is None else fine_tune.weights)
    config = replace(config, detector=with_measured_sizes(config.detector, frames))
    stopped_early = (Path(directory) / "config.yaml").is_file()
    say = _nobody if on_remark is None else on_remark
    with ranks_of_environment(device) as ranks:
        trainer = Trainer(
            config, directory, frames, extra=more, device=device, fine_tune=fine_tune, ranks=ranks
        )
        remarks = _start_remarks(trainer, stopped_early)
        remarks += _remarks(trainer, class_counts(frames + more, classes), damaged)
        for remark in remarks if ranks.writes else ():
            say(remark)
        try:
            finished = trainer.run(max_seconds=max_seconds, show_progress=show_progress, on_log=on_log)
        except Interrupted:
            if ranks.writes:
                _save(trainer, trainer.directory / "weights.safetensors")
            raise
        metrics = None
        if ranks.writes:
            network = _save(trainer, trainer.directory / "weights.safetensors")
            try:
                metrics = _validate(network, data, trainer.directory, device) if finished else None
            except DataError as error:  # The weights are written: this is no reason to lose them.
                remarks += (f"not evaluated: {error}",)
                say(remarks[-1])
    return TrainOutcome(trainer.step, finished, trainer.directory, metrics, remarks)


def _nobody(remark: str) -> None:
    """Where nobody listens."""


def _refuse_errors(folder: str | Path, detector: DetectorConfig, weights: str | None) -> None:
    """Refuse to train on what the doctor calls an error: the result would be useless.

    Files that cannot be read are left to the reader of the frames, which may leave them out.

    Raises:
        DataError: names the errors.
    """
    report = examine_data_set(
        folder,
        classes=detector.head.classes,
        pillars=detector.pillars,
        weights=weights,
        max_frames=_CHECKED_FRAMES,
    )
    # Whether all frames together hold a box is known already, and a sample may hold none.
    ignored = {"unreadable"} if report.statistics.boxes else {"unreadable", "classes"}
    errors = [item for item in report.findings if item.severity == "error" and item.check not in ignored]
    if errors:
        found = " ".join(f"[{item.check}] {item.message} Fix: {item.fix}" for item in errors)
        raise DataError(
            f"{folder}: perceive doctor finds {len(errors)} errors, with which training is useless: {found}"
            " To train nevertheless, say --no-check (check=False in Python)"
        )


def _nothing_of(classes: Sequence[str], data_set: DataSet) -> DataError:
    """What the labels hold instead."""
    counts = Counter(name for frame in data_set for name in frame.labels)
    found = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items())) or "no boxes"
    return DataError(
        f"{data_set.folder}: no training frame holds an object of {', '.join(classes)}; the labels hold"
        f" {found}: name the classes to learn (--classes), or check the data set (perceive doctor)"
    )


def _start_remarks(trainer: Trainer, stopped_early: bool) -> tuple[str, ...]:
    """Where a run begins that was begun before."""
    if trainer.step:
        return (f"resuming {trainer.directory} at step {trainer.step} of {trainer.config.steps}",)
    if not stopped_early:
        return ()
    return (
        f"nothing to resume: an earlier run in {trainer.directory} left no {trainer.checkpoint_path.name};"
        " training starts at step 0",
    )


def _remarks(trainer: Trainer, counts: Mapping[str, int], damaged: Sequence[str]) -> tuple[str, ...]:
    """What was left out, what became of weights for other classes, and classes with too few boxes."""
    remarks = []
    if damaged:
        more = f"; and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
        what = "1 damaged frame is" if len(damaged) == 1 else f"{len(damaged)} damaged frames are"
        remarks.append(f"{what} left out: {'; '.join(damaged[:_NAMED])}{more}")
    if trainer.transfer is not None and trainer.fine_tune is not None:
        remarks.append(trainer.transfer.sentence(trainer.fine_tune.weights))
    few = {name: count for name, count in counts.items() if count < FEW_BOXES}
    if few:
        found = ", ".join(f"{count} of {name}" for name, count in few.items())
        remarks.append(
            f"few boxes to learn from: {found}; with fewer than {FEW_BOXES} of a class expect misses and"
            " rough boxes: label more frames, or add simulated ones (--extra)"
        )
    return tuple(remarks)


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
) -> Mapping[str, Any] | None:
    try:
        validation = open_data_set(data, "val")
    except DataError:
        return None
    if validation.evaluation is None:
        return None
    detector = Detector(network, device=device)
    return evaluate_detector(detector, validation, directory / "val").to_dict()
