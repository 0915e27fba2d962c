"""Accuracy of the shipped detectors, as reported by ``perceive eval``.

    python -m benchmarks.detector.weights [--also NAME=FILE ...] [--publish]

On KITTI's validation frames, on those of them whose drives the 87 frames that came later are not from, and on
a nuScenes scene all around. ``--also`` judges further weights, such as other seeds of the same training.
Data: ``$SPARSIGHT_DATA/kitti`` and ``$SPARSIGHT_DATA/nuscenes``, by default under ``../shared/data``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

from benchmarks.detector.folds import sources
from benchmarks.lib.environment import ROOT, data_root
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show, table
from perception.data import open_data_set
from sparse_core.common.table import Table

_SHIPPED = ("pointpillars-kitti", "pointpillars-kitti-dense", "pointpillars-anywhere")
_LEVELS = ("easy", "moderate", "hard")
#: KITTI's names in nuScenes, and where a detector of the whole turn looks there.
_NUSCENES = (
    "--split=scene-0523",
    "--range=-51.2,-51.2,-3,51.2,51.2,1",
    "--rename=Car=car",
    "--rename=Pedestrian=pedestrian",
    "--rename=Cyclist=bicycle",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = common_parser(__doc__, "weights", quick="the validation frames alone")
    parser.add_argument("--data", type=Path, default=data_root(), help="folder with kitti and nuscenes")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FILE", help="further weights")
    options = parse(parser, arguments)
    configure(torch.device("cpu"), options.threads)
    files = {name: name for name in _SHIPPED}
    files.update(pair.split("=", 1) for pair in options.also)
    with tempfile.TemporaryDirectory() as folder:
        places = {"val": ([str(options.data / "kitti"), "--split=val"], "kitti")}
        frames = {"val": len(open_data_set(options.data / "kitti", split="val"))}
        if not options.quick:
            apart = _frames_apart(options.data / "kitti", Path(folder))
            places["apart"] = ([str(apart), "--split=val"], "kitti")
            frames["apart"] = len(open_data_set(apart, split="val"))
            frames["nuScenes"] = len(open_data_set(options.data / "nuscenes"))
            places["nuScenes"] = ([str(options.data / "nuscenes"), *_NUSCENES], "nuscenes")
        jobs = [(name, place) for name in files for place in places]
        cases: dict[str, dict[str, Any]] = {name: {} for name in files}
        for name, place in track(jobs, disable=options.json):
            data, protocol = places[place]
            cases[name][place] = _judged(files[name], data, protocol)
    settings = {"threads": options.threads, "quick": options.quick}
    values = result("weights", torch.device(options.device), settings, frames=frames, cases=cases)
    save(values, options)
    show(values, [_table(values)], [], as_json=options.json)
    return 0


def _frames_apart(kitti: Path, folder: Path) -> Path:
    """The same data with a split of the validation frames whose drives no frame that came later is from.

    Weights trained on the first frames and weights trained on all know the same streets.
    """
    drives = {name: source.drive for name, source in sources(kitti).items()}
    learned = {drives[name] for name in (kitti / "ImageSets/train_more.txt").read_text().split()}
    frames = open_data_set(kitti, split="val").frame_ids
    (folder / "training").symlink_to((kitti / "training").resolve())
    (folder / "ImageSets").mkdir()
    apart = [name for name in frames if drives[name] not in learned]
    (folder / "ImageSets/val.txt").write_text("\n".join(apart) + "\n")
    return folder


def _judged(weights: str, data: list[str], protocol: str) -> dict[str, Any]:
    """AP of each class that has a box."""
    command = [
        sys.executable,
        "-m",
        "perception.cli",
        "eval",
        "--data",
        *data,
        "--weights",
        weights,
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr}")
    found = json.loads(done.stdout)
    if protocol == "nuscenes":
        judged = {name: round(part["AP"], 3) for name, part in found["classes"].items() if part["detections"]}
        return {"AP": judged}
    classes = {
        name: {kind: [round(part[kind]["AP40"][level], 1) for level in _LEVELS] for kind in ("3d", "bev")}
        for name, part in found.items()
    }
    return {"AP40": classes}


def _table(values: dict[str, Any]) -> Table:
    rows = []
    for name, places in values["cases"].items():
        for place, part in places.items():
            shown = part.get("AP") or {kind: part["AP40"]["Car"][kind] for kind in ("3d", "bev")}
            rows.append([name, place, str(values["frames"][place]), json.dumps(shown)])
    return table("AP of the shipped weights", ["weights", "on", "frames", "AP"], rows)


if __name__ == "__main__":
    sys.exit(main())
