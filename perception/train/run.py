"""Complete training: frames from folders, the loop, weights, evaluation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from perception.checkpoints.compression import PATTERN, compress_network, save_compressed_weights
from perception.checkpoints.weights import load_weights, save_weights
from perception.config import TrainConfig
from perception.data import DataSet, open_data_set
from perception.detector import Detector
from perception.doctor import examine_data_set
from perception.doctor.check_classes import FEW_BOXES
from perception.errors import DataError
from perception.evaluate.data_set import evaluate_detector
from perception.evaluate.judge import EvaluationResult
from perception.model.network import Network
from perception.train.data.frames import (
    IGNORED,
    LabelIndex,
    LoadedFrames,
    class_counts,
    load_frames,
    with_measured_sizes,
)
from perception.train.fine_tune import FineTune, masks_of
from perception.train.ranks import ranks_of_environment
from perception.train.trainer import OnLog, Trainer
from perception.train.validation import BestWeights, Evaluated
from sparse_core.common.files import write_file
from sparse_core.common.interruption import Interrupted

#: Called with a sentence.
OnRemark = Callable[[str], None]
#: Most damaged frames named in a remark.
_NAMED = 10
#: Most frames examined before the first step.
_CHECKED_FRAMES = 40


@dataclass(frozen=True)
class TrainOutcome:
    """State of a run.

    Attributes:
        step: steps done.
        finished: True if all steps are done.
        directory: contains config.yaml, checkpoint.pt, log.csv, tensorboard, curves.png and
            weights.safetensors; after a stop, these are the averaged weights so far. With
            ``config.validate_every`` also best.safetensors and validation.csv.
        metrics: AP by class and metric on the validation split, once finished.
        remarks: sentences about the run's start and its data.
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
    """Train on the ``train`` split of a data set, evaluate on its ``val`` split, and write weights.

    Under ``torchrun``, all processes train together. Each takes its part of every batch; only the first
    writes, calls back and evaluates.

    Args:
        config: of the run.
        data: folder of a data set that :func:`~perception.data.open_data_set` knows, or ``FOLDER@SPLIT`` for
            another split than ``train``; ``FOLDER@all`` for all frames.
        directory: of the run; an unfinished run in it is resumed.
        extra: further such folders, whose frames are mixed in. Those without lists of frames, such as drives,
            are used as a whole.
        device: where to train.
        max_seconds: stop after this long, with usable weights; the next call resumes.
        show_progress: draw a progress bar.
        on_log: called at every logged step with the step, the total steps and the loss.
        on_remark: called with each sentence of ``TrainOutcome.remarks``, most of them before the first step.
        fine_tune: start from finished weights, with masks or a coding; a coding also compresses the result.
        skip_damaged: skip unreadable frames; a remark counts and names them.
        check: refuse data in which ``perceive doctor`` finds errors, on a sample of frames.

    Raises:
        DataError: no frames, damaged frames, no object of any class, or errors found by the doctor.
        Interrupted: SIGINT or SIGTERM arrived. The step was finished, a checkpoint and weights were written.
        CheckpointError: the directory contains another run, or the starting weights do not fit.
    """
    classes, pillars = config.detector.head.classes, config.detector.pillars
    parts = [training_part(data), *(training_part(source, whole=True) for source in extra)]
    labelled = parts[0]
    damaged: list[str] = []
    loaded: list[LoadedFrames] = []
    for source in parts:
        left = config.memory_gb * 1e9 - sum(part.nbytes for part in loaded)
        on_damaged = damaged.append if skip_damaged else None
        loaded.append(
            load_frames(
                source,
                classes,
                pillars=pillars,
                velocity=config.detector.head.velocity or pillars.sweeps > 1,
                names=config.names,
                memory_bytes=left,
                on_damaged=on_damaged,
            )
        )
    frames, more = loaded[0], sum(loaded[1:], LoadedFrames())
    if frames and not any(class_counts(frames, classes).values()):
        raise _nothing_of(classes, labelled)
    for part in parts if check else ():
        _refuse_errors(part, config, None if fine_tune is None else fine_tune.weights)
    config = replace(config, detector=with_measured_sizes(config.detector, frames))
    stopped_early = (Path(directory) / "config.yaml").is_file()
    remark_to = on_remark if on_remark is not None else (lambda remark: None)
    with ranks_of_environment(device) as ranks:
        trainer = Trainer(
            config, directory, frames, extra=more, device=device, fine_tune=fine_tune, ranks=ranks
        )
        remarks = _start_remarks(trainer, stopped_early)
        remarks += _remarks(trainer, class_counts(frames + more, classes), damaged)
        for remark in remarks if ranks.writes else ():
            remark_to(remark)
        best = BestWeights(trainer.directory, trainer.step)
        validation, validate = _validation_frames(labelled.folder), None
        if config.validate_every and validation is not None:
            validate = partial(_evaluate_step, trainer, best, validation, device, remark_to)
        try:
            finished = trainer.run(
                max_seconds=max_seconds,
                show_progress=show_progress,
                on_log=on_log,
                validate=validate,
            )
        except Interrupted:
            if ranks.writes:
                _save(trainer, trainer.directory / "weights.safetensors")
            raise
        metrics = None
        if ranks.writes:
            path = trainer.directory / "weights.safetensors"
            kept = best.best if finished and validate is not None else None
            if kept is None:
                network = _save(trainer, path)
            else:
                write_file(path, best.path.read_bytes())
                network = load_weights(path)
                remarks += (f"kept the weights of step {kept.step}, the best of {len(best.evaluated)}",)
                remark_to(remarks[-1])
            try:
                if finished and validation is not None:
                    metrics = _evaluate(network, validation, trainer.directory, device).to_dict()
            except DataError as error:  # The weights are written; a failed evaluation must not lose them.
                remarks += (f"not evaluated: {error}",)
                remark_to(remarks[-1])
    return TrainOutcome(trainer.step, finished, trainer.directory, metrics, remarks)


def training_part(source: str | Path, *, whole: bool = False) -> DataSet:
    """Open the part of a data set to train on.

    Args:
        source: ``FOLDER`` for its split ``train``, or ``FOLDER@SPLIT``; ``FOLDER@all`` for all frames.
        whole: use all frames of a folder that has no splits.

    Raises:
        DataError: the folder or split does not exist.
    """
    folder, at, split = str(source).rpartition("@")
    if at and not Path(source).exists():
        return open_data_set(folder, None if split == "all" else split)
    if whole and not (found := open_data_set(source)).splits:
        return found
    return open_data_set(source, "train")


def _refuse_errors(part: DataSet, config: TrainConfig, weights: str | None) -> None:
    """Refuse to train on data with errors that make the result useless.

    Unreadable files are left to the frame reader, which may skip them.

    Raises:
        DataError: lists the errors.
    """
    folder, detector, names = part.folder, config.detector, config.names
    classes = detector.head.classes
    if names:
        # The names in the labels; the weights may have others.
        index = LabelIndex.of(part, classes, names)
        classes = tuple(name for name in part.classes if index.rows.get(name, IGNORED) != IGNORED)
        weights = None
    report = examine_data_set(
        folder,
        classes=classes,
        pillars=detector.pillars,
        headings=detector.head.headings,
        weights=weights,
        max_frames=_CHECKED_FRAMES,
    )
    # A sample may contain no box although the whole data set does, which was checked before.
    ignored = {"unreadable"} if report.statistics.boxes else {"unreadable", "classes"}
    errors = [item for item in report.findings if item.severity == "error" and item.check not in ignored]
    if errors:
        found = " ".join(f"[{item.check}] {item.message} Fix: {item.fix}" for item in errors)
        raise DataError(
            f"{folder}: perceive doctor found {len(errors)} errors that make training useless: {found}"
            " To train anyway, add --no-check (check=False in Python)"
        )


def _nothing_of(classes: Sequence[str], data_set: DataSet) -> DataError:
    """Return an error that lists the classes in the labels."""
    counts = Counter(name for frame in data_set for name in frame.labels)
    found = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items())) or "no boxes"
    return DataError(
        f"{data_set.folder}: no training frame contains {', '.join(classes)}; the labels contain {found}."
        " Choose other classes (--classes), or check the data set (perceive doctor)"
    )


def _start_remarks(trainer: Trainer, stopped_early: bool) -> tuple[str, ...]:
    """Describe where an earlier run resumes."""
    if trainer.step:
        return (f"resuming {trainer.directory} at step {trainer.step} of {trainer.config.steps}",)
    if not stopped_early:
        return ()
    return (
        f"{trainer.directory} has an earlier run without {trainer.checkpoint_path.name}; training starts at"
        " step 0",
    )


def _remarks(trainer: Trainer, counts: Mapping[str, int], damaged: Sequence[str]) -> tuple[str, ...]:
    """Describe skipped frames, transferred weights, and classes with too few boxes."""
    remarks = []
    if damaged:
        more = f"; and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
        what = "1 damaged frame" if len(damaged) == 1 else f"{len(damaged)} damaged frames"
        remarks.append(f"skipped {what}: {'; '.join(damaged[:_NAMED])}{more}")
    if trainer.transfer is not None and trainer.fine_tune is not None:
        remarks.append(trainer.transfer.sentence(trainer.fine_tune.weights))
    few = {name: count for name, count in counts.items() if count < FEW_BOXES}
    if few:
        found = ", ".join(f"{count} of {name}" for name, count in few.items())
        remarks.append(
            f"few boxes to learn from: {found}. With fewer than {FEW_BOXES} per class, expect misses and"
            " inaccurate boxes. Label more frames, or add simulated ones (--extra)"
        )
    return tuple(remarks)


def _save(trainer: Trainer, path: Path) -> Network:
    """Write the averaged weights; return the network that the file describes."""
    network, fine_tune = trainer.averaged_network(), trainer.fine_tune
    if fine_tune is None or fine_tune.coding is None:
        save_weights(network, path)
        return network
    masks = {name: mask.cpu() for name, mask in masks_of(trainer.network).items()}
    pattern = PATTERN if masks else None
    compressed = compress_network(network, fine_tune.coding, pattern=pattern, masks=masks or None)
    save_compressed_weights(compressed, trainer.config.detector, path)
    return load_weights(path)


def _validation_frames(folder: Path) -> DataSet | None:
    """Return the labelled frames of the split ``val``; None without any."""
    try:
        validation = open_data_set(folder, "val")
    except DataError:
        return None
    return validation if validation.evaluation is not None else None


def _evaluate(
    network: Network, validation: DataSet, directory: Path, device: str | torch.device
) -> EvaluationResult:
    return evaluate_detector(Detector(network, device=device), validation, directory / "val")


def _evaluate_step(
    trainer: Trainer,
    best: BestWeights,
    validation: DataSet,
    device: str | torch.device,
    on_remark: OnRemark,
) -> None:
    """Evaluate the weights of the current step, unless that was done, and keep them if they are the best."""
    if best.known(trainer.step):
        return
    path = trainer.directory / "evaluated.safetensors"
    network = _save(trainer, path)
    try:
        mean_ap = _evaluate(network, validation, trainer.directory, device).mean_ap
    except DataError as error:  # Damaged validation frames must not end a training.
        on_remark(f"step {trainer.step}: not evaluated: {error}")
        mean_ap = math.nan
    row = Evaluated(trainer.step, mean_ap)
    kept = ", the best so far" if best.add(row, path) else ""
    on_remark(f"step {row.step}: mean AP {mean_ap:.3g} on {len(validation)} validation frames{kept}")
