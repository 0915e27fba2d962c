"""``perceive bench``: time a frame against the dense baseline and spconv."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from perception.cli.console import OUTPUT, add_command, add_device_option, add_weights_option, counted
from sparse_core.common.console import LOG, progress_bar
from sparse_core.common.machine import processor_name
from sparse_core.common.table import Column, Table, cell

if TYPE_CHECKING:
    from perception.comparison import Comparison

_SIMULATED = "simulated 64 beams"
#: Names in tables; result files have older names.
_NAMES = {"dense twin": "dense baseline"}
#: Measured runs of each stage.
_STAGE_REPEATS = 20


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "bench", run)
    parser.add_argument(
        "paths", nargs="*", type=Path, help="scan files or folders of them (default: simulated scans)"
    )
    parser.add_argument("--frames", type=_count, default=16, help="number of scans to time (default: 16)")
    parser.add_argument(
        "--rounds", type=_count, help="calls per detector and scan (default: 40 on a GPU, 3 on a CPU)"
    )
    parser.add_argument("--batch", type=_count, default=8, help="batch size for throughput (default: 8)")
    parser.add_argument("--threads", type=_count, help="PyTorch threads on a CPU (default: PyTorch's choice)")
    add_weights_option(parser)
    parser.add_argument(
        "--dense-weights",
        default="pointpillars-kitti-dense",
        help="weights of the dense baseline (default: pointpillars-kitti-dense)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON record instead of tables")
    add_device_option(parser)


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return value


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    from perception.comparison import compare, sides_for
    from perception.detector import Detector
    from perception.device import usable_device

    device = usable_device(options.device)
    # torch logs advice for programmers of torch.fx, which spconv uses.
    logging.getLogger("torch.fx").setLevel(logging.ERROR)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    rounds = options.rounds or (40 if device.type == "cuda" else 3)
    sides = sides_for(options.weights, options.dense_weights, device)
    LOG.info(
        "timing %d detectors on up to %s, %s each; a CPU takes minutes. Less: --frames 4 --rounds 1",
        len(sides),
        counted(options.frames, "scan"),
        counted(rounds, "round"),
    )
    with progress_bar() as bar:
        kind, clouds = _clouds(options, bar)
        steps = len(sides) + len(clouds) + len(clouds) // options.batch
        task = bar.add_task("timing", total=steps)
        found = compare(
            sides, clouds, device, rounds=rounds, batch_size=options.batch, on_step=lambda: bar.advance(task)
        )
    typical = sorted(clouds, key=len)[len(clouds) // 2].numpy()
    detector = Detector.from_pretrained(options.weights, device)
    # The first call grows the buffers of the CUDA graph until the scan fits.
    detector(typical)
    stages = detector.profile(typical, repeats=_STAGE_REPEATS)
    facts = {"machine": _machine(device), "scans": kind, "frames": len(clouds), "rounds": rounds}
    if options.json:
        print(json.dumps({**facts, **found.to_dict(), "stages_ms": stages}))
        return 0
    OUTPUT.print(f"{facts['machine']}; {len(clouds)} scans, {kind}", highlight=False, soft_wrap=True)
    OUTPUT.print(_table(found))
    OUTPUT.print(_stage_table(stages))
    for name, reason in found.left_out.items():
        LOG.warning("%s left out: %s", _NAMES.get(name, name), reason)
    return 0


def _clouds(options: argparse.Namespace, bar: Any) -> tuple[str, list[Tensor]]:
    """Return the kind of the scans, and the scans."""
    if options.paths:
        from perception.io import find_point_clouds, load_point_cloud

        paths = find_point_clouds(options.paths)
        step = max(1.0, len(paths) / options.frames)
        chosen = [paths[int(number * step)] for number in range(min(options.frames, len(paths)))]
        return "recorded", [torch.from_numpy(load_point_cloud(path).points.copy()) for path in chosen]
    from perception.simulate import simulate_scan

    task = bar.add_task("simulating scans", total=options.frames)
    clouds = []
    for seed in range(options.frames):
        clouds.append(torch.from_numpy(simulate_scan(seed=seed).cloud.points.copy()))
        bar.advance(task)
    return _SIMULATED, clouds


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}"
    return f"{processor_name()}, {counted(torch.get_num_threads(), 'thread')}, PyTorch {torch.__version__}"


def _table(found: Comparison) -> Table:
    columns: dict[str, Column] = {
        "": lambda side: _NAMES.get(side.name, side.name),
        "median ms": lambda side: _figure(side.p50_ms),
        "99th percentile": lambda side: _figure(side.p99_ms),
        "times sparse": lambda side: cell(found.times_sparse(side), ".2f"),
        "frames/s in a batch": lambda side: _speed(side.batch_frames_per_s),
    }
    if any(side.memory_mb is not None for side in found.sides):
        columns["memory MB"] = "memory_mb:.0f"
    return Table.of(found.sides, columns, title="A frame, points to boxes")


def _speed(per_s: float | None) -> str:
    return cell(per_s, ",.1f" if per_s is not None and per_s < 100 else ",.0f")


def _figure(value: float) -> str:
    return cell(value, ",.0f" if value >= 1e3 else ".3g")


def _stage_table(stages: dict[str, float]) -> Table:
    rows = [(name, _figure(taken)) for name, taken in {**stages, "sum": sum(stages.values())}.items()]
    return Table(("stage", "median ms"), rows, title="Stages, sparse", ends=[len(stages) - 1])
