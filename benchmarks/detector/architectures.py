"""Changes of the detector that newer ones have, against the detector as it ships: AP and time.

    python -m benchmarks.detector.architectures --device cuda --seeds 3 --seconds 300
    python -m benchmarks.detector.architectures --quick             # a few steps: shows that it runs

All sides are trained from scratch with the configuration of the shipped weights and fewer steps. They share
the seed, the frames, their order and their augmentation, and their steps are interleaved. ``--seconds``
measures a step first and takes as many as fit. Then AP on frames that none was trained on, and what a frame
costs. The sides are those of ``benchmarks/detector/architecture_sides.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.detector.architecture_sides import SIDES
from benchmarks.detector.trained_sides import PLAIN, SidesRun, cases, trained
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.scenes import default_data
from benchmarks.lib.timing import Summary, interleave, paired_ratio
from benchmarks.publish.screen import tables
from perception.checkpoints.weights import load_weights
from perception.data import open_data_set
from perception.detector import Detector
from perception.errors import DataError
from perception.types import FloatArray

#: Frames of the first part that are timed.
_TIMED_FRAMES = 8
_NOTES = (
    "trained on the split 'train' alone, from scratch, without simulated frames, with fewer steps than the"
    " shipped weights and the same schedule over them; measured is the moving average of the weights.",
    "a spread between trainings of one side bounds what a difference between the sides can mean.",
    "losses are those of the plain detector's targets on every side.",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = {name: SIDES[name] for name in options.sides}
        runs, records = trained(SidesRun.each_seed(sides, options, folder), options.seconds)
        device = torch.device(options.device)
        configure(device, options.threads)
        # A training in this process has set it.
        torch.backends.cudnn.deterministic = False
        times = _frame_times(runs[0], options, device)
    settings = asked(options, "data", "folder", "seconds") | {
        "steps": runs[0].steps,
        "precision": runs[0].precision,
    }
    values = result(
        "architectures",
        device,
        settings,
        runs=records,
        cases=cases(records, options.parts),
        frame=times,
        notes=list(_NOTES),
    )
    save(values, options)
    show(values, tables(values, "architectures", "architectures-cost"), values["notes"], as_json=options.json)
    return 0


def _frame_times(run: SidesRun, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Return milliseconds from points to boxes by side, interleaved on the same frames, as ``Detector`` runs
    each."""
    data_set = open_data_set(run.data, run.parts[0])
    clouds = [data_set[at].points for at in range(min(len(data_set), _TIMED_FRAMES))]
    calls: dict[str, Callable[[], object]] = {}
    for name in run.sides:
        detector = Detector(load_weights(run.weights(name)), device=device)
        detector.warmup(clouds[0])
        calls[name] = _over(detector, clouds)
    with torch.inference_mode():
        samples = interleave(calls, device, rounds=options.rounds, budget_s=60, seed=options.seed)
    return {
        "frames": len(clouds),
        "sides": {
            name: Summary.of([value / len(clouds) for value in taken]).to_dict()
            for name, taken in samples.items()
        },
        "ratios": {name: paired_ratio(samples[name], samples[PLAIN]) for name in calls if name != PLAIN},
    }


def _over(detector: Detector, clouds: Sequence[FloatArray]) -> Callable[[], object]:
    return lambda: [detector(cloud) for cloud in clouds]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "architectures", quick="3 steps of a small network on few frames")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI object folder")
    parser.add_argument(
        "--parts",
        nargs="+",
        default=["val", "train_more"],
        help="splits to evaluate on; first, and timed: val",
    )
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--config", default="pointpillars-kitti", help="training configuration of all sides")
    parser.add_argument("--steps", type=int, default=1200, help="of each training")
    parser.add_argument("--seconds", type=float, help="as many steps as all sides take so long for")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each side, all at a time")
    parser.add_argument("--batch-size", type=int, default=8, help="frames a step")
    parser.add_argument("--workers", type=int, default=4, help="processes that prepare frames, for each seed")
    parser.add_argument("--rounds", type=int, default=10, help="number of measured passes through the frames")
    parser.add_argument("--folder", type=Path, help="keep weights and configurations there")
    options = parse(parser, arguments)
    if PLAIN not in options.sides:
        parser.error(f"--sides: {PLAIN} must be among them: others are compared with it")
    try:
        for part in ("train", *options.parts):
            open_data_set(options.data, part)
    except DataError as error:
        parser.error(f"--data, --parts: {error}")
    if options.quick:
        options.rounds = min(options.rounds, 3)
    return options


if __name__ == "__main__":
    raise SystemExit(main())
