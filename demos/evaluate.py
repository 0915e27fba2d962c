"""KITTI average precision of the shipped detector on the validation split of a KITTI-layout folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import track

from perception import Detector
from perception.data import open_data_set
from perception.evaluate.kitti import evaluate_kitti
from perception.evaluate.kitti.judge import detections_to_objects
from perception.evaluate.reports.result import plot_result, result_tables
from sparse_core.common.commands import reported_file_errors


def main() -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/kitti"))
    parser.add_argument("--weights", default="pointpillars-kitti")
    parser.add_argument("--out", type=Path, default=Path("out/evaluate"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    detector = Detector.from_pretrained(options.weights).reporting_everything()
    frames = open_data_set(options.data, "val")
    labels, results = {}, {}
    for frame in track(frames, description="detecting", total=len(frames)):
        labels[frame.frame_id] = frame.objects
        results[frame.frame_id] = detections_to_objects(
            detector(frame.cloud), frame.calibration, frame.image_size
        )
    result = evaluate_kitti(labels, results)
    Console().print(*result_tables(result))
    print(plot_result(result, options.out / "precision_recall.png"))


if __name__ == "__main__":
    with reported_file_errors("evaluate"):
        main()
