"""``recall import``: import memories and detections from files."""

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
    check_free,
    counted,
    holds_store,
    output,
    print_json,
    progress,
    say,
    shown,
    split_words,
    undoing,
)
from memory.exchange.detections import DEFAULT, DetectionOptions
from memory.exchange.formats import SOURCE_FORMATS, open_source, open_stream
from memory.exchange.importing import ImportReport, import_source
from memory.exchange.poses import read_poses
from memory.exchange.sources import DetectionLines, Source
from memory.exchange.times import format_time, parse_time
from memory.observe.free_space import mark_free
from memory.persistence.opening import open_checked
from memory.store import MemoryStore
from sparse_core.common.console import LOG
from sparse_core.common.table import Table

if TYPE_CHECKING:
    from memory.encode import ImageTextEncoder


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "import", run, words="FILE...")
    parser.add_argument(
        "--format",
        choices=SOURCE_FORMATS,
        default="auto",
        help="file format (default: detected from the content)",
    )
    parser.add_argument("--again", action="store_true", help="import lines again that were imported before")
    parser.add_argument("--skip-bad", action="store_true", help="skip bad lines; the exit status is then 1")
    parser.add_argument(
        "--observe",
        action="store_true",
        help="score each memory and keep only important ones, according to the store's settings",
    )
    boxes = parser.add_argument_group("detections")
    boxes.add_argument(
        "--poses",
        type=Path,
        help="LiDAR poses in the map, used instead of those in the file: rows of 3x4 matrices, or JSONL with"
        " frame, x, y, z, yaw",
    )
    boxes.add_argument(
        "--camera-poses",
        action="store_true",
        help="the poses are those of KITTI's camera 0, as in KITTI odometry",
    )
    boxes.add_argument("--map", default="default", help="map that the poses refer to (default: default)")
    boxes.add_argument(
        "--min-score",
        type=float,
        metavar="S",
        help="skip boxes with a lower score (default: the detector's threshold, if the file has it)",
    )
    boxes.add_argument("--start", metavar="TIME", help="time of the first frame, for frames without dates")
    boxes.add_argument(
        "--rate", type=float, metavar="HZ", help="frames per second after --start (default: 10)"
    )
    boxes.add_argument(
        "--encoder",
        metavar="NAME",
        default=DEFAULT,
        help="encoder name of the box embeddings (default: default)",
    )
    boxes.add_argument("--no-vectors", action="store_true", help="omit the box embeddings")
    boxes.add_argument(
        "--no-tracks", action="store_true", help="store one memory per box instead of one per object"
    )
    boxes.add_argument(
        "--recording",
        metavar="NAME",
        help="recording that the track ids belong to (default: folder and first line of the file)",
    )
    boxes.add_argument(
        "--no-free",
        action="store_true",
        help="do not mark objects as gone when frames looked through their place",
    )
    boxes.add_argument("--no-places", action="store_true", help="do not store where scans were taken")
    boxes.add_argument(
        "--image-encoder",
        metavar="NAME",
        help="also embed image crops of objects, so that recall query --like-text finds them. NAME is"
        " class-names, a folder, or a model of the Hugging Face hub (extra image-text)",
    )
    boxes.add_argument(
        "--crops",
        type=Path,
        metavar="FOLDER",
        help="folder of the image crops (default: folder of the file)",
    )


def run(options: argparse.Namespace) -> int:
    """Import every file; the exit status is 1 if lines were skipped."""
    folder, words = split_words(options, least=1, most=None)
    detections = _detection_options(options)
    if words.count("-") > 1:
        raise UsageError("FILE '-' (standard input) is given more than once. Give it once")
    sources = [_open_source(word, options, detections) for word in words]
    reports = []
    opened = MemoryStore.open if options.observe else open_checked
    made = None
    if not holds_store(folder):
        check_free(folder)
        if all(source.is_empty() for source in sources):
            empty = ", ".join(str(source.path) for source in sources)
            raise UsageError(f"{empty}: nothing to import, so no store was created")
        if not options.skip_bad:
            for source in sources:
                source.check_first()
        made = next((dim for dim in (source.find_dim() for source in sources) if dim is not None), DIM)
    with opened(folder, create=made is not None, dim=made) as target:
        if made is not None:
            LOG.info("created %s with vector length %d", shown(folder), made)
        for source in sources:
            with progress(f"importing {source.path.name}") as report:
                done = import_source(
                    target, source, again=options.again, skip_bad=options.skip_bad, progress=report
                )
            reports.append(done)
            if isinstance(source, DetectionLines):
                _remark_on(source, done)
            elif source.early_ns is not None and done.memories:
                LOG.warning(
                    f"{source.path}: times such as {format_time(source.early_ns, digits=0)} are before 2000."
                    " time_ns counts nanoseconds; if yours counts seconds, undo the import and convert them"
                )
            for problem in done.problems:
                LOG.error("skipped: %s", problem)
            if not options.json:
                say(_sentence(done, folder))
                if done.observed:
                    output().print(_why(done))
    gone = {} if options.no_free else _gone(folder, sources)
    if options.json:
        free = {"gone": [{"id": id, "why": why} for id, why in gone.items()]} if gone else {}
        print_json({"files": [done.to_json() for done in reports]} | free)
    elif gone:
        things = counted(len(gone), "object is", "objects are")
        more = ", ..." if len(gone) > 10 else ""
        whose = "its" if len(gone) == 1 else "their"
        ids = ", ".join(map(str, list(gone)[:10]))
        say(f"{things} gone, because {whose} place was seen free: {ids}{more}")
    return 1 if any(done.problems for done in reports) else 0


def _gone(folder: Path | str, sources: Sequence[Source]) -> dict[int, str]:
    """Mark objects as gone whose place the frames looked through."""
    looks = [source.looks for source in sources if isinstance(source, DetectionLines) and len(source.looks)]
    if not looks:
        return {}
    with MemoryStore.open(folder) as store:
        return {id: why for some in looks for id, why in mark_free(store, some).items()}


def _open_source(word: str, options: argparse.Namespace, detections: DetectionOptions) -> Source:
    if word == "-":
        return open_stream(sys.stdin.buffer, "standard input", options.format, detections)
    return open_source(Path(word), options.format, detections)


def _remark_on(source: DetectionLines, done: ImportReport) -> None:
    """Warn about missing poses, times and vectors of imported detections."""
    path, options = source.path, source.options
    if source.without_pose:
        LOG.warning(
            f"{path}: {counted(source.without_pose, 'line has', 'lines have')} no pose; the sensor is assumed"
            " at the map origin. Give --poses"
        )
    if done.known_lines and (options.start_ns is not None or options.poses is not None):
        LOG.warning(
            f"{path}: lines that were imported before keep their times and poses. To change them, undo that"
            " import with recall undo, then import the file again"
        )
    if source.clocked:
        LOG.warning(
            f"{path}: {counted(source.clocked, 'line has', 'lines have')} no time; used the detection time."
            " Give --start and --rate to set times"
        )
    if source.assumed:
        LOG.warning(
            f"{path}: {counted(source.assumed, 'line has', 'lines have')} no date; used the modification time"
            " of the scan file. Give --start to set the date"
        )
    if source.relative:
        LOG.warning(
            f"{path}: {counted(source.relative, 'line has', 'lines have')} times before 2000, probably"
            " seconds since the start of the recording. Give --start TIME, or questions about dates fail"
        )
    if source.left_out:
        boxes = counted(source.left_out, "box", "boxes")
        LOG.info("%s: skipped %s with a low score; --min-score 0 imports all", path, boxes)
    if source.unsure:
        boxes = counted(source.unsure, "box", "boxes")
        LOG.info("%s: skipped %s of objects seen too seldom; --no-tracks imports all", path, boxes)
    if options.encoder is not None and source.boxes > source.with_vector:
        boxes = counted(source.boxes - source.with_vector, "box", "boxes")
        LOG.warning(
            f"{path}: {boxes} without an embedding, which similarity search does not find. Detect with"
            " weights that have an embedding head"
        )
    pictures = options.image_encoder
    if pictures is not None and source.boxes > source.pictured:
        boxes = counted(source.boxes - source.pictured, "box", "boxes")
        LOG.warning(
            f"{path}: {boxes} without an image crop, which --like-text does not find. perceive detect --crops"
            " writes crops"
        )
    if pictures is not None and done.known_lines and pictures.name not in source.expected:
        LOG.warning(
            f"{path}: lines that were imported before have no vectors of {pictures.name!r}. Undo that import"
            " with recall undo, then import the file again"
        )


def _detection_options(options: argparse.Namespace) -> DetectionOptions:
    if options.rate is not None and options.start is None:
        raise UsageError("--rate needs --start TIME")
    if options.camera_poses and options.poses is None:
        raise UsageError("--camera-poses needs --poses FILE")
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
    # Called before any file is read, because packages may be missing.
    from memory.encode import open_image_text_encoder

    return open_image_text_encoder(name)


def _why(report: ImportReport) -> Table:
    """Return how many observations were kept or not, by reason."""
    rows = [
        (what, why, count)
        for what, counts in (("kept", report.why_kept), ("not kept", report.why_not))
        for why, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    ]
    if report.displaced:
        rows.append(("forgotten", "stored before, replaced by more important ones", report.displaced))
    return Table(("", "why", "how many"), rows, title="observations")


def _sentence(report: ImportReport, store: Path | str) -> str:
    text = f"{report.path}: {counted(report.memories)} from {counted(report.lines, 'line', 'lines')}"
    if report.observed is not None:
        text = (
            f"{report.path}: {report.memories:,} of {counted(report.observed, 'observation', 'observations')}"
            f" kept, from {counted(report.lines, 'line', 'lines')}"
        )
    if report.known_lines:
        text += f"; skipped {counted(report.known_lines, 'line that was', 'lines that were')} imported before"
        text += " (--again imports them)"
    if report.problems:
        text += f"; skipped {len(report.problems)} bad lines"
    if report.operations:
        first, last = report.operations[0], report.operations[-1]
        text += f"; undo with: {undoing(store, first if first == last else f'{first}-{last}')}"
    return text
