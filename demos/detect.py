"""Detect objects in one scan and draw them.

A real frame where there is a data set (KITTI, say), else a scan from the simulator; then its known boxes are
drawn beside the found ones.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from perception import Boxes3D, Detector, PointCloud
from perception.data import open_data_set
from perception.visualise import draw_bev, write_html
from sparse_core.common.commands import reported_file_errors


def sample_scan(data: Path, frame_id: str) -> tuple[str, PointCloud, Boxes3D]:
    """A frame with its ground truth: name, points, boxes."""
    if data.is_dir():
        frame = open_data_set(data).frame(frame_id)
        return f"KITTI {frame_id}", frame.cloud, frame.truth
    from perception.simulate import simulate_scan

    scan = simulate_scan(seed=3)
    seen = np.flatnonzero(scan.point_counts >= 5)
    truth = Boxes3D(scan.boxes.boxes[seen], [scan.boxes.labels[row] for row in seen])
    return "simulated scan", scan.cloud, truth


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data/kitti"), help="folder of a data set, if any"
    )
    parser.add_argument("--frame", default="000010", help="KITTI frame")
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    name, cloud, truth = sample_scan(options.data, options.frame)
    detector = Detector.from_pretrained("pointpillars-kitti")
    detector(cloud)  # the first call sets up the thread pool
    started = time.perf_counter()
    detections = detector(cloud)
    elapsed_ms = (time.perf_counter() - started) * 1e3

    print(f"{name}: {len(cloud)} points, {len(detections)} objects in {elapsed_ms:.0f} ms on the CPU")
    for box, score, label in zip(detections.boxes, detections.scores, detections.labels, strict=True):
        x, y, _, length, width, height, _ = box
        print(
            f"  {label:<10} {score:.2f}  at x {x:6.1f} m, y {y:6.1f} m,"
            f" {length:.1f} x {width:.1f} x {height:.1f} m"
        )
    title = f"{name}: {len(detections)} objects"
    picture = draw_bev(options.out / "detections.png", cloud, detections, ground_truth=truth, title=title)
    page = write_html(options.out / "detections.html", cloud, detections, ground_truth=truth, title=title)
    print(f"picture: {picture}\n3D page: {page}")


if __name__ == "__main__":
    with reported_file_errors("detect"):
        main()
