"""Run a detector over a data set and judge what it finds, by the protocol of the data."""

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
    "kitti": "it counts by a camera's picture: heights in pixels, occlusion, truncation",
    "nuscenes": "it needs nuScenes' tables: samples, poses, velocities, attributes",
}


def judge_of(
    data_set: DataSet, protocol: ProtocolName | None = None, options: JudgeOptions | None = None
) -> Judge:
    """The protocol of a data set, or another one.

    Args:
        data_set: frames with labels.
        protocol: None: the data set's own. ``"boxes"`` judges any labelled data.
        options: of the judge.

    Raises:
        DataError: the data has no labels, or cannot be judged so.
    """
    if data_set.evaluation is None or not any(frame.labelled for frame in data_set):
        raise DataError(f"{data_set.folder}: no labels to evaluate with; name a data set that has labels")
    name = protocol or data_set.evaluation
    if name not in ("boxes", data_set.evaluation):
        raise DataError(
            f"{data_set.folder}: a {data_set.kind} cannot be judged by the protocol {name}: {_NEEDS[name]};"
            f" say --protocol {data_set.evaluation}, or boxes"
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
    """Detect in every frame of a judge's data set and write results that it judges.

    Args:
        detector: what finds the objects; what it reports by class (``nms.report_thresholds``) is not looked
            at: all scores from ``nms.score_threshold`` on count.
        judge: of the frames.
        directory: results are written here, and left.
        names: what the data set calls a class of the detector; of others the names stay.
        on_frame: called after each frame.

    Raises:
        DataError: a frame cannot be read, or the data set has another name for a class of the detector.
        ValueError: ``names`` names a class that the detector does not know.
    """
    check_known(names or (), detector.config.head.classes)
    _check_names(detector.config.head.classes, names or {}, judge.data_set)
    everything = detector.reporting_everything()

    def detected() -> Iterator[tuple[Frame, Detections]]:
        for frame in judge.data_set:
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
    """Refuse classes that the labels have under another name: nothing found would count.

    Raises:
        DataError: the message names both.
    """
    written = {name: names.get(name, name) for name in classes}
    others = [name for name in data_set.classes if name not in written.values()]
    for name, wanted in written.items():
        same = None if wanted in data_set.classes else same_class(wanted, others)
        if same is not None:
            fix = f"say --rename {name}={same}, or map {same} to {name} under classes in dataset.yaml"
            raise DataError(
                f"{data_set.folder}: the labels call the class {wanted!r} {same!r};"
                f" {fix if same != name else f'leave out --rename {name}={wanted}'}"
            )


def evaluate_detector(
    detector: Detector,
    data_set: DataSet,
    directory: str | Path,
    *,
    on_frame: Callable[[Frame, Detections], None] | None = None,
) -> EvaluationResult:
    """Detect in every frame, write results, and judge these by the protocol of the data set.

    Args:
        detector, directory, on_frame: as of :func:`detect_all`.
        data_set: frames with labels.

    Returns:
        ``KittiResult``, ``NuScenesResult`` or ``BoxesResult``.

    Raises:
        DataError: the data set has no labels, or a frame cannot be read.
    """
    judge = judge_of(data_set, options=JudgeOptions(classes=detector.config.head.classes))
    return judge.evaluate(detect_all(detector, judge, directory, on_frame=on_frame))
