"""``perceive simulate``: ray-cast LiDAR scenes with exact labels, in KITTI's layout."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from perception.cli.console import OUTPUT, add_command
from sparse_core.common.console import progress_bar


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "simulate", run)
    parser.add_argument("--out", required=True, type=Path, help="output folder, in KITTI's layout")
    parser.add_argument("--frames", type=int, default=10, help="number of frames (default: 10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first frame (default: 0)")
    parser.add_argument(
        "--beams", choices=("128", "64", "32", "16"), default="64", help="beams of the sensor (default: 64)"
    )
    parser.add_argument(
        "--sensor-height",
        metavar="M",
        help="sensor height above the ground in metres, or LOW,HIGH for a random height per frame"
        " (default: 1.73)",
    )
    parser.add_argument(
        "--classes",
        choices=("kitti", "nuscenes"),
        default="kitti",
        help="objects and class names: KITTI's cars, vans, pedestrians and cyclists, or nuScenes' ten classes"
        " (default: kitti)",
    )
    parser.add_argument(
        "--full-turn", action="store_true", help="keep and label all 360 degrees, not only the camera's view"
    )
    parser.add_argument(
        "--hold-out",
        type=int,
        default=4,
        metavar="N",
        help="list every N-th frame in val.txt instead of train.txt; 0 lists all frames in both (default: 4)",
    )


def run(options: argparse.Namespace) -> int:
    """Write the frames."""
    from perception.simulate import NUSCENES_DENSITY, SceneConfig, SensorModel, export_kitti

    if options.frames < 1:
        raise ValueError(f"--frames must be at least 1, got {options.frames}")
    if options.seed < 0:
        raise ValueError(f"--seed must be at least 0, got {options.seed}")
    sensor = None if options.beams == "64" else SensorModel.preset(options.beams)
    scene = None
    if options.classes == "nuscenes":
        scene = SceneConfig(further_per_100m=NUSCENES_DENSITY, naming="nuscenes")
    height_m = None if options.sensor_height is None else _heights(options.sensor_height)
    if options.hold_out < 0 or options.hold_out == 1:
        raise ValueError(f"--hold-out must be 0 or at least 2, got {options.hold_out}")
    with progress_bar() as bar:
        task = bar.add_task("simulating", total=options.frames)
        names = export_kitti(
            options.out,
            range(options.seed, options.seed + options.frames),
            field_of_view_only=not options.full_turn,
            scene=scene,
            sensor=sensor,
            height_m=height_m,
            hold_out=options.hold_out,
            progress=lambda done, total: bar.update(task, completed=done),
        )
    OUTPUT.print(f"{len(names)} frames in {options.out}", soft_wrap=True)
    return 0


def _heights(text: str) -> tuple[float, float]:
    """Parse one height, or the smallest and the largest."""
    try:
        low, *rest = (float(part) for part in text.split(","))
        (high,) = rest or (low,)
    except ValueError:
        raise ValueError(f"--sensor-height must be one number or LOW,HIGH in metres, got {text!r}") from None
    return low, high
