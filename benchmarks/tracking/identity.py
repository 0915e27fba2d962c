"""Knowing an object again: vectors of the detector's boxes against sizes alone and against a small PointNet.

    python -m benchmarks.tracking.identity

Each drive, and some towns, are held out. The head and the PointNet learn from the other drive and from
simulated towns, in the same steps and from the same observations. An observation queries for others of its
object among the observations of its class in its scene that are at least half a second away. Boxes are those
of the detector. Observations are cached in ``--cache``, so that later runs resume.
Data: ``$SPARSIGHT_DATA/kitti_sequences``, by default ``../shared/data/kitti_sequences``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.progress import Progress
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.lib.environment import ROOT, data_root
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.timing import interleave, paired_ratio
from perception import Detector
from perception.checkpoints.weights import load_weights
from perception.data import open_data_set
from perception.evaluate.retrieval import Retrieval, retrieval, size_distances, vector_distances
from perception.train.identity import IdentityConfig, IdentityTrainer, vectors_of
from perception.train.identity.observations import Observations, Observer, View, drive_views
from perception.train.identity.towns import town_views

_WEIGHTS = "pointpillars-kitti"
#: Points of a sight that the PointNet is given, and how far around its box they lie.
_POINTS, _MARGIN_M = 64, 0.3


class PointNet(nn.Module):
    """Encode the points of a box, in the box frame, as unit vectors: the baseline without the detector."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Sequential(
            nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 256)
        )
        self.out = nn.Sequential(nn.Linear(256 + 3, 256), nn.ReLU(), nn.Linear(256, 128))

    def forward(self, inputs: Tensor) -> Tensor:
        """(N, 1 + points, 4), of which the first row is length, width, height, number of points."""
        sizes, points = inputs[:, 0, :3], inputs[:, 1:]
        there = torch.arange(points.shape[1], device=inputs.device) < inputs[:, 0, 3:]
        pooled = self.points(points).masked_fill(~there[..., None], 0.0).amax(dim=1)
        return F.normalize(self.out(torch.cat([pooled, torch.log(sizes)], dim=1)), dim=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    configure(torch.device("cpu"), options.threads)
    drives = sorted(path for path in options.data.glob("*") if (path / "labels.txt").is_file())
    if len(drives) < 2:
        raise SystemExit(
            f"{options.data}: two drives are needed, folders with labels.txt; there are {len(drives)}"
        )
    towns = range(options.towns + options.held_towns)
    observer = Observer(load_weights(_WEIGHTS).fold())
    with Progress(disable=options.json) as progress:
        task = progress.add_task("looking", total=len(drives) + len(towns))
        gathered = []
        for scene, views in _sources(drives, towns, options.seed):
            gathered.append(_gathered(options.cache / f"{scene}.npz", observer, views))
            progress.advance(task)
    seen, held = gathered[: len(drives)], gathered[len(drives) + options.towns :]
    learned = gathered[len(drives) : len(drives) + options.towns]
    config = IdentityConfig(steps=options.steps, seed=options.seed)
    cases = {path.name: ([*learned, *seen[:n], *seen[n + 1 :]], [seen[n]]) for n, path in enumerate(drives)}
    cases[f"{options.held_towns} towns"] = ([*learned, *seen], held)
    values = result(
        "identity",
        torch.device("cpu"),
        {
            name: getattr(options, name)
            for name in ("towns", "held_towns", "steps", "threads", "seed", "quick")
        },
        cases={name: _judged(config, *case) for name, case in cases.items()},
        frame=_frame_cost(drives[0], 3 if options.quick else options.frames),
        notes=[
            "one class, one scene, at least 0.5 s apart; what was thinned out is learned from and not asked"
        ],
    )
    save(values, options)
    show(values, [_table(values), _cost_table(values)], values["notes"], as_json=options.json)
    return 0


def _sources(
    drives: Sequence[Path], towns: Iterable[int], seed: int
) -> Iterable[tuple[str, Callable[[], Iterable[View]]]]:
    first = IdentityConfig().first_town
    for path in drives:
        yield path.name, partial(_drive, path, seed)
    for town in towns:
        yield f"town-{first + town}", partial(town_views, first + town)


def _drive(path: Path, seed: int) -> Iterable[View]:
    return drive_views(open_data_set(path), scene=path.name, seed=seed)


def _gathered(
    path: Path, observer: Observer, views: Callable[[], Iterable[View]]
) -> tuple[Observations, NDArray[np.float32]]:
    """Observations and the points in their boxes; from a file of an interrupted run where there is one."""
    points_path = path.with_suffix(".points.npy")
    if not (path.is_file() and points_path.is_file()):
        sights, points = [], [np.zeros((0, 1 + _POINTS, 4), np.float32)]
        for view in views():
            found = observer.look(view)
            sights.append(found)
            points.extend(points_in(box, view.points)[None] for box in found.boxes)
        Observations.joined(sights).save(path)
        np.save(points_path, np.concatenate(points).astype(np.float16))
    return Observations.load(path), np.load(points_path).astype(np.float32)


def points_in(box: NDArray[np.float32], points: NDArray[np.float32]) -> NDArray[np.float32]:
    """(1 + points, 4): length, width, height and number of points; then points of a box in its frame."""
    cosine, sine = np.cos(box[6]), np.sin(box[6])
    away = points[:, :3] - box[:3]
    local = np.stack(
        [cosine * away[:, 0] + sine * away[:, 1], cosine * away[:, 1] - sine * away[:, 0], away[:, 2]], 1
    )
    inside = (np.abs(local) <= box[3:6] / 2 + _MARGIN_M).all(axis=1)
    found = np.concatenate([local[inside], points[inside, 3:]], axis=1)
    found = found[np.linspace(0, len(found) - 1, min(len(found), _POINTS)).astype(np.int64)]
    rows = np.zeros((1 + _POINTS, 4), np.float32)
    rows[0] = *box[3:6], len(found)
    rows[1 : 1 + len(found)] = found
    return rows


def _judged(
    config: IdentityConfig,
    learned: Sequence[tuple[Observations, NDArray[np.float32]]],
    asked: Sequence[tuple[Observations, NDArray[np.float32]]],
) -> dict[str, Any]:
    """Both ways of making vectors, learned from one part and asked on another; and sizes alone."""
    sights, points = _joined(learned)
    questions, question_points = _joined(asked)
    whole = ~questions.thinned
    questions, question_points = questions[whole], question_points[whole]
    features = torch.from_numpy(questions.features)

    def trained(**options: Any) -> IdentityTrainer:
        trainer = IdentityTrainer(config, sights, **options)
        trainer.run()
        return trainer

    torch.manual_seed(config.seed)
    without = trained(network=PointNet(), inputs=torch.from_numpy(points))
    sides = {
        "the detector's vectors": vector_distances(vectors_of(trained().head(), features)),
        "PointNet on the points": vector_distances(
            vectors_of(without.network, torch.from_numpy(question_points))
        ),
        "sizes alone": size_distances(questions.boxes),
    }
    return {
        "learned": {"sights": len(sights), "objects": len(set(sights.objects))},
        "asked": {"sights": len(questions), "objects": len(set(questions.objects))},
        "sides": {name: _row(retrieval(distances, *_who(questions))) for name, distances in sides.items()},
    }


def _who(sights: Observations) -> tuple[Any, ...]:
    return sights.objects, sights.scenes, sights.times_s, sights.labels


def _joined(
    parts: Sequence[tuple[Observations, NDArray[np.float32]]],
) -> tuple[Observations, NDArray[np.float32]]:
    return Observations.joined([sights for sights, _ in parts]), np.concatenate(
        [points for _, points in parts]
    )


def _row(found: Retrieval) -> dict[str, Any]:
    values = found._asdict()
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}


def _frame_cost(drive: Path, frames: int) -> dict[str, Any]:
    """Return milliseconds per frame with and without the shipped head, interleaved on the same scans."""
    told, plain = (Detector(load_weights(_WEIGHTS)) for _ in range(2))
    plain.network.embedding = None
    clouds = [frame.points for frame in open_data_set(drive)[:frames]]

    def run(detector: Detector) -> Callable[[], Any]:
        return lambda: [detector(cloud) for cloud in clouds]

    same = all(np.array_equal(told(cloud).boxes, plain(cloud).boxes) for cloud in clouds)
    samples = interleave({"with": run(told), "without": run(plain)}, torch.device("cpu"), rounds=7)
    per_frame = {name: float(np.median(values)) / len(clouds) for name, values in samples.items()}
    return {
        "frames": len(clouds),
        "boxes_equal": same,
        "ms": {name: round(value, 2) for name, value in per_frame.items()},
        "ratio": paired_ratio(samples["with"], samples["without"]),
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "identity", quick="two towns, one apart, 50 steps")
    data = data_root() / "kitti_sequences"
    parser.add_argument("--data", type=Path, default=data, help="folder of the drives")
    parser.add_argument("--towns", type=int, default=24, help="simulated towns to learn from")
    parser.add_argument("--held-towns", type=int, default=8, help="further ones to ask on")
    parser.add_argument("--steps", type=int, default=600, help="of each training")
    parser.add_argument("--frames", type=int, default=8, help="scans that the cost of a frame is measured on")
    parser.add_argument(
        "--cache",
        type=Path,
        default=ROOT / "build" / "identity",
        help="folder for cached observations, reused by the next run",
    )
    options = parse(parser, arguments)
    if options.quick:
        options.towns, options.held_towns, options.steps = 2, 1, 50
    return options


def _table(values: dict[str, Any]) -> Any:
    cases = values["cases"]
    names = next(iter(cases.values()))["sides"]
    return table(
        "Re-identification on what was kept apart: mean AP, recall@1",
        [
            "side",
            *(f"{name}\nmean AP" if part == "mean_ap" else "recall@1" for name in cases for part in _PARTS),
        ],
        [
            [side, *(number(cases[name]["sides"][side][part], 3) for name in cases for part in _PARTS)]
            for side in names
        ],
    )


_PARTS = ("mean_ap", "recall_at_1")


def _cost_table(values: dict[str, Any]) -> Any:
    frame = values["frame"]
    row = [number(frame["ms"][name], 1) for name in ("with", "without")]
    return table(
        "A frame on the CPU, ms",
        ["with vectors", "without", "ratio"],
        [[*row, number(frame["ratio"]["median"], 3)]],
    )


if __name__ == "__main__":
    raise SystemExit(main())
