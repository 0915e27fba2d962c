"""nuScenes' scene with the boxes of CenterPoint and Megvii: our tracks and those of a greedy tracker."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.tracking.greedy import Greedy
from perception.data import DataSet, open_data_set
from perception.track import TrackerConfig, track_recording
from perception.track.nuscenes import judge_results, scene_moments, write_scenes
from perception.track.recording import MODES, Mode, Moment
from perception.track.tracks import Tracks

_SUFFIX = "_nuscenes_format.json"
_FIGURES = ("amota", "amotp", "mota", "recall", "id_switches", "fragments")
_REPEATS = 5

Follow = Callable[[Sequence[Moment]], list[Tracks]]


def nuscenes_tracks(folder: Path) -> dict[str, dict[str, Any]]:
    """By detector and tracker: figures of the benchmark, by class too, and updates a second.

    Args:
        folder: with tables, and result files in ``detections/``.
    """
    data = open_data_set(folder, having="labels")
    sides: dict[str, Follow] = {"greedy": _greedy} | {mode: _ours(mode) for mode in MODES}
    cases = {}
    for results in sorted((folder / "detections").glob(f"*{_SUFFIX}")):
        scenes = scene_moments(data, results)
        for side, follow in sides.items():
            name = f"{results.name.removesuffix(_SUFFIX)}, {side}"
            cases[name] = _case(data, list(scenes.values()), follow)
    return cases


def _case(data: DataSet, scenes: list[list[Moment]], follow: Follow) -> dict[str, Any]:
    seconds = []
    for _ in range(_REPEATS):
        started = time.process_time()
        told = [follow(moments) for moments in scenes]
        seconds.append(time.process_time() - started)
    named = [
        [(str(moment.detections.source), tracks) for moment, tracks in zip(moments, found, strict=True)]
        for moments, found in zip(scenes, told, strict=True)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "results.json"
        write_scenes(path, named)
        found = judge_results(data, path)
    return {
        **{name: round(found.figure(name), 6) for name in _FIGURES},
        "amota_by_class": {label: round(figures["amota"], 4) for label, figures in found.classes.items()},
        "updates_per_s": round(sum(map(len, scenes)) / statistics.median(seconds)),
    }


def _greedy(moments: Sequence[Moment]) -> list[Tracks]:
    tracker = Greedy()
    return [tracker.update(moment) for moment in moments]


def _ours(mode: Mode) -> Follow:
    config = TrackerConfig.for_nuscenes()
    return lambda moments: list(track_recording(moments, config, mode=mode))
