"""``recall import``: memories and detections from files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from memory.cli.console import (
    DIM,
    UsageError,
    add_command,
    counted,
    holds_store,
    output,
    print_json,
    progress,
    remark,
    say,
    split_words,
)
from memory.exchange.detections import DetectionOptions
from memory.exchange.importing import ImportReport, import_source
from memory.exchange.poses import read_poses
from memory.exchange.sources import SOURCE_FORMATS, DetectionLines, open_source
from memory.exchange.times import parse_time
from memory.persistence.sqlite import Database
from memory.store import MemoryStore
from sparse_core.table import Table

_HELP = (
    "Import JSONL or Parquet with memories, or the detections.jsonl of perceive. A store is made where there"
    " is none, for vectors as long as the file's. Run it again after an interruption, or when the file has"
    " grown: lines that were imported are passed over."
)


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "import", _HELP, run, words="FILE...")
    parser.add_argument("--format", choices=SOURCE_FORMATS, default="auto", help="default: by looking")
    parser.add_argument("--again", action="store_true", help="also lines that were imported before")
    parser.add_argument("--skip-bad", action="store_true", help="leave bad lines out; exit status 1 if any")
    parser.add_argument(
        "--observe",
        action="store_true",
        help="score what is imported, and keep only what matters, as the store's settings say",
    )
    boxes = parser.add_argument_group("detections")
    boxes.add_argument(
        "--poses",
        type=Path,
        help="of the LiDAR in the map: rows of 3x4 matrices, or JSONL with frame x y z yaw",
    )
    boxes.add_argument(
        "--camera-poses",
        action="store_true",
        help="the rows are of KITTI's camera 0, as its odometry has them",
    )
    boxes.add_argument("--map", default="default", help="map of the poses")
    boxes.add_argument(
        "--min-score",
        type=float,
        metavar="S",
        help="leave out boxes below (default: what the detector takes for an object, if the file says it)",
    )
    boxes.add_argument("--start", metavar="TIME", help="of the first frame, where frames and poses have none")
    boxes.add_argument("--rate", type=float, metavar="HZ", help="frames a second after --start (default: 10)")


def run(options: argparse.Namespace) -> int:
    """Import every file; the status is 1 where lines were left out."""
    folder, words = split_words(options, least=1, most=None)
    detections = _detection_options(options)
    sources = [open_source(Path(word), options.format, detections) for word in words]
    reports = []
    opened = MemoryStore.open if options.observe else Database.open
    made = None
    if not holds_store(folder):
        made = next((dim for dim in (source.find_dim() for source in sources) if dim is not None), DIM)
    with opened(folder, create=made is not None, dim=made) as target:
        if made is not None:
            remark(f"made {folder}: a store for vectors of {made} numbers")
        for source in sources:
            if isinstance(source, DetectionLines) and detections.poses is None:
                remark(f"{source.path}: no --poses: the sensor is taken to stand at the origin of the map")
            with progress(f"importing {source.path.name}") as report:
                done = import_source(
                    target, source, again=options.again, skip_bad=options.skip_bad, progress=report
                )
            reports.append(done)
            if isinstance(source, DetectionLines) and source.left_out:
                boxes = counted(source.left_out, "box", "boxes")
                remark(f"{source.path}: {boxes} left out for a low score; --min-score 0 takes them all")
            for problem in done.problems:
                remark(f"left out: {problem}", style="red")
            if not options.json:
                say(_sentence(done))
                if done.observed:
                    output().print(_why(done))
    if options.json:
        print_json({"files": [done.to_json() for done in reports]})
    return 1 if any(done.problems for done in reports) else 0


def _detection_options(options: argparse.Namespace) -> DetectionOptions:
    if options.rate is not None and options.start is None:
        raise UsageError("--rate needs --start")
    if options.camera_poses and options.poses is None:
        raise UsageError("--camera-poses needs --poses")
    start = None if options.start is None else parse_time(options.start)
    rate = 10.0 if options.rate is None and start is not None else options.rate
    return DetectionOptions(
        poses=None if options.poses is None else read_poses(options.poses, camera=options.camera_poses),
        map_id=options.map,
        min_score=options.min_score,
        start_ns=start,
        rate_hz=rate,
    )


def _why(report: ImportReport) -> Table:
    """How many observations became what, and why."""
    rows = [
        (what, why, count)
        for what, counts in (("kept", report.why_kept), ("not kept", report.why_not))
        for why, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    ]
    if report.displaced:
        rows.append(("forgotten", "stored before, and displaced by more important ones", report.displaced))
    return Table(("", "why", "how many"), rows, title="observations")


def _sentence(report: ImportReport) -> str:
    text = f"{report.path}: {counted(report.memories)} from {counted(report.lines, 'line', 'lines')}"
    if report.observed is not None:
        text = (
            f"{report.path}: {report.memories:,} of {counted(report.observed, 'observation', 'observations')}"
            f" kept, from {counted(report.lines, 'line', 'lines')}"
        )
    if report.known_lines:
        text += f"; {report.known_lines} lines were imported before (--again imports them once more)"
    if report.problems:
        text += f"; {len(report.problems)} bad lines left out"
    if report.operations:
        first, last = report.operations[0], report.operations[-1]
        text += f"; undo with: recall undo {first if first == last else f'{first}-{last}'}"
    return text
