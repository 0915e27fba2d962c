"""``recall locate``: estimate the pose of a robot that does not know it."""

from __future__ import annotations

import argparse
import math
from typing import Any

from memory.cli.console import UsageError, add_command, output, print_json, say, split_words
from memory.cli.search.looks import view_of
from memory.locate.answers import LocateOptions, PoseCandidate
from memory.store import MemoryStore
from sparse_core.common.table import Table


def add_parser(commands: Any) -> None:
    """Declare the options."""
    usual = LocateOptions()
    parser = add_command(commands, "locate", run)
    parser.epilog = "The exit status is 0 if one pose is certain enough, and 1 if the answer is refused."
    parser.add_argument(
        "--like", metavar="FILE",
        help="the scan: the last line of a detections.jsonl of perceive (- for standard input)",
    )  # fmt: skip
    parser.add_argument("--map", metavar="MAP", help="only this map (default: all maps)")
    parser.add_argument(
        "--least-probability", type=float, default=usual.least_probability, metavar="P",
        help="smallest probability of an answer (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--k", "-k", type=int, default=usual.most_candidates,
        help="maximum number of poses to list (default: %(default)s)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Print the pose, or why there is none, and the candidates."""
    folder, _ = split_words(options)
    if options.like is None:
        raise UsageError("locate needs a scan. Add --like FILE, a detections.jsonl of perceive detect")
    view, _ = view_of(options.like)
    gates = LocateOptions(least_probability=options.least_probability, most_candidates=options.k)
    with MemoryStore.open(folder, readonly=True, create=False) as store:
        if options.map is not None and options.map not in store.maps():
            raise UsageError(f"no map {options.map!r}. The maps are {', '.join(store.maps()) or 'none yet'}")
        found = store.locate(view, map_id=options.map, options=gates)
    if options.json:
        print_json({"sentence": str(found), **found.to_json()})
    else:
        say(str(found))
        if found.candidates:
            headings = ("probability", "map", "x, y, m", "heading, degrees", "error, m", "objects", "place")
            output().print(Table(headings, [_row(each) for each in found.candidates]))
    return 0 if found.pose is not None else 1


def _row(candidate: PoseCandidate) -> list[str]:
    x, y, _ = candidate.position
    similar = "" if candidate.place is None else f"{candidate.place} ({candidate.similarity:.2f})"
    return [
        f"{candidate.probability:.2f}",
        candidate.map_id,
        f"{x:.1f}, {y:.1f}",
        f"{math.degrees(candidate.yaw):.0f} ± {math.degrees(candidate.sigma_rad):.0f}",
        f"{candidate.sigma_m:.1f}",
        ", ".join(map(str, candidate.objects)),
        similar,
    ]
