"""Our frame compared with the dense PointPillars network alone in OpenVINO, a common choice on CPUs."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.calls.frames import SPARSE, alone_and_beside
from benchmarks.calls.rows import beside, timed
from benchmarks.lib.scenes import load_frames
from perception import Detector
from perception.config import AnchorConfig, DetectorConfig, HeadConfig, NeckConfig, PillarConfig, RefineConfig
from perception.model.anchors import AnchorNetwork
from perception.run.precision import Precision, has_bfloat16

#: By the name of a precision, what OpenVINO calls it and how many times as long it should take as our frame.
_PRECISIONS: dict[Precision, tuple[str, float]] = {"float32": ("f32", 5.0), "bfloat16": ("bf16", 4.0)}


class DensePart(nn.Module):
    """PointPillars for KITTI as its authors published it, without its encoder and what follows its maps.

    Args:
        network: with random weights: what it takes does not depend on them.
    """

    def __init__(self, network: AnchorNetwork) -> None:
        super().__init__()
        self.backbone = network.backbone
        heads = dict(network.head.named_children())
        self.heads = nn.ModuleList([heads[name] for name in ("scores", "codes", "directions")])

    def forward(self, canvas: Tensor) -> list[Tensor]:
        """(1, 64, 496, 432) float32 features of pillars to the maps of scores, codes and directions."""
        features = self.backbone(canvas)
        return [head(features) for head in self.heads]


def openvino(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Time our frame from points to boxes and their network, interleaved, on idle cores and with one core
    busy.

    Both in float32, and both in bfloat16 where the CPU has it.
    """
    if importlib.util.find_spec("openvino") is None:
        print("openvino: no rows, it is not installed (pip install openvino)", file=sys.stderr)
        return []
    points = load_frames(options.data, 1, seed=options.seed).points[0]
    sides: dict[str, Callable[[], object]] = {}
    for name, call in compiled(dense_part(options.seed), options.seed).items():
        ours = Detector.from_pretrained(SPARSE, device="cpu", precision=name)
        sides |= {f"ours, {name}": partial(ours, points), name: call}
    alone, taken = alone_and_beside(sides, torch.device("cpu"), options)
    rows = []
    for state, samples in (("no core taken", alone), ("one core taken", taken)):
        for name, (_, aim) in _PRECISIONS.items():
            if name not in sides:
                continue
            own = samples[f"ours, {name}"]
            found = beside(f"OpenVINO, {name}, network alone", samples[name], own)
            row = timed(f"detector(points), {name}, {state}", own, **found)
            rows.append(row | {"aim_times": aim, "met": row["times"] >= aim})
    return rows


def dense_part(seed: int) -> DensePart:
    """The network on KITTI's grid of 496 x 432 pillars."""
    torch.manual_seed(seed)
    sizes: dict[str, tuple[float, ...]] = {
        "Car": (3.9, 1.6, 1.56),
        "Pedestrian": (0.8, 0.6, 1.73),
        "Cyclist": (1.76, 0.6, 1.73),
    }
    config = DetectorConfig(
        name="pointpillars",
        pillars=PillarConfig(),
        backbone=AnchorConfig(),
        head=HeadConfig(classes=tuple(sizes), sizes_m=sizes),
        neck=NeckConfig(blocks=0),
        refine=RefineConfig(enabled=False),
    )
    return DensePart(AnchorNetwork(config)).eval()


def compiled(network: DensePart, seed: int) -> dict[Precision, Callable[[], object]]:
    """By the name of a precision that this CPU has, a call of the network in OpenVINO, set up for latency."""
    from openvino import Core, convert_model

    canvas = torch.randn(1, 64, 496, 432, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        model = convert_model(network, example_input=canvas)
    core = Core()
    able = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    calls: dict[Precision, Callable[[], object]] = {}
    for name, (theirs, _) in _PRECISIONS.items():
        if name == "bfloat16" and not ("BF16" in able and has_bfloat16()):
            continue
        how = {"INFERENCE_PRECISION_HINT": theirs, "PERFORMANCE_HINT": "LATENCY"}
        made = core.compile_model(model, "CPU", how)
        calls[name] = partial(made, [canvas.numpy()])
    return calls
