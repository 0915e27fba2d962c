"""The store of three real drives, made with the shipped commands each time: no file of the data is kept.

Two KITTI drives (0001, a street in Karlsruhe, and 0060, where the vehicle stands) and a nuScenes scene (0523,
Boston) are tracked by ``perceive track`` and imported by ``recall import``, each in a map of its own.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np

from benchmarks.lib.environment import data_root
from memory import MemoryStore
from memory.cli import main as recall
from perception.cli import main as perceive
from perception.data import open_data_set

#: Map, and the time of the first scan, by drive of KITTI.
_KITTI = {"0001": ("karlsruhe", "2011-09-26T13:02:25Z"), "0060": ("crossing", "2011-09-26T15:12:00Z")}
_BOSTON = "boston"
#: Areas of the maps: name, map, and x0, y0, x1, y1 in metres.
_AREAS = (
    ("north side", "karlsruhe", (-20.0, 0.0, 200.0, 60.0)),
    ("south side", "karlsruhe", (-20.0, -60.0, 200.0, 0.0)),
)


@contextmanager
def drives_store() -> Iterator[tuple[MemoryStore, dict[str, int], int]]:
    """Open the store of the drives; the time of the questions is that of its newest memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            for drive, (map_id, start) in _KITTI.items():
                scans = data_root() / "kitti_sequences" / f"2011_09_26_drive_{drive}"
                _remember(
                    folder, map_id, scans / "velodyne_reduced", "--poses", scans / "poses.txt",
                    "--times", scans / "timestamps.txt", "--start", start,
                )  # fmt: skip
            _write_boston(folder / "scans")
            _remember(
                folder, _BOSTON, folder / "scans", "--poses", folder / "poses.txt",
                "--times", folder / "times.txt", "--weights", "pointpillars-anywhere",
            )  # fmt: skip
        with MemoryStore.open(folder / "store") as store:
            for area, map_id, box in _AREAS:
                store.set_area(area, box=box, map_id=map_id)
            yield store, {}, store.newest_ns


def _remember(folder: Path, map_id: str, *scans: object) -> None:
    """Track scans and import the tracks into the store."""
    out = folder / map_id
    for command, arguments in (
        (perceive, ("track", *scans, "--no-pictures", "--out", out)),
        (recall, ("import", folder / "store", out / "detections.jsonl", "--map", map_id)),
    ):
        status = command([str(argument) for argument in arguments])
        if status != 0:
            raise RuntimeError(f"{arguments[0]} of {map_id} ended with status {status}")


def _write_boston(folder: Path) -> None:
    """Write the scans, poses and times of the nuScenes scene; x, y and z become metres from its start."""
    folder.mkdir()
    frames = open_data_set(data_root() / "nuscenes", split="scene-0523")
    poses: list[str] = []
    times: list[str] = []
    for number in range(len(frames)):
        frame = frames[number]
        assert frame.pose is not None
        assert frame.time_ns is not None
        if not poses:
            start_from_world = np.linalg.inv(frame.pose)
        frame.points.astype(np.float32).tofile(folder / f"{number:06d}.bin")
        poses.append(" ".join(f"{value:.6f}" for value in (start_from_world @ frame.pose)[:3].ravel()))
        times.append(f"{frame.time_ns / 1e9:.6f}")
    (folder.parent / "poses.txt").write_text("\n".join(poses) + "\n", encoding="utf-8")
    (folder.parent / "times.txt").write_text("\n".join(times) + "\n", encoding="utf-8")
