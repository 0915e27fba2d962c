"""``recall import``: memories and detections from files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    shown,
    split_words,
    undoing,
)
from memory.exchange.detections import DEFAULT, DetectionOptions
from memory.exchange.importing import ImportReport, import_source
from memory.exchange.opening import SOURCE_FORMATS, open_source, open_stream
from memory.exchange.poses import read_poses
from memory.exchange.sources import DetectionLines, Source
from memory.exchange.times import parse_time
from memory.observe.free_space import mark_free
from memory.persistence.opening import open_database
from memory.store import MemoryStore
from sparse_core.table import Table

if TYPE_CHECKING:
    from memory.encode import ImageTextEncoder


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "import", run, words="FILE...")
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
        help="of the LiDAR in the map, in place of those in the file: rows of 3x4 matrices, or JSONL with"
        " frame x y z yaw",
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
    boxes.add_argument("--start", metavar="TIME", help="of the first frame, where frames have no dates")
    boxes.add_argument("--rate", type=float, metavar="HZ", help="frames a second after --start (default: 10)")
    boxes.add_argument(
        "--encoder", metavar="NAME", default=DEFAULT, help="name for the vectors of boxes (default: default)"
    )
    boxes.add_argument("--no-vectors", action="store_true", help="leave the vectors of boxes out")
    boxes.add_argument(
        "--no-tracks", action="store_true", help="a memory for each box, also where things were tracked"
    )
    boxes.add_argument(
        "--recording", metavar="NAME", help="of the tracks (default: folder and first line of the file)"
    )
    boxes.add_argument(
        "--no-free",
        action="store_true",
        help="leave things as they are where the frames looked through their place",
    )
    boxes.add_argument("--no-places", action="store_true", help="leave out where the scans were taken")
    boxes.add_argument(
        "--image-encoder",
        metavar="NAME",
        help="also vectors of the pictures of objects, for recall query --like-text --encoder NAME:"
        " class-names, a folder, or a model of the Hugging Face hub (extra 'image-text')",
    )
    boxes.add_argument(
        "--crops",
        type=Path,
        metavar="FOLDER",
        help="that names of pictures are relative to (default: the folder of the file)",
    )


def run(options: argparse.Namespace) -> int:
    """Import every file; the status is 1 where lines were left out."""
    folder, words = split_words(options, least=1, most=None)
    detections = _detection_options(options)
    if words.count("-") > 1:
        raise UsageError("- is standard input, which is read once; name it once")
    sources = [_opened(word, options, detections) for word in words]
    reports = []
    opened = MemoryStore.open if options.observe else open_database
    made = None
    if not holds_store(folder):
        made = next((dim for dim in (source.find_dim() for source in sources) if dim is not None), DIM)
    with opened(folder, create=made is not None, dim=made) as target:
        if made is not None:
            remark(f"made {shown(folder)}: a store for vectors of {made} numbers")
        for source in sources:
            with progress(f"importing {source.path.name}") as report:
                done = import_source(
                    target, source, again=options.again, skip_bad=options.skip_bad, progress=report
                )
            reports.append(done)
            if isinstance(source, DetectionLines):
                _remark_on(source, done)
            for problem in done.problems:
                remark(f"left out: {problem}", style="red")
            if not options.json:
                say(_sentence(done, folder))
                if done.observed:
                    output().print(_why(done))
    gone = {} if options.no_free else _gone(folder, sources)
    if options.json:
        free = {"gone": [{"id": id, "why": why} for id, why in gone.items()]} if gone else {}
        print_json({"files": [done.to_json() for done in reports]} | free)
    elif gone:
        things = counted(len(gone), "thing is", "things are")
        say(f"{things} gone, whose place was seen free: {', '.join(f'{id}' for id in list(gone)[:10])}")
    return 1 if any(done.problems for done in reports) else 0


def _gone(folder: Path | str, sources: Sequence[Source]) -> dict[int, str]:
    """Mark what the frames looked through."""
    looks = [source.looks for source in sources if isinstance(source, DetectionLines) and len(source.looks)]
    if not looks:
        return {}
    with MemoryStore.open(folder) as store:
        return {id: why for some in looks for id, why in mark_free(store, some).items()}


def _opened(word: str, options: argparse.Namespace, detections: DetectionOptions) -> Source:
    if word == "-":
        return open_stream(sys.stdin.buffer, "standard input", options.format, detections)
    return open_source(Path(word), options.format, detections)


def _remark_on(source: DetectionLines, done: ImportReport) -> None:
    """What a person should know of detections that were imported."""
    path, options = source.path, source.options
    if source.without_pose:
        remark(
            f"{path}: no pose in {counted(source.without_pose, 'line', 'lines')}, and no --poses: the sensor"
            " is taken to stand at the origin of the map"
        )
    if source.clocked:
        remark(
            f"{path}: no time in {counted(source.clocked, 'line', 'lines')}: taken from when they were"
            " detected; --start and --rate say otherwise"
        )
    if source.assumed:
        remark(
            f"{path}: no date in {counted(source.assumed, 'line', 'lines')}: counted from when the file of"
            " the scans was last changed; --start says otherwise"
        )
    if source.relative:
        remark(
            f"{path}: {counted(source.relative, 'line', 'lines')} dated before 2000: times since the start"
            " of a recording, of which questions about dates are answered wrongly; --start TIME dates it"
        )
    if source.left_out:
        boxes = counted(source.left_out, "box", "boxes")
        remark(f"{path}: {boxes} left out for a low score; --min-score 0 takes them all")
    if options.encoder is not None and source.boxes > source.with_vector:
        boxes = counted(source.boxes - source.with_vector, "box", "boxes")
        remark(
            f"{path}: {boxes} without a vector, so nothing finds what is like them: detect with weights that"
            " give vectors"
        )
    pictures = options.image_encoder
    if pictures is not None and source.boxes > source.pictured:
        boxes = counted(source.boxes - source.pictured, "box", "boxes")
        remark(
            f"{path}: {boxes} without a picture, so --like-text does not find them: perceive detect --crops"
            " cuts out what the camera sees"
        )
    if pictures is not None and done.known_lines and pictures.name not in source.expected:
        remark(
            f"{path}: what was imported before has no vectors of {pictures.name!r}: take it back with recall"
            " undo, and import the file again"
        )


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
        encoder=None if options.no_vectors else options.encoder,
        places=not options.no_places,
        tracks=not options.no_tracks,
        recording=options.recording,
        image_encoder=None if options.image_encoder is None else _image_encoder(options.image_encoder),
        crops=options.crops,
    )


def _image_encoder(name: str) -> ImageTextEncoder:
    # Before anything is read or made: packages may be missing.
    from memory.encode import open_image_text_encoder

    return open_image_text_encoder(name)


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


def _sentence(report: ImportReport, store: Path | str) -> str:
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
        text += f"; undo with: {undoing(store, first if first == last else f'{first}-{last}')}"
    return text
