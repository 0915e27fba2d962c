"""Where am I? Scans without poses, located in stores of the same and of other drives.

    python -m benchmarks.memory.certainty.locate

Stores hold one part of a drive, and queries are scans of the other part. That is every other scan, stretches
of 10 m, or the next day in a simulated town. Every fourth query is also asked in the stores of all other
drives, where each answer is wrong. An answer is right within 2 m and 5 degrees. The baselines use place
vectors alone: the pose of the most similar place, always or from the similarity that ``been-here`` requires.
Town 0 and KITTI 0001 were used to choose the constants of ``memory/locate``.
Data: ``$SPARSIGHT_DATA``, by default ``../shared/data``. Nothing is kept but ``--work``, if given.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress

from benchmarks.lib.environment import data_root
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.memory.certainty.revisits import Revisit, prepare, real_drives, towns
from benchmarks.publish.screen import tables
from memory import Filter, Memory, MemoryStore
from memory.exchange.detections import view_from_frame
from memory.exchange.scenes import SCENE_ENCODER
from memory.locate.answers import LocateOptions
from memory.questions.recognising import SAME_FROM

WITHIN_M, WITHIN_RAD = LocateOptions().within_m, LocateOptions().within_rad
#: Every n-th query of other drives is asked.
ELSEWHERE = 4
#: Outcomes of a query.
OUTCOMES = ("right", "refused", "wrong")
Pose = tuple[float, float, float]


class Case(NamedTuple):
    """A store and the queries of its drive.

    Attributes:
        name, group: see :class:`Revisit`.
        store: folder.
        views: queries.
        poses: true x, y and yaw of each.
    """

    name: str
    group: str
    store: Path
    views: list[list[Memory]]
    poses: list[Pose]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "locate", quick="one drive and one town")
    data = data_root()
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--towns", type=int, nargs="+", default=[0, 1, 2], help="seeds (0 1 2)")
    parser.add_argument("--work", type=Path, help="folder that keeps stores and queries for another run")
    options = parse(parser, arguments)
    configure(torch.device("cpu"), options.threads)
    seeds = options.towns[:1] if options.quick else options.towns
    drives = chain(real_drives(options.data), towns(seeds))
    if options.quick:
        drives = chain([next(iter(real_drives(options.data)))], towns(seeds))
    with tempfile.TemporaryDirectory() as folder, Progress(disable=options.json) as progress:
        found = cases(progress.track(drives, description="driving"), options.work or Path(folder))
        rows = [evaluated(case, found) for case in progress.track(found, description="locating")]
    values = result(
        "locate",
        torch.device("cpu"),
        {"quick": options.quick, "towns": seeds, "within_m": WITHIN_M, "within_deg": 5.0},
        summary=summed(rows),
        cases=rows,
        notes=["elsewhere: queries of other drives, of which every answer is wrong; right means refused"],
    )
    save(values, options)
    show(values, tables(values, "locate"), values["notes"], as_json=options.json)
    return 0


def cases(drives: Iterable[Revisit], work: Path) -> list[Case]:
    """Make or read the stores and the queries."""
    found = []
    for revisit in drives:
        folder = work / f"{revisit.name}-{revisit.group}".replace(" ", "_").replace(",", "")
        folder.mkdir(parents=True, exist_ok=True)
        store, lines, poses = prepare(revisit, folder)
        views = [view_from_frame(json.loads(line)) for line in lines]
        found.append(Case(revisit.name, revisit.group, store, views, [_pose(pose) for pose in poses]))
    return found


def _pose(matrix: NDArray[np.float64]) -> Pose:
    return float(matrix[0, 3]), float(matrix[1, 3]), math.atan2(matrix[1, 0], matrix[0, 0])


def evaluated(case: Case, every: Sequence[Case]) -> dict[str, Any]:
    """Return the outcomes of a store's own queries and of those of other drives, by side."""
    others = {other.name: other for other in every if other.name != case.name}
    with MemoryStore.open(case.store, readonly=True) as store:
        sides = _sides(store)
        milliseconds: list[float] = []
        figures = {}
        for name, side in sides.items():
            own = dict.fromkeys(OUTCOMES, 0)
            for view, pose in zip(case.views, case.poses, strict=True):
                started = time.perf_counter()
                own[_outcome(side(view), pose)] += 1
                if name == "ours":
                    milliseconds.append(1e3 * (time.perf_counter() - started))
            strange = [view for other in others.values() for view in other.views[::ELSEWHERE]]
            elsewhere = [side(view) is None for view in strange]
            figures[name] = own | {"elsewhere": [sum(elsewhere), len(elsewhere)]}
    return {
        "drive": case.name,
        "group": case.group,
        "queries": len(case.views),
        "median_ms": round(float(np.median(milliseconds)), 1),
        "sides": figures,
    }


def _sides(store: MemoryStore) -> dict[str, Callable[[list[Memory]], Pose | None]]:
    """Return the ways to locate a scan, by name."""
    places = store.find(Filter(kinds=("place",)))
    kept = [each for each in places if SCENE_ENCODER in each.embeddings]
    vectors = np.array([_unit(each.embeddings[SCENE_ENCODER]) for each in kept], np.float64)

    def ours(view: list[Memory]) -> Pose | None:
        pose = store.locate(view).pose
        return None if pose is None else (*pose.position[:2], pose.yaw)

    def most_similar(view: list[Memory], least: float = -1.0) -> Pose | None:
        vector = next((each.embeddings[SCENE_ENCODER] for each in view if each.kind == "place"), None)
        if vector is None or not len(vectors):
            return None
        cosine = vectors @ _unit(vector)
        best = kept[int(cosine.argmax())]
        return (*best.place[:2], best.yaw) if cosine.max() >= least else None

    return {
        "ours": ours,
        "place vectors, threshold": lambda view: most_similar(view, SAME_FROM[SCENE_ENCODER]),
        "place vectors": most_similar,
    }


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float64]:
    wide = vector.astype(np.float64)
    return np.asarray(wide / np.linalg.norm(wide))


def _outcome(found: Pose | None, true: Pose) -> str:
    if found is None:
        return "refused"
    away = math.dist(found[:2], true[:2])
    turned = abs(math.remainder(found[2] - true[2], math.tau))
    return "right" if away <= WITHIN_M and turned <= WITHIN_RAD else "wrong"


def summed(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the sums by group and side."""
    groups = list(dict.fromkeys(row["group"] for row in rows))
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for group in groups:
        chosen = [row for row in rows if row["group"] == group]
        found[group] = {
            side: {outcome: sum(row["sides"][side][outcome] for row in chosen) for outcome in OUTCOMES}
            | {"elsewhere": [sum(row["sides"][side]["elsewhere"][at] for row in chosen) for at in (0, 1)]}
            for side in chosen[0]["sides"]
        }
    return found


if __name__ == "__main__":
    raise SystemExit(main())
