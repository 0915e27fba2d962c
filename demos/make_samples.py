"""Simulate the sample files of `perceive demo` and `recall demo`.

    python demos/make_samples.py --out out/samples     # to look at
    python demos/make_samples.py --out .               # into a checkout

`perception/assets/street.npz` contains scans of a street. `memory/assets/two-days.jsonl.gz` contains records
of `perceive track` from two drives through a small town whose cars changed overnight. Needs Open3D (extra
`simulate`).
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from drive.frames import DriveConfig, simulated_frames
from drive.town import Town, TownConfig

from perception.cli import main as perceive
from perception.data.sample import INTENSITY_STEPS, LEAST_POINTS, STEP_M
from perception.io.point_cloud import save_point_cloud
from perception.simulate import SensorModel, simulate_sequence
from sparse_core.common.commands import reported_file_errors
from sparse_core.common.files import replacing, write_file

STREET = Path("perception/assets/street.npz")
TWO_DAYS = Path("memory/assets/two-days.jsonl.gz")
STREET_SEED, SCANS, SPEED_M_S, INTERVAL_S = 3, 6, 5.0, 0.5
START_NS = round(datetime(2026, 1, 5, 9, tzinfo=UTC).timestamp()) * 10**9
TOWN = TownConfig(half_m=(30.0, 24.0), standing=4, walking=2, filled=0.6, leaves=0.2, moves=0.2)
DRIVE = DriveConfig(days=2, loops=1, step_m=2.5, stop_scans=4, seed=0)
#: Fields that differ between runs, or name temporary files.
LEFT_OUT = ("source", "elapsed_ms")


def write_street(path: Path) -> None:
    """Simulate a street and write its scans as small integers."""
    sensor = SensorModel.preset("64", azimuth_deg=(-45.0, 45.0))
    drive = simulate_sequence(STREET_SEED, SCANS, sensor=sensor, speed_m_s=SPEED_M_S, interval_s=INTERVAL_S)
    held: dict[str, list[Any]] = {}
    points, boxes = [0], [0]
    for number, scan in enumerate(drive):
        seen = np.flatnonzero(scan.point_counts >= LEAST_POINTS)
        parts = {
            "steps": np.rint(scan.cloud.points[:, :3] / STEP_M).astype(np.int16),
            "intensity": np.rint(scan.cloud.points[:, 3] * INTENSITY_STEPS).astype(np.uint8),
            "box": scan.boxes.boxes[seen],
            "label": np.array([scan.boxes.labels[row] for row in seen]),
            "track_id": scan.track_ids[seen],
            "pose": scan.world_from_lidar[None],
            "time_ns": np.array([START_NS + round(number * INTERVAL_S * 1e9)]),
        }
        for name, part in parts.items():
            held.setdefault(name, []).append(part)
        points.append(points[-1] + len(scan.cloud))
        boxes.append(boxes[-1] + len(seen))
    path.parent.mkdir(parents=True, exist_ok=True)
    joined = {name: np.concatenate(parts) for name, parts in held.items()}
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **joined, point_ends=np.array(points), box_ends=np.array(boxes))


def write_two_days(path: Path) -> None:
    """Drive, track, and write the records."""
    town = Town(TOWN, DRIVE.days, DRIVE.seed)
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for day in range(DRIVE.days):
            scans, poses = Path(scratch, f"day{day}"), Path(scratch, f"day{day}.jsonl")
            tracks = Path(scratch, f"tracks{day}")
            scans.mkdir()
            with poses.open("w") as written:
                for frame in simulated_frames(town, DRIVE, [day]):
                    save_point_cloud(scans / f"{frame.name}.bin", frame.cloud)
                    written.write(json.dumps(_pose(frame.name, frame.map_from_lidar, frame.time_ns)) + "\n")
            perceive(["track", str(scans), "--poses", str(poses), "--out", str(tracks), "--no-pictures"])
            for line in (tracks / "detections.jsonl").read_text().splitlines():
                record = json.loads(line)
                kept = {name: value for name, value in record.items() if name not in LEFT_OUT}
                lines.append(json.dumps(kept) + "\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    # No time or name in the file, so that the same records give the same bytes.
    write_file(path, gzip.compress("".join(lines).encode(), 9, mtime=0))


def _pose(name: str, pose: np.ndarray[Any, np.dtype[np.float64]], time_ns: int) -> dict[str, Any]:
    at = datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat()
    yaw = math.atan2(pose[1, 0], pose[0, 0])
    return {"frame": name, "x": pose[0, 3], "y": pose[1, 3], "z": pose[2, 3], "yaw": yaw, "time": at}


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out/samples"), help="folder (default: out/samples)")
    options = parser.parse_args()
    for write, name in ((write_street, STREET), (write_two_days, TWO_DAYS)):
        write(options.out / name)
        print(f"{options.out / name}: {(options.out / name).stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    with reported_file_errors("make_samples"):
        main()
