"""Leave one sensor out: how well a detector works on a sensor that it has not seen.

    python -m benchmarks.detector.sensors pack --out build/sensors/packed
    python -m benchmarks.detector.sensors train --packed build/sensors/packed --work build/sensors/runs \
        --out build/sensors/weights --jobs all kitti nuscenes dair-vehicle+dair-roadside --max-seconds 540
    python -m benchmarks.detector.sensors score --weights build/sensors/weights

``pack`` needs the data and the extra ``simulate``; ``train`` needs the packed files only. A job names the
sensors that its training leaves out, joined by ``+``; ``all`` leaves out none. Both sides of DAIR-V2X see the
same junction and the same cars at the same time, so a fair training leaves out both. ``nuscenes-late`` leaves
out the last ten frames of nuScenes' scene. ``score`` evaluates each training on the sensors that it left out,
and the shipped weights on all.

With ``--config perception/configs/pointpillars-ten.yaml`` for ``pack`` and ``train``, frames have ten
classes, past sweeps and velocities; ``perceive eval`` evaluates such weights.
Data: ``$SPARSIGHT_DATA``, by default ``../shared/data``, with ``kitti``, ``nuscenes`` and ``dair_v2x``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.detector.sensors.sources import (
    LATE_NUSCENES,
    SIMULATED,
    SOURCES,
    drive_frames,
    real_frames,
    simulated_frames,
)
from benchmarks.lib.environment import data_root
from perception.config import TrainConfig, load_config

_VALIDATION = "validation.txt"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    started = time.time()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=data_root())
    commands = parser.add_subparsers(dest="command", required=True)
    pack = commands.add_parser("pack", help="write small files of all training frames")
    pack.add_argument("--out", type=Path, required=True)
    train = commands.add_parser("train", help="train without some sensors, all at once")
    train.add_argument("--packed", type=Path, required=True)
    train.add_argument("--work", type=Path, required=True, help="folder of checkpoints")
    train.add_argument("--out", type=Path, required=True, help="folder for weights")
    train.add_argument("--jobs", nargs="+", default=["all"], help="sensors left out, joined by +; or all")
    train.add_argument("--steps", type=int, default=0, help="default: as many as fit")
    train.add_argument("--most", type=int, default=5500, help="largest number of steps (default: 5500)")
    train.add_argument("--probe", type=int, default=60, help="steps to measure the time of one")
    train.add_argument("--max-seconds", type=float, default=540.0)
    train.add_argument("--workers", type=int, default=3, help="processes that prepare frames, per training")
    train.add_argument("--batch-size", type=int, default=0, help="default: that of the configuration")
    train.add_argument(
        "--fine-tune",
        action="store_true",
        help="start from shipped weights that have not seen the left-out sensors",
    )
    train.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    for command in (pack, train):
        command.add_argument(
            "--config",
            type=Path,
            default=Path(__file__).with_name("recipe.yaml"),
            help="training configuration (default: recipe.yaml here, of pointpillars-anywhere)",
        )
    score = commands.add_parser("score", help="evaluate weights on sensors that they left out")
    score.add_argument("--weights", type=Path, required=True, help="folder that train wrote")
    score.add_argument(
        "--also",
        nargs="*",
        default=["pointpillars-anywhere", "pointpillars-kitti"],
        help="further weights to score on all sensors (default: the shipped ones)",
    )
    options = parser.parse_args(arguments)
    if options.command == "pack":
        _pack(options.data, options.out, load_config(TrainConfig, options.config))
    elif options.command == "train":
        _train(options, started)
    else:
        from benchmarks.detector.sensors.scores import score_all

        score_all(options.data, options.weights, options.also)
    return 0


def _pack(data: Path, out: Path, config: TrainConfig) -> None:
    """Write one file per source; existing files are kept."""
    from benchmarks.detector.sensors.archive import write_frames

    out.mkdir(parents=True, exist_ok=True)
    (out / _VALIDATION).write_text((data / "kitti/ImageSets/val.txt").read_text())
    for name in SOURCES:
        if not (path := out / f"{name}.xz").exists():
            write_frames(path, real_frames(data, name, config))
    if config.detector.pillars.sweeps > 1 and not (path := out / "drives.xz").exists():
        write_frames(path, drive_frames(data, config))
    for beams, count in SIMULATED.items():
        if not (path := out / f"simulated-{beams}.xz").exists():
            seeds = range(1000 * beams, 1000 * beams + count)
            write_frames(path, list(simulated_frames(beams, seeds, config)))


def _train(options: argparse.Namespace, started: float) -> None:
    from benchmarks.detector.sensors.training import TrainingOptions, train_all

    jobs = [() if job == "all" else tuple(job.split("+")) for job in options.jobs]
    unknown = sorted({name for job in jobs for name in job} - SOURCES.keys() - {LATE_NUSCENES})
    if unknown:
        raise SystemExit(f"unknown sensors {', '.join(unknown)}; choose from {', '.join(SOURCES)} or all")
    reports = train_all(
        jobs,
        TrainingOptions(
            packed=options.packed,
            work=options.work,
            out=options.out,
            config=options.config,
            validation=tuple((options.packed / _VALIDATION).read_text().split()),
            steps=options.steps,
            most=options.most,
            probe=options.probe,
            max_seconds=options.max_seconds,
            started=started,
            workers=options.workers,
            batch_size=options.batch_size,
            fine_tune=options.fine_tune,
            device=options.device,
        ),
    )
    for report in reports:
        print(report)


if __name__ == "__main__":
    sys.exit(main())
