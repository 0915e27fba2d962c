"""Tracks of KITTI's cars from PointRCNN's boxes, in three modes, against a tracker as AB3DMOT is, in one run.

    python -m benchmarks.tracking.tracking

Figures are those of `perceive eval --tracking`. The threshold for reporting a track is also chosen for each
sequence on the others, which shows the cost of a choice made on other data. Times are those of the
process, one thread, of following alone: no file is read or written in them.
Data: ``$SPARSIGHT_DATA/kitti_tracking``, by default ``../shared/data/kitti_tracking``; no poses. It then
tracks our detector's boxes over the drives in ``kitti_sequences``, and the boxes of CenterPoint and Megvii in
the scene in ``nuscenes``, against a greedy constant-velocity tracker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lib.environment import data_root
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.publish.screen import tables
from benchmarks.tracking.baseline import Baseline
from benchmarks.tracking.nuscenes import nuscenes_tracks
from benchmarks.tracking.own import own_tracks
from perception.data.kitti.tracking import TrackRows, read_tracks
from perception.track import TrackerConfig, track_recording
from perception.track.evaluation import SequencePair, clear_measures, hota_measures
from perception.track.folders import DetectionFolder, rows_of_tracks
from perception.track.recording import MODES, Mode, Moment

_LABEL = "Car"
_CHOICES = (-2.0, -1.0, 0.0)
_FIGURES = ("samota", "mota", "motp", "id_switches", "fragments", "hota", "deta", "assa")

Follow = Callable[[list[Moment]], list[Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "tracking", quick="two sequences")
    data = data_root() / "kitti_tracking"
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--weights", default="pointpillars-kitti", help="of our detector")
    options = parse(parser, arguments)
    configure(torch.device("cpu"), 1)
    folder = DetectionFolder(options.data)
    names = list(folder.lengths)[: 2 if options.quick else None]
    held = {name: _cars(folder.moments(name)) for name in names}
    config = TrackerConfig.for_log_odds()
    sides: dict[str, Follow] = {"baseline": _baseline}
    sides |= {mode: _follow(config, mode) for mode in MODES}
    cases, pairs = {}, {}
    for side, follow in sides.items():
        pairs[side], seconds = _followed(folder, held, follow)
        frames = sum(map(len, held.values()))
        cases[side] = _figures(pairs[side]) | {
            "frames_per_s": round(frames / seconds),
            "hota_by_sequence": [round(hota_measures([pair], _LABEL).hota, 4) for pair in pairs[side]],
        }
    values = result(
        "tracking",
        torch.device("cpu"),
        {"quick": options.quick, "sequences": names, "threads": 1},
        cases=cases,
        left_out=_left_out(folder, held, config, pairs["online"]),
        own=own_tracks(
            sorted(data.with_name("kitti_sequences").glob("*/"))[: 1 if options.quick else None],
            options.weights,
        ),
        nuscenes=nuscenes_tracks(data.with_name("nuscenes")),
        notes=["boxes of PointRCNN, whose training frames came from such drives"],
    )
    save(values, options)
    show(
        values,
        tables(values, "tracking", "tracking-own", "tracking-nuscenes"),
        values["notes"],
        as_json=options.json,
    )
    return 0


def _cars(moments: list[Moment]) -> list[Moment]:
    return [Moment(moment.detections.filter(labels=[_LABEL]), moment.pose) for moment in moments]


def _follow(config: TrackerConfig, mode: Mode) -> Follow:
    return lambda frames: list(track_recording(frames, config, mode=mode))


def _baseline(frames: list[Moment]) -> list[Any]:
    tracker = Baseline()
    return [tracker.update(moment.detections) for moment in frames]


def _followed(
    folder: DetectionFolder, held: dict[str, list[Moment]], follow: Follow
) -> tuple[list[SequencePair], float]:
    """Return labels and tracks of each sequence, and the tracking time in seconds."""
    pairs, seconds = [], 0.0
    for name, frames in held.items():
        started = time.process_time()
        tracks = follow(frames)
        seconds += time.process_time() - started
        rows = rows_of_tracks(tracks, folder.calibration(name), log_odds_scores=folder.scores_are_log_odds)
        labels = read_tracks(folder.path / "label_02" / f"{name}.txt")
        pairs.append(SequencePair(name, len(frames), _by_frame(labels), _by_frame(rows)))
    return pairs, seconds


def _by_frame(rows: TrackRows) -> TrackRows:
    return rows.rows(np.argsort(rows.frame, kind="stable"))


def _figures(pairs: list[SequencePair]) -> dict[str, Any]:
    found = clear_measures(pairs, _LABEL).to_dict() | hota_measures(pairs, _LABEL).to_dict()
    return {name: round(found[name], 6) for name in _FIGURES}


def _left_out(
    folder: DetectionFolder,
    held: dict[str, list[Moment]],
    config: TrackerConfig,
    online: list[SequencePair],
) -> dict[str, Any]:
    """HOTA online where the belief to tell a track from is the best one of the other sequences."""
    found = {config.classes[_LABEL].tell_from: online}
    for choice in sorted(set(_CHOICES) - found.keys()):
        car = replace(config.classes[_LABEL], tell_from=choice)
        other = replace(config, classes={**config.classes, _LABEL: car})
        found[choice], _ = _followed(folder, held, _follow(other, "online"))
    chosen = []
    for number in range(len(held)):
        rest = {
            choice: hota_measures([*pairs[:number], *pairs[number + 1 :]], _LABEL).hota
            for choice, pairs in found.items()
        }
        chosen.append(max(rest, key=lambda choice: rest[choice]))
    judged = [found[choice][number] for number, choice in enumerate(chosen)]
    return {"tell_from": chosen, **_figures(judged)}


if __name__ == "__main__":
    raise SystemExit(main())
