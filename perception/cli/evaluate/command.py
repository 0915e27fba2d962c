"""``perceive eval``: evaluate a detector or results, alone or compared with another run."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perception.cli.console import (
    OUTPUT,
    add_command,
    add_device_option,
    add_precision_option,
    add_weights_option,
)
from perception.cli.evaluate.tracking import add_tracking_option, run_tracking
from perception.cli.options import add_range_option, add_rename_option, range_of, renames_of
from perception.data import DataSet, Frame, open_data_set
from perception.data.types import Part
from perception.evaluate.options import JudgeOptions, MatchRule
from perception.types import Detections
from sparse_core.common.console import LOG, progress_bar
from sparse_core.common.files import write_file

if TYPE_CHECKING:
    from perception.detector import Detector
    from perception.evaluate.comparison import RunComparison
    from perception.evaluate.judge import Judge
    from sparse_core.common.table import Table

#: Suffixes that tell result files from weights in ``--against``.
_RESULT_SUFFIXES = (".json", ".jsonl")


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(
        commands,
        "eval",
        run,
    )
    parser.add_argument("--data", required=True, type=Path, help="labelled data set")
    parser.add_argument("--split", default="val", help="split to evaluate, or 'all' (default: val)")
    parser.add_argument(
        "--results",
        type=Path,
        help="evaluate these results instead of detecting: folder of KITTI files, nuScenes result file, or"
        " detections.jsonl",
    )
    parser.add_argument(
        "--protocol",
        choices=("kitti", "nuscenes", "boxes"),
        help="evaluation protocol; boxes works for any labels (default: the protocol of the data set)",
    )
    parser.add_argument(
        "--missing",
        choices=("error", "empty", "skip"),
        default="error",
        help="with --results: treat frames without results as an error, as empty, or skip them (default:"
        " error, as the official programs do)",
    )
    parser.add_argument(
        "--match",
        action="append",
        default=[],
        metavar="CLASS=LIMIT",
        help="boxes protocol: least overlap (car=0.5) or largest centre distance (car=2m) of a match",
    )
    parser.add_argument(
        "--min-points", type=int, default=0, help="boxes protocol: ignore labels of fewer points (default: 0)"
    )
    add_weights_option(parser)
    parser.add_argument(
        "--against", metavar="RUN", help="compare with other results or weights on the same frames"
    )
    parser.add_argument("--intervals", action="store_true", help="print confidence intervals of this run")
    parser.add_argument(
        "--samples", type=int, default=1000, help="bootstrap samples for intervals (default: 1000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap (default: 0)")
    parser.add_argument(
        "--thresholds",
        action="store_true",
        help="also choose the score threshold of each class with the best F2",
    )
    parser.add_argument(
        "--calibration",
        action="store_true",
        help="compare scores with precision (boxes protocol); perceive calibrate corrects them",
    )
    parser.add_argument("--out", type=Path, help="output folder for results, metrics.json and plots")
    parser.add_argument("--json", action="store_true", help="print the metrics as JSON")
    add_range_option(parser)
    add_rename_option(parser)
    add_tracking_option(parser)
    add_device_option(parser)
    add_precision_option(parser)


def run(options: argparse.Namespace) -> int:
    """Detect unless results are given, evaluate, compare, and print tables."""
    if options.tracking is not None:
        return run_tracking(options)
    import tempfile

    from perception.evaluate.data_set import judge_of
    from perception.evaluate.reports.result import plot_result, result_tables

    if options.thresholds and options.results is not None:
        raise ValueError("--thresholds needs a detector. Leave --results out.")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if options.out is None else options.out
        detector = None if options.results is not None else _detector(options, options.weights)
        data_set = _data_set(options, detecting=detector is not None)
        judge = judge_of(data_set, options.protocol, _judge_options(options, data_set, detector))
        if judge.protocol == "boxes" or detector is not None:
            _warn_of_pictures(data_set)
        ranking = options.calibration or options.thresholds
        detected: list[tuple[Frame, Detections]] = []

        def keep(frame: Frame, found: Detections) -> None:
            if ranking:
                # A new frame object, because this one keeps its scan in memory.
                detected.append((data_set.frame(frame.frame_id), found))

        results = options.results
        if detector is not None:
            results = _detect(detector, judge, folder / "results", keep, _names(options))
        result = judge.evaluate(results)
        if detector is not None and judge.protocol == "boxes":
            _warn_of_other_classes(result.to_dict()["classes"], detector, _names(options))
        tables = result_tables(result)
        record = dict(result.to_dict())
        if ranking:
            tables += _calibrate(options, judge, results, detected, Path(scratch), record)
        comparison = _compare(options, judge, results, folder)
    if comparison is not None:
        from perception.evaluate.reports.comparison import comparison_table

        record["comparison"] = comparison.to_dict()
        tables.append(comparison_table(comparison))
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        write_file(options.out / "metrics.json", json.dumps(record, indent=1) + "\n")
        plot_result(result, options.out / "precision_recall.png")
        if comparison is not None:
            from perception.evaluate.reports.comparison import plot_comparison

            plot_comparison(comparison, options.out / "comparison.png")
    if options.json:
        print(json.dumps(record))
    else:
        for table in tables:
            OUTPUT.print(table)
    return 0


def _judge_options(options: argparse.Namespace, data_set: DataSet, detector: Detector | None) -> JudgeOptions:

    rules = {}
    for text in options.match:
        name, equals, limit = text.rpartition("=")
        if not equals or not name:
            raise ValueError(f"--match must be CLASS=LIMIT, such as pallet=0.3 or pallet=2m, got {text!r}")
        rules[name] = MatchRule.parse(limit)
    # The boxes protocol evaluates all classes of the data, also those that the detector does not know.
    by_boxes = (options.protocol or data_set.evaluation) == "boxes"
    known = None if detector is None or by_boxes else detector.config.head.classes
    if known is not None:
        known = tuple(_names(options).get(name, name) for name in known)
    return JudgeOptions(known, options.missing, rules, options.min_points)


def _names(options: argparse.Namespace) -> dict[str, str]:
    """Return the data set's names of detector classes, if they differ."""
    found = renames_of(options.rename)
    if found and options.results is not None:
        raise ValueError("--rename needs a detector. Leave either it or --results out.")
    return found


def _data_set(options: argparse.Namespace, *, detecting: bool) -> DataSet:
    # Results need labels only, neither scans nor calibration.
    against = options.against is not None and not _are_results(options.against)
    having: Part = "scan" if detecting or against else "labels"
    return open_data_set(options.data, None if options.split == "all" else options.split, having=having)


def _warn_of_other_classes(classes: Mapping[str, Any], detector: Detector, names: Mapping[str, str]) -> None:
    """Warn if the detector finds none of the labelled classes, because every AP is 0 then."""
    labelled = [name for name, row in classes.items() if row["labels"]]
    found = [names.get(name, name) for name in detector.config.head.classes]
    if labelled and not set(labelled) & set(found):
        LOG.warning(
            "The labels have the classes %s, but these weights find %s: no class matches, so every AP is 0."
            " Add --rename, such as --rename %s=%s for objects of the same kind, or --weights.",
            ", ".join(labelled),
            ", ".join(found),
            shlex.quote(detector.config.head.classes[0]),
            shlex.quote(labelled[0]),
        )


def _are_results(name: str) -> bool:
    return Path(name).is_dir() or Path(name).suffix in _RESULT_SUFFIXES


def _warn_of_pictures(data_set: DataSet) -> None:
    """Warn about assumed picture sizes: the KITTI protocol ignores objects outside the picture."""
    if data_set.evaluation != "kitti":
        return
    without = [frame for frame in data_set if frame.calibrated and frame.image is None]
    sizes = sorted({frame.image_size for frame in without})
    if sizes:
        LOG.warning(
            "%d of %d frames have no picture in image_2. Assumed %s pixels; objects outside are not"
            " evaluated.",
            len(without),
            len(data_set),
            " and ".join(f"{width} x {height}" for width, height in sizes[:3]),
        )


def _detector(options: argparse.Namespace, weights: str) -> Detector:
    from perception.detector import Detector

    detector = Detector.from_pretrained(weights, device=options.device, precision=options.precision)
    return detector if options.range is None else detector.with_range(range_of(options.range))


def _detect(
    detector: Detector,
    judge: Judge,
    directory: Path,
    keep: Callable[[Frame, Detections], None],
    names: dict[str, str],
) -> Path:
    from perception.evaluate.data_set import detect_all

    with progress_bar() as bar:
        task = bar.add_task("detecting", total=len(judge.data_set))

        def on_frame(frame: Frame, found: Detections) -> None:
            bar.advance(task)
            keep(frame, found)

        return detect_all(detector, judge, directory, names=names, on_frame=on_frame)


def _calibrate(
    options: argparse.Namespace,
    judge: Judge,
    results: Path,
    detected: list[tuple[Frame, Detections]],
    scratch: Path,
    record: dict[str, Any],
) -> list[Table]:
    """Measure the reliability of scores and choose thresholds, as asked; extend the record, return tables."""
    from perception.evaluate.boxes.judge import BoxesJudge
    from perception.evaluate.calibration import measure_reliability
    from perception.evaluate.reports.calibration import calibration_table, format_choices, plot_reliability
    from perception.evaluate.thresholds import choose_thresholds

    if options.results is not None and judge.protocol != "boxes":
        raise ValueError(
            "--calibration of results needs detections.jsonl and --protocol boxes. Add the option."
        )
    boxes, tables = BoxesJudge(judge.data_set, judge.options), []
    frames, judged = boxes.judged(results if judge.protocol == "boxes" else boxes.write(scratch, detected))
    rankings = {name: part.rankings["3d"] for name, part in judged.items()}
    if options.thresholds:
        choices = choose_thresholds(rankings)
        record["thresholds"] = {name: asdict(choice) for name, choice in choices.items()}
        tables.append(format_choices(choices))
    if options.calibration:
        found = measure_reliability(rankings, len(frames))
        record["calibration"] = {name: part.to_dict() for name, part in found.items()}
        if options.out is not None:
            plot_reliability(found, options.out / "reliability.png")
        tables.append(calibration_table(found, len(frames)))
    return tables


def _compare(options: argparse.Namespace, judge: Judge, results: Path, folder: Path) -> RunComparison | None:
    """Return intervals of this run, and of its difference to another run if given."""
    from perception.evaluate.comparison import bootstrap

    if options.against is None and not options.intervals:
        return None
    run = judge.sampler(results)
    first = str(options.results or options.weights)
    if options.against is None:
        return bootstrap(run, names=(first,), samples=options.samples, seed=options.seed)
    other: str = options.against
    if _are_results(other):
        path = Path(other)
    else:
        detector = _detector(options, other)
        path = _detect(detector, judge, folder / "against", lambda *_: None, _names(options))
    return bootstrap(
        run,
        judge.sampler(path),
        names=(first, other),
        samples=options.samples,
        seed=options.seed,
    )
