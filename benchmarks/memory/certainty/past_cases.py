"""Cases that real drives have for a guarantee of counts and of "the same object": too few to calibrate one.

    python -m benchmarks.memory.certainty.past_cases

A case of "the same object" is an object that left the view for longer than the pause that ends a visit, and
came back. Its identity is that of the labels. A case of a count is a drive with labels of all its objects.
The pauses are also counted for shorter times, at which an object is still on the same visit.
Data: ``$SPARSIGHT_DATA``, by default ``../shared/data``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.lib.environment import data_root
from benchmarks.lib.options import common_parser, parse
from benchmarks.lib.results import result, save, show
from benchmarks.publish.screen import tables
from memory.merging.visits import VISIT_GAP_S
from memory.questions.guarantee.conformal import cases_needed
from perception.data import open_data_set

#: Pauses in seconds after which an object counts as seen again; the last one ends a visit.
PAUSES_S = (1.0, 5.0, VISIT_GAP_S)
CONFIDENCES = (0.8, 0.9, 0.95)
_KITTI_HZ = 10.0


class Drive(NamedTuple):
    """Observations of the labelled objects of a drive.

    Attributes:
        name: of the drive.
        seconds: its duration.
        seen: seconds of the observations by identity; None if the labels have no identities.
        scans: True if there are scans, so that a detector and vectors exist.
    """

    name: str
    seconds: float
    seen: dict[int, list[float]] | None
    scans: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "past_cases")
    parser.add_argument("--data", type=Path, default=data_root())
    options = parse(parser, arguments)
    rows = [row_of(drive) for drive in drives(options.data)]
    total = {
        "drive": "together",
        "length_s": sum(row["length_s"] for row in rows),
        "objects": sum(row["objects"] or 0 for row in rows),
        "again": [sum(row["again"][at] for row in rows if row["again"]) for at in range(len(PAUSES_S))],
        "counts": sum(row["counts"] for row in rows),
    }
    values = result(
        "past_cases",
        torch.device("cpu"),
        {"pauses_s": list(PAUSES_S), "needed": {str(each): cases_needed(each) for each in CONFIDENCES}},
        cases=[*rows, total],
        notes=["needed: cases of either outcome for each confidence"],
    )
    save(values, options)
    show(values, tables(values, "past-cases"), values["notes"], as_json=options.json)
    return 0


def row_of(drive: Drive) -> dict[str, Any]:
    """Return how many objects of a drive came back after each pause, and its cases of counts."""
    known = drive.seen is not None
    pauses = [longest_pause_s(times) for times in (drive.seen or {}).values()]
    again = [sum(pause >= least for pause in pauses) for least in PAUSES_S]
    return {
        "drive": drive.name,
        "length_s": drive.seconds,
        "objects": len(pauses) if known else None,
        "again": again if known else None,
        "counts": int(drive.scans),
    }


def longest_pause_s(times: Sequence[float]) -> float:
    """Return the longest time between two observations in a row, in seconds."""
    ordered = sorted(times)
    return max((after - before for before, after in pairwise(ordered)), default=0.0)


def drives(data: Path) -> Iterator[Drive]:
    """Yield the labelled drives."""
    for folder in sorted((data / "kitti_sequences").glob("*/")):
        yield _of_data_set(f"KITTI {folder.name[-4:]}", open_data_set(folder))
    if (data / "nuscenes").is_dir():
        yield _of_data_set("nuScenes 0523", open_data_set(data / "nuscenes", split="scene-0523"))
    for side in ("vehicle", "infrastructure"):
        if (data / "dair_v2x").is_dir():
            yield _of_data_set(f"DAIR {side}", open_data_set(data / "dair_v2x" / f"{side}-side"))
    for labels in sorted((data / "kitti_tracking" / "label_02").glob("*.txt")):
        yield _of_labels(f"KITTI tracking {labels.stem}", labels.read_text(encoding="utf-8"))


def _of_data_set(name: str, data_set: Any) -> Drive:
    seen: dict[int, list[float]] = defaultdict(list)
    times, known = [0.0], False
    first: int | None = None
    for number in range(len(data_set)):
        frame = data_set[number]
        time_ns = round(number * 1e9 / _KITTI_HZ) if frame.time_ns is None else frame.time_ns
        first = time_ns if first is None else first
        times.append((time_ns - first) / 1e9)
        known |= frame.track_ids is not None
        for id in [] if frame.track_ids is None else frame.track_ids.tolist():
            seen[id].append(times[-1])
    return Drive(name, max(times), dict(seen) if known else None, True)


def _of_labels(name: str, text: str) -> Drive:
    """Return a sequence of KITTI tracking: frame, identity and class are its first columns."""
    seen: dict[int, list[float]] = defaultdict(list)
    last = 0
    for line in text.splitlines():
        frame, id, *_ = line.split()
        last = max(last, int(frame))
        if int(id) >= 0:
            seen[int(id)].append(int(frame) / _KITTI_HZ)
    return Drive(name, last / _KITTI_HZ, dict(seen), False)


if __name__ == "__main__":
    raise SystemExit(main())
