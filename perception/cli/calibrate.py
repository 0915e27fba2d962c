"""``perceive calibrate``: fit sizes, scores and thresholds of weights to a few labelled frames."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perception.cli.console import OUTPUT, add_command, add_device_option, add_weights_option
from perception.cli.options import add_range_option, add_rename_option, range_of, renames_of
from sparse_core.common.console import progress_bar

if TYPE_CHECKING:
    from perception.data import DataSet, Frame
    from perception.detector import Detector
    from perception.evaluate.calibration import Reliability, ScoreMap
    from perception.evaluate.sizes import SizeFit
    from perception.evaluate.thresholds import ScoreChoice
    from perception.types import Detections
    from sparse_core.common.table import Table


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "calibrate", run)
    parser.add_argument("--data", required=True, type=Path, help="labelled data set; a few frames suffice")
    parser.add_argument("--split", default="all", help="split to fit on (default: all frames)")
    add_weights_option(parser)
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FILE", help="weights to write (.safetensors)"
    )
    parser.add_argument(
        "--sizes",
        action="append",
        default=[],
        metavar="CLASS=LENGTH,WIDTH,HEIGHT",
        help="mean size of a class in this market, in metres, instead of fitting it to labels (repeatable)",
    )
    parser.add_argument(
        "--thresholds",
        action="store_true",
        help="also set the score threshold of each class with the best F2",
    )
    parser.add_argument("--json", action="store_true", help="print the fits as JSON")
    add_range_option(parser)
    add_rename_option(parser)
    add_device_option(parser)


def run(options: argparse.Namespace) -> int:
    """Detect, fit, write the weights, and print what changed."""
    from perception.checkpoints.weights import save_calibrated
    from perception.data import open_data_set
    from perception.detector import Detector

    names, sizes = renames_of(options.rename), _sizes_of(options.sizes)
    data_set = open_data_set(options.data, None if options.split == "all" else options.split, having="labels")
    detector = Detector.from_pretrained(options.weights, device=options.device)
    if options.range is not None:
        detector = detector.with_range(range_of(options.range))
    own = {names.get(name, name): name for name in detector.config.head.classes}
    _check_classes(sizes, own)
    fits = _fit(detector, data_set, names, sizes, thresholds=options.thresholds)
    if not (fits.offsets_m or fits.maps or fits.choices):
        raise ValueError(
            f"no size, score or threshold could be improved on {fits.frames} labelled frames, so"
            f" {options.out} was not written. Use frames with about ten detected boxes per class, and check"
            " with --rename that labels and weights name classes alike. If they do, the weights need no"
            " calibration."
        )
    save_calibrated(
        options.weights,
        options.out,
        {own[name]: fitted_map for name, fitted_map in fits.maps.items()},
        offsets_m={own[name]: added for name, added in fits.offsets_m.items()},
        thresholds={own[name]: choice.threshold for name, choice in fits.choices.items()},
    )
    if options.json:
        print(json.dumps(fits.to_dict()))
        return 0
    for table in fits.tables():
        OUTPUT.print(table)
    saved = f"sizes of {_listed(list(fits.offsets_m))}, scores of {_listed(list(fits.maps))}"
    OUTPUT.print(f"{options.out}: {saved}", soft_wrap=True)
    return 0


class _Fits(NamedTuple):
    """Fits by the names that labels use, and those of them to save."""

    frames: int
    sizes: dict[str, SizeFit]
    offsets_m: dict[str, tuple[float, float, float]]
    reliability: dict[str, Reliability]
    maps: dict[str, ScoreMap]
    choices: dict[str, ScoreChoice]

    def to_dict(self) -> dict[str, Any]:
        sizes = {name: {**fit.to_dict(), "saved": name in self.offsets_m} for name, fit in self.sizes.items()}
        scores = {
            name: {**found.to_dict(), "saved": name in self.maps} for name, found in self.reliability.items()
        }
        thresholds = {name: asdict(choice) for name, choice in self.choices.items()}
        return {"sizes": sizes, "calibration": scores, "thresholds": thresholds}

    def tables(self) -> list[Table]:
        from perception.evaluate.reports.calibration import calibration_table, format_choices
        from perception.evaluate.reports.sizes import sizes_table

        sizes = sizes_table(self.sizes, saved=list(self.offsets_m))
        scores = calibration_table(self.reliability, self.frames)
        return [sizes, scores, *([format_choices(self.choices)] if self.choices else [])]


def _fit(
    detector: Detector,
    data_set: DataSet,
    names: dict[str, str],
    sizes: dict[str, tuple[float, ...]],
    *,
    thresholds: bool,
) -> _Fits:
    """Fit sizes that are not given, then scores of the resized boxes, then thresholds of these scores."""
    from perception.evaluate.boxes.judge import BoxesJudge
    from perception.evaluate.calibration import measure_reliability
    from perception.evaluate.data_set import detect_all
    from perception.evaluate.options import JudgeOptions
    from perception.evaluate.sizes import fit_sizes, offsets_to
    from perception.evaluate.thresholds import choose_thresholds

    written = {name: names.get(name, name) for name in detector.config.head.classes}
    judge = BoxesJudge(data_set, JudgeOptions(classes=tuple(written.values())))
    detected: list[tuple[Frame, Detections]] = []
    with tempfile.TemporaryDirectory() as scratch, progress_bar() as bar:
        task = bar.add_task("detecting", total=len(data_set))

        def keep(frame: Frame, found: Detections) -> None:
            bar.advance(task)
            # A new frame object, because this one keeps its scan in memory.
            detected.append((data_set.frame(frame.frame_id), found))

        detect_all(detector, judge, Path(scratch), names=names, on_frame=keep)
        pairs = [(found, frame.truth) for frame, found in detected]
        fixed = [written[name] for name in detector.config.nms.footprints_m]
        fitted = [name for name in written.values() if name not in sizes]
        size_fits = {**fit_sizes(pairs, fitted, fixed=fixed), **offsets_to(sizes, pairs)}
        offsets_m = {name: fit.offsets_m for name, fit in size_fits.items() if fit.helps or name in sizes}
        resized = [(frame, _resized(found, offsets_m)) for frame, found in detected]
        frames, judged = judge.judged(judge.write(Path(scratch), resized))
    rankings = {name: part.rankings["3d"] for name, part in judged.items() if len(part.rankings["3d"].score)}
    reliability = measure_reliability(rankings, len(frames))
    maps = {
        name: found.fitted
        for name, found in reliability.items()
        if found.fitted is not None and found.error_fitted < found.error
    }
    mapped = {
        name: part._replace(score=maps[name](part.score)) if name in maps else part
        for name, part in rankings.items()
    }
    choices = choose_thresholds(mapped) if thresholds else {}
    return _Fits(len(frames), size_fits, offsets_m, reliability, maps, choices)


def _sizes_of(texts: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Parse ``--sizes``; raise ``ValueError`` for another form."""
    found: dict[str, tuple[float, ...]] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        try:
            found[name] = tuple(map(float, numbers.split(",")))
        except ValueError:
            found[name] = ()
        if not name or len(found[name]) != 3 or not all(0 < size < np.inf for size in found[name]):
            raise ValueError(
                f"--sizes must be CLASS=LENGTH,WIDTH,HEIGHT in metres, such as Car=4.6,1.9,1.6; got {text!r}"
            )
    return found


def _check_classes(sizes: dict[str, tuple[float, ...]], classes: Collection[str]) -> None:
    from perception.class_names import unknown_class

    for name in sizes:
        if name not in classes:
            raise ValueError(f"--sizes: {unknown_class(name, list(classes))}")


def _resized(found: Detections, offsets: dict[str, tuple[float, float, float]]) -> Detections:
    from perception.evaluate.sizes import grown

    boxes, labels = found.boxes.copy(), np.array(found.labels)
    for name, added in offsets.items():
        boxes[labels == name] = grown(boxes[labels == name], added)
    return replace(found, boxes=boxes)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "no class"
