"""Evaluation of a detector on a data set, by the protocol of the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perception.class_names import check_known, same_class
from perception.data import DataSet, Frame
from perception.detector import Detector
from perception.errors import DataError
from perception.evaluate.boxes.judge import BoxesJudge
from perception.evaluate.judge import EvaluationResult, Judge
from perception.evaluate.kitti.judge import KittiJudge
from perception.evaluate.nuscenes.judge import NuScenesJudge
from perception.evaluate.options import JudgeOptions, ProtocolName
from perception.types import Detections

JUDGES: dict[ProtocolName, type[Judge]] = {
    judge.protocol: judge for judge in (KittiJudge, NuScenesJudge, BoxesJudge)
}
_NEEDS = {
    "kitti": "camera images for heights in pixels, occlusion and truncation",
    "nuscenes": "nuScenes tables for samples, poses, velocities and attributes",
}


def judge_of(
    data_set: DataSet, protocol: ProtocolName | None = None, options: JudgeOptions | None = None
) -> Judge:
    """Return the judge of a data set's own protocol, or of another one.

    Args:
        data_set: frames with labels.
        protocol: None: the data set's own. ``"boxes"`` evaluates any labelled data.
        options: of the judge.

    Raises:
        DataError: the data has no labels, or does not fit the protocol.
    """
    if data_set.evaluation is None or not any(frame.labelled for frame in data_set):
        raise DataError(f"{data_set.folder}: no labels; pass a data set with labels")
    name = protocol or data_set.evaluation
    if name not in ("boxes", data_set.evaluation):
        raise DataError(
            f"{data_set.folder}: the protocol {name} needs {_NEEDS[name]}, which a {data_set.kind} data set"
            f" does not have. Use --protocol {data_set.evaluation} or boxes"
        )
    return JUDGES[name](data_set, options or JudgeOptions())


def detect_all(
    detector: Detector,
    judge: Judge,
    directory: str | Path,
    *,
    names: Mapping[str, str] | None = None,
    on_frame: Callable[[Frame, Detections], None] | None = None,
) -> Path:
    """Detect objects in every frame of a judge's data set and write results for the judge.

    Args:
        detector: the detector. It reads past scans if ``pillars.sweeps`` is above 1 and the data set has
            them. All scores from ``nms.score_threshold`` on count; ``nms.report_thresholds`` is
            ignored.
        judge: of the frames.
        directory: output folder for results.
        names: detector class to data set class; other classes keep their names.
        on_frame: called after each frame.

    Raises:
        DataError: a frame is unreadable, or the data set uses another name for a class of the detector.
        ValueError: ``names`` contains a class that the detector does not have.
    """
    check_known(names or (), detector.config.head.classes)
    _check_names(detector.config.head.classes, names or {}, judge.data_set)
    everything = detector.reporting_everything()

    def detected() -> Iterator[tuple[Frame, Detections]]:
        pillars = detector.config.pillars
        for frame in judge.data_set.with_sweeps(pillars.sweeps - 1, pillars.max_age_s):
            found = everything(frame.cloud)
            if names:
                labels, classes = (
                    [names.get(name, name) for name in old] for old in (found.labels, found.classes)
                )
                found = replace(found, labels=labels, classes=tuple(classes))
            yield frame, found
            if on_frame is not None:
                on_frame(frame, found)

    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    return judge.write(directory, detected())


def _check_names(classes: Sequence[str], names: Mapping[str, str], data_set: DataSet) -> None:
    """Refuse classes that the labels have under another name, because no detection would count."""
    written = {name: names.get(name, name) for name in classes}
    others = [name for name in data_set.classes if name not in written.values()]
    for name, wanted in written.items():
        same = None if wanted in data_set.classes else same_class(wanted, others)
        if same is not None:
            fix = f"Add --rename {name}={same}, or map {same} to {name} under classes in dataset.yaml"
            raise DataError(
                f"{data_set.folder}: the labels name the class {wanted!r} {same!r}."
                f" {fix if same != name else f'Remove --rename {name}={wanted}'}"
            )


def evaluate_detector(
    detector: Detector,
    data_set: DataSet,
    directory: str | Path,
    *,
    on_frame: Callable[[Frame, Detections], None] | None = None,
) -> EvaluationResult:
    """Detect objects in every frame, write results, and evaluate them by the data set's protocol.

    Args:
        detector, directory, on_frame: as in :func:`detect_all`.
        data_set: frames with labels.

    Returns:
        ``KittiResult``, ``NuScenesResult`` or ``BoxesResult``.

    Raises:
        DataError: the data set has no labels, or a frame is unreadable.
    """
    judge = judge_of(data_set, options=JudgeOptions(classes=detector.config.head.classes))
    return judge.evaluate(detect_all(detector, judge, directory, on_frame=on_frame))
