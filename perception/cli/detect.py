"""``perceive detect``: boxes in point cloud files, with pictures."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.table import Table

from perception.cli.console import OUTPUT, REMARKS, add_command, add_device_option, progress_bar
from perception.detector import Detector
from perception.errors import DataError
from perception.io import find_point_clouds, load_point_cloud
from perception.types import Boxes3D, Detections, PointCloud
from sparse_core.errors import CapacityWarning


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "detect", "Find objects in point clouds and draw them.", run)
    parser.add_argument("paths", nargs="+", type=Path, help="files (.bin .npy .pcd .ply) or folders of them")
    parser.add_argument(
        "--out", required=True, type=Path, help="folder for detections.jsonl, PNG and HTML files"
    )
    parser.add_argument("--weights", default="pointpillars-kitti", help="shipped name or file")
    parser.add_argument("--score", type=float, help="lowest score reported (default: the configuration's)")
    parser.add_argument("--no-pictures", action="store_true", help="write detections.jsonl only")
    parser.add_argument("--show", action="store_true", help="open a window on each frame (extra 'viewers')")
    parser.add_argument("--json", action="store_true", help="print one JSON record a frame instead of tables")
    parser.add_argument("--profile", action="store_true", help="time the stages of each frame")
    add_device_option(parser)


@dataclass(frozen=True, eq=False)
class _Frame:
    path: Path
    cloud: PointCloud
    detections: Detections
    truth: Boxes3D | None
    elapsed_ms: float
    stages_ms: dict[str, float]


def run(options: argparse.Namespace) -> int:
    """Detect in every file. A file that cannot be used is reported and skipped; the status is then 1."""
    paths = find_point_clouds(options.paths)
    detector = Detector.from_pretrained(options.weights, device=options.device)
    if options.score is not None:
        detector = detector.with_score_threshold(options.score)
    options.out.mkdir(parents=True, exist_ok=True)
    failures = []
    with progress_bar() as bar, (options.out / "detections.jsonl").open("w") as records:
        task = bar.add_task("detecting", total=len(paths))
        for path, name in zip(paths, _output_names(paths), strict=True):
            try:
                _report(_detect(detector, path, profile=options.profile), name, options, records)
            except DataError as error:
                failures.append(str(error))
                REMARKS.print(f"skipped: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
            bar.advance(task)
    if not options.json:
        OUTPUT.print(f"{len(paths) - len(failures)} of {len(paths)} frames in {options.out}", soft_wrap=True)
    return 1 if failures else 0


def _detect(detector: Detector, path: Path, *, profile: bool) -> _Frame:
    cloud = load_point_cloud(path)
    started = time.perf_counter()
    with warnings.catch_warnings():
        # Shown with the frame: they are in detections.warnings too.
        warnings.simplefilter("ignore", CapacityWarning)
        detections = detector(cloud)
    elapsed_ms = (time.perf_counter() - started) * 1e3
    stages_ms = detector.profile(cloud, repeats=10) if profile else {}
    return _Frame(path, cloud, detections, _ground_truth(path), elapsed_ms, stages_ms)


def _report(frame: _Frame, name: str, options: argparse.Namespace, records: TextIO) -> None:
    record = {"frame": name, **frame.detections.to_dict(), "elapsed_ms": round(frame.elapsed_ms, 2)}
    if frame.stages_ms:
        record["stages_ms"] = {stage: round(value, 4) for stage, value in frame.stages_ms.items()}
    records.write(json.dumps(record) + "\n")
    records.flush()
    if not options.no_pictures:
        from perception.visualise import draw_bev, write_html

        for write, suffix in ((draw_bev, ".png"), (write_html, ".html")):
            write(
                options.out / f"{name}{suffix}",
                frame.cloud,
                frame.detections,
                ground_truth=frame.truth,
                title=f"{frame.path.name}: {len(frame.detections)} objects",
            )
    if options.show:
        from perception.visualise import show_window

        show_window(frame.cloud, frame.detections, ground_truth=frame.truth, title=name)
    if options.json:
        print(json.dumps(record), flush=True)
    else:
        OUTPUT.print(_table(frame, name))
        if frame.stages_ms:
            OUTPUT.print(_stages(frame))
        for warning in frame.detections.warnings:
            OUTPUT.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)


def _table(frame: _Frame, name: str) -> Table:
    title = f"{name}: {len(frame.cloud)} points, {len(frame.detections)} objects, {frame.elapsed_ms:.0f} ms"
    table = Table(title=title, title_justify="left")
    for column in ("class", "score", "x m", "y m", "z m", "length", "width", "height", "yaw rad"):
        table.add_column(column, justify="left" if column == "class" else "right")
    found = frame.detections
    for box, score, label in zip(found.boxes, found.scores, found.labels, strict=True):
        table.add_row(label, f"{score:.2f}", *(f"{value:.2f}" for value in box))
    return table


def _stages(frame: _Frame) -> Table:
    table = Table(title="median of 10", title_justify="left")
    table.add_column("stage")
    table.add_column("ms", justify="right")
    for stage, value in frame.stages_ms.items():
        table.add_row(stage, f"{value:.3f}")
    table.add_row("all", f"{sum(frame.stages_ms.values()):.3f}")
    return table


def _output_names(paths: list[Path]) -> list[str]:
    """File stems, with the folder's name in front (or a number behind) where stems repeat."""
    stems = [path.stem for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    names = [f"{path.parent.name}-{path.stem}" for path in paths]
    if len(set(names)) == len(names):
        return names
    return [f"{name}-{position:06d}" for position, name in enumerate(names)]


def _ground_truth(path: Path) -> Boxes3D | None:
    """Labels beside a scan in a KITTI-layout folder, if there are any."""
    from perception.io.kitti import boxes_from_objects, read_calibration, read_objects

    folder = path.resolve().parent.parent
    labels, calibration = (folder / part / f"{path.stem}.txt" for part in ("label_2", "calib"))
    if not (labels.is_file() and calibration.is_file()):
        return None
    return boxes_from_objects(read_objects(labels), read_calibration(calibration))
