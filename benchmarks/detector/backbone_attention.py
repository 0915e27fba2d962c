"""The detector with attention between cells of its coarsest sparse level, against the detector as it ships.

    python -m benchmarks.detector.backbone_attention --device cuda --seeds 3 --seconds 300
    python -m benchmarks.detector.backbone_attention --trained FOLDER  # times weights of an earlier --folder
    python -m benchmarks.detector.backbone_attention --quick           # a few steps: shows that it runs

Both sides are trained from scratch with the configuration of the shipped weights and fewer steps. They share
the seed, the frames, their order and their augmentation, and their steps are interleaved. ``--seconds``
measures a step first and takes as many as fit. Then AP on frames that neither was trained on, and what a
frame costs. The variant is ``benchmarks/detector/attended_backbone.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.detector.attended_backbone import AttendedBackbone, AttentionConfig, attended, register
from benchmarks.detector.trained_sides import PLAIN, Side, SidesRun, cases, trained
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import result, save, show
from benchmarks.lib.scenes import default_data
from benchmarks.lib.timing import Summary, interleave, paired_ratio
from benchmarks.publish.screen import tables
from perception.checkpoints.weights import load_weights
from perception.data import open_data_set
from perception.detector import Detector
from perception.errors import DataError
from perception.model.pillars import make_pillars
from perception.types import FloatArray

#: The side that is compared with the plain one.
ATTENDED = "attention"
#: Frames of the development split that are timed.
_TIMED_FRAMES = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    with contextlib.ExitStack() as stack:
        folder = options.trained or options.folder
        folder = folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = {PLAIN: Side(), ATTENDED: Side(partial(attended, attention=_attention(options)))}
        runs = SidesRun.each_seed(sides, options, folder)
        records: list[dict[str, Any]] = []
        if not options.trained:
            runs, records = trained(runs, options.seconds)
        device = torch.device(options.device)
        configure(device, options.threads)
        # A training in this process has set it.
        torch.backends.cudnn.deterministic = False
        register()
        frames, notes = _frame_times(runs[0], options, device)
    settings = asked(options, "data", "folder", "trained", "seconds") | {
        "steps": runs[0].steps if records else 0,
        "precision": runs[0].precision,
        "attention": asdict(AttentionConfig(**_attention(options))),
    }
    compared = cases(records, options.parts) if records else []
    values = result(
        "backbone_attention",
        device,
        settings,
        runs=records,
        cases=[
            {**case, "gained": case["gained"][ATTENDED]} if "gained" in case else case for case in compared
        ],
        frame=frames,
        notes=[*(_NOTES if records else ()), *notes],
    )
    save(values, options)
    show(
        values,
        tables(values, "backbone-attention", "backbone-attention-times"),
        values["notes"],
        as_json=options.json,
    )
    return 0


_NOTES = (
    "trained on the split 'train' alone, from scratch, without simulated frames, with fewer steps than the"
    " shipped weights and the same schedule over them; measured is the moving average of the weights.",
    "a spread between trainings of one side bounds what a difference between the sides can mean.",
)


def _attention(options: argparse.Namespace) -> dict[str, int]:
    """Fields of ``backbone.attention``."""
    return {name: getattr(options, name) for name in ("blocks", "heads", "window", "group")}


def _frame_times(
    run: SidesRun, options: argparse.Namespace, device: torch.device
) -> tuple[dict[str, Any], list[str]]:
    """Return milliseconds from points to boxes by side, interleaved on the same frames, and of the attention
    alone."""
    data_set = open_data_set(run.data, run.parts[0])
    clouds = [data_set[at].points for at in range(min(len(data_set), _TIMED_FRAMES))]
    detectors = {
        side: Detector(load_weights(run.weights(side)), device=device, fast=False) for side in run.sides
    }
    sides: dict[str, Callable[[], object]] = {side: _over(detectors[side], clouds) for side in run.sides}
    notes = []
    if device.type == "cuda":
        fast = Detector(load_weights(run.weights(PLAIN)), device=device, fast=True)
        fast.warmup(clouds[0])
        sides[f"{PLAIN}, one CUDA graph"] = _over(fast, clouds)
    inputs = [coarse_cells(detectors[ATTENDED], cloud) for cloud in clouds]
    attention = _attended(detectors[ATTENDED]).attention

    def alone() -> None:
        for rows, cells in inputs:
            attention(rows, cells, 1)

    sides["attention alone"] = alone
    if device.type == "cuda":
        try:
            sides["attention alone, CUDA graphs"] = _captured(alone)
        except RuntimeError as error:
            notes.append(f"attention alone could not be captured: {str(error).splitlines()[0]}")
    with torch.inference_mode():
        samples = interleave(sides, device, rounds=options.rounds, budget_s=60, seed=options.seed)
    per_frame = {name: [value / len(clouds) for value in taken] for name, taken in samples.items()}
    times = {name: Summary.of(taken).to_dict() for name, taken in per_frame.items()}
    cells = [len(rows) for rows, _ in inputs]
    return {
        "frames": len(clouds),
        "cells": {"median": int(np.median(cells)), "least": min(cells), "most": max(cells)},
        "sides": times,
        "ratio": paired_ratio(samples[ATTENDED], samples[PLAIN]),
    }, notes


def _over(detector: Detector, clouds: Sequence[FloatArray]) -> Callable[[], object]:
    return lambda: [detector(cloud) for cloud in clouds]


def _captured(work: Callable[[], None]) -> Callable[[], None]:
    """The same kernels as one CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.inference_mode(), torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        work()
    return graph.replay


def _attended(detector: Detector) -> AttendedBackbone:
    backbone = detector.network.backbone
    assert isinstance(backbone, AttendedBackbone)
    return backbone


@torch.inference_mode()
def coarse_cells(detector: Detector, cloud: FloatArray) -> tuple[Tensor, Tensor]:
    """Return the inputs of the attention for a frame: rows (N, C) and cells (N, 3)."""
    network, backbone = detector.network, _attended(detector)
    points = torch.from_numpy(cloud).to(detector.device)
    pillars = network.encoder(make_pillars([points], network.config.pillars))
    for stage in backbone.stages:
        pillars = stage(pillars)
    coarse = backbone.down(pillars)
    return coarse.features, coarse.coordinates


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "backbone_attention", quick="3 steps of a small network on few frames")
    default = AttentionConfig()
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI object folder")
    parser.add_argument(
        "--parts",
        nargs="+",
        default=["val", "train_more"],
        help="splits to evaluate on; first, and timed: val",
    )
    parser.add_argument("--config", default="pointpillars-kitti", help="training configuration of both sides")
    parser.add_argument("--steps", type=int, default=1200, help="of each training")
    parser.add_argument("--seconds", type=float, help="as many steps as both sides take so long for")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each side, all at a time")
    parser.add_argument("--batch-size", type=int, default=8, help="frames a step")
    parser.add_argument("--workers", type=int, default=4, help="processes that prepare frames, for each seed")
    parser.add_argument("--blocks", type=int, default=default.blocks, help="of attention")
    parser.add_argument("--heads", type=int, default=default.heads)
    parser.add_argument("--window", type=int, default=default.window, help="cells along a side")
    parser.add_argument("--group", type=int, default=default.group, help="cells that attend to each other")
    parser.add_argument("--rounds", type=int, default=10, help="number of measured passes through the frames")
    parser.add_argument("--folder", type=Path, help="keep weights and configurations there")
    parser.add_argument(
        "--trained", type=Path, help="folder of weights kept before: train nothing, time their frames"
    )
    options = parse(parser, arguments)
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
