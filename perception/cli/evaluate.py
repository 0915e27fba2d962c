"""``perceive eval``: the KITTI protocol on a detector or on result files."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command, add_device_option, progress_bar
from perception.cli.evaluate_tracking import add_tracking_option, run_tracking
from perception.data import DataSet, Frame, open_data_set
from perception.data.types import Part
from perception.evaluate.kitti import KittiResult, evaluate_kitti
from perception.evaluate.thresholds import ScoreChoice
from perception.types import Boxes3D, Detections


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(
        commands, "eval", "KITTI average precision of a detector on a data set, or of result files.", run
    )
    parser.add_argument("--data", required=True, type=Path, help="folder of a data set with labels")
    parser.add_argument("--split", default="val", help="list of frames, or 'all' (default: val)")
    parser.add_argument(
        "--results", type=Path, help="folder of KITTI result files to evaluate instead of detecting"
    )
    parser.add_argument(
        "--missing",
        choices=("error", "empty", "skip"),
        default="error",
        help="with --results: frames without a file are an error, hold nothing, or are left out"
        " (default: error, as of the official program)",
    )
    parser.add_argument("--weights", default="pointpillars-kitti", help="shipped name or file")
    parser.add_argument(
        "--thresholds", action="store_true", help="also choose the score of each class with the greatest F2"
    )
    parser.add_argument("--out", type=Path, help="folder for result files, metrics.json and the PNG")
    parser.add_argument("--json", action="store_true", help="print the metrics as JSON")
    add_tracking_option(parser)
    add_device_option(parser)


def run(options: argparse.Namespace) -> int:
    """Detect unless results are given, evaluate, print the table."""
    if options.tracking is not None:
        return run_tracking(options)
    from perception.evaluate.report import format_choices, format_table, plot_precision_recall

    if options.thresholds and options.results is not None:
        raise ValueError("--thresholds are chosen for a detector: leave --results out")
    # Labels are all that result files are compared with: neither scans nor calibration.
    having: Part = "scan" if options.results is None else "labels"
    data_set = open_data_set(options.data, None if options.split == "all" else options.split, having=having)
    choices: dict[str, ScoreChoice] = {}
    if options.results is None:
        result, choices = _evaluate(options, data_set)
    else:
        labels = {frame.frame_id: frame.objects for frame in data_set}
        result = evaluate_kitti(labels, options.results, missing_results=options.missing)
    record = result.to_dict()
    if options.thresholds:
        record["thresholds"] = {name: asdict(choice) for name, choice in choices.items()}
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "metrics.json").write_text(json.dumps(record, indent=1) + "\n")
        plot_precision_recall(result, options.out / "precision_recall.png")
    if options.json:
        print(json.dumps(record))
    else:
        OUTPUT.print(format_table(result))
        if options.thresholds:
            OUTPUT.print(format_choices(choices))
    return 0


def _evaluate(options: argparse.Namespace, data_set: DataSet) -> tuple[KittiResult, dict[str, ScoreChoice]]:
    import tempfile

    from perception.detector import Detector
    from perception.evaluate.data_set import evaluate_detector
    from perception.evaluate.thresholds import choose_thresholds

    detector = Detector.from_pretrained(options.weights, device=options.device)
    pairs: list[tuple[Detections, Boxes3D]] = []
    with tempfile.TemporaryDirectory() as scratch, progress_bar() as bar:
        task = bar.add_task("detecting", total=len(data_set))

        def on_frame(frame: Frame, found: Detections) -> None:
            bar.advance(task)
            if options.thresholds:
                pairs.append((found, frame.truth))

        directory = Path(scratch) if options.out is None else options.out / "results"
        result = evaluate_detector(detector, data_set, directory, on_frame=on_frame)
    return result, choose_thresholds(pairs, detector.config.head.classes)
