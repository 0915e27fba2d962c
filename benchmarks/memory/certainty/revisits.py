"""Drives that are mapped with some of their scans and located with the others.

Every part goes through the shipped commands: ``perceive track`` and ``recall import`` make the store of the
mapping part, and ``perceive detect`` writes the queries, which have no poses.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.lib.demos import drive_module
from memory.cli import main as recall
from perception.cli import main as perceive
from perception.data import DataSet, open_data_set

#: Length of the mapped and the unmapped stretches of a drive, in metres.
STRETCH_M = 10.0
#: Distance between the scans of a town, in metres.
_STEP_M = 4.0


class Scan(NamedTuple):
    """A scan.

    Attributes:
        points: (N, 4) float32, LiDAR frame.
        pose: (4, 4) float64 map_from_lidar.
        time_ns: of the scan.
    """

    points: NDArray[np.float32]
    pose: NDArray[np.float64]
    time_ns: int


@dataclass(frozen=True, kw_only=True)
class Revisit:
    """A mapping part and queries in the same map.

    Attributes:
        name: of the drive.
        group: of drives that are summed up.
        scans: returns the scans of both parts, which takes a while.
        weights: of the detector.
    """

    name: str
    group: str
    scans: Callable[[], tuple[list[Scan], list[Scan]]]
    weights: str


def real_drives(data: Path) -> Iterator[Revisit]:
    """Return the splits of the drives whose data is present.

    Args:
        data: folder with ``kitti_sequences``, ``nuscenes`` and ``dair_v2x``.
    """
    for folder in sorted((data / "kitti_sequences").glob("*/")):
        yield from _splits(f"KITTI {folder.name[-4:]}", _scans(open_data_set(folder)), "pointpillars-kitti")
    if (data / "nuscenes").is_dir():
        frames = open_data_set(data / "nuscenes", split="scene-0523")
        yield from _splits("nuScenes 0523", _scans(frames), "pointpillars-anywhere")
    for side in ("vehicle", "infrastructure"):
        folder = data / "dair_v2x" / f"{side}-side"
        if folder.is_dir():
            yield from _splits(f"DAIR {side}", _scans(open_data_set(folder)), "pointpillars-anywhere")


def towns(seeds: Sequence[int]) -> Iterator[Revisit]:
    """Return simulated towns: mapped on the first day, asked on the next, when some cars left or moved."""
    for seed in seeds:
        yield Revisit(
            name=f"town {seed}", group="towns, next day", scans=partial(_town_days, seed),
            weights="pointpillars-kitti",
        )  # fmt: skip


def _town_days(seed: int) -> tuple[list[Scan], list[Scan]]:
    """Return the scans of the first and of the second day."""
    frames, town = drive_module("frames"), drive_module("town")
    built = town.Town(town.TownConfig(), 2, seed)
    days: tuple[list[Scan], list[Scan]] = ([], [])
    for frame in frames.simulated_frames(built, frames.DriveConfig(2, 1, _STEP_M, 0, seed)):
        points = frame.cloud.points.astype(np.float32)
        days[frame.day].append(Scan(points, frame.map_from_lidar, frame.time_ns))
    return days


def _splits(name: str, scans: list[Scan], weights: str) -> Iterator[Revisit]:
    """Return every other scan as a query, and every other stretch of a moving vehicle."""
    even = np.arange(len(scans)) % 2 == 0
    yield Revisit(name=name, group="every other scan", scans=partial(_split, scans, even), weights=weights)
    places = np.array([scan.pose[:3, 3] for scan in scans])
    driven = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(places, axis=0), axis=1))])
    known = np.floor(driven / STRETCH_M) % 2 == 0
    if not known.all() and driven[-1] > 3 * STRETCH_M:
        yield Revisit(
            name=name, group="unmapped stretches", scans=partial(_split, scans, known), weights=weights
        )


def _split(scans: list[Scan], mapped: NDArray[np.bool_]) -> tuple[list[Scan], list[Scan]]:
    """Return the mapped scans and the others."""
    both = list(zip(scans, mapped.tolist(), strict=True))
    return [scan for scan, known in both if known], [scan for scan, known in both if not known]


def _scans(frames: DataSet) -> list[Scan]:
    """Return the scans; the first one is the origin of the map."""
    found: list[Scan] = []
    map_from_world: NDArray[np.float64] = np.eye(4)
    for number in range(len(frames)):
        frame = frames[number]
        assert frame.pose is not None
        if not found:
            map_from_world = np.linalg.inv(frame.pose).astype(np.float64)
        time_ns = number * 10**8 if frame.time_ns is None else frame.time_ns
        found.append(Scan(frame.cloud.points[:, :4].astype(np.float32), map_from_world @ frame.pose, time_ns))
    return found


def prepare(revisit: Revisit, folder: Path) -> tuple[Path, list[str], NDArray[np.float64]]:
    """Return the store, the lines of the queries and their (N, 4, 4) poses; they are made unless they exist.

    Args:
        revisit: the drive.
        folder: of this drive.
    """
    store, lines, poses = folder / "store", folder / "queries" / "detections.jsonl", folder / "poses.npy"
    if not poses.is_file():
        mapped, queried = revisit.scans()
        write_scans(mapped, folder / "mapped")
        run_quietly(
            perceive, "track", folder / "mapped" / "scans", "--poses", folder / "mapped" / "poses.txt",
            "--times", folder / "mapped" / "times.txt", "--weights", revisit.weights, "--no-pictures",
            "--out", folder / "tracked", "--start", "2026-01-05T09:00:00Z",
        )  # fmt: skip
        run_quietly(recall, "import", store, folder / "tracked" / "detections.jsonl", "--map", "mapped")
        write_scans(queried, folder / "queried")
        run_quietly(
            perceive, "detect", folder / "queried" / "scans", "--weights", revisit.weights,
            "--no-pictures", "--out", lines.parent,
        )  # fmt: skip
        np.save(poses, np.array([scan.pose for scan in queried]))
    return store, lines.read_text(encoding="utf-8").splitlines(), np.load(poses)


def write_scans(scans: Sequence[Scan], folder: Path) -> None:
    """Write scans, poses and times."""
    (folder / "scans").mkdir(parents=True, exist_ok=True)
    poses, times = [], []
    for number, scan in enumerate(scans):
        scan.points.tofile(folder / "scans" / f"{number:06d}.bin")
        poses.append(" ".join(f"{value:.6f}" for value in scan.pose[:3].ravel()))
        times.append(f"{(scan.time_ns - scans[0].time_ns) / 1e9:.6f}")
    (folder / "poses.txt").write_text("\n".join(poses) + "\n", encoding="utf-8")
    (folder / "times.txt").write_text("\n".join(times) + "\n", encoding="utf-8")


def run_quietly(command: Callable[[list[str]], int], *arguments: object) -> None:
    """Run a command without its output.

    Raises:
        RuntimeError: it failed; the message holds its output.
    """
    with redirect_stdout(io.StringIO()) as said, redirect_stderr(said):
        status = command([str(argument) for argument in arguments])
    if status != 0:
        raise RuntimeError(f"{arguments[0]} ended with status {status}: {said.getvalue()[-2000:]}")
