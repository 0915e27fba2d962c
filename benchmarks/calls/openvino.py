"""Our frame compared with the dense PointPillars network alone in OpenVINO and ONNX Runtime."""

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
from sparse_core.conv.convolution.cpu.int8 import compiled as products

#: By the name of a precision, how many times as long OpenVINO should take as our frame.
_AIMS: dict[Precision, float] = {"float32": 5.0, "bfloat16": 4.0, "int8": 3.0}
#: What OpenVINO calls the precision of layers that are not quantised.
_HINTS: dict[Precision, str] = {"float32": "f32", "bfloat16": "bf16", "int8": "f32"}


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

    All in float32 and int8, and in bfloat16 where the CPU has it.
    """
    peers = peers_of(options.seed, folder)
    points = load_frames(options.data, 1, seed=options.seed).points[0]
    sides: dict[str, Callable[[], object]] = {}
    for name in dict.fromkeys(name for calls in peers.values() for name in calls):
        if name == "int8":
            products.PRODUCTS.ready()
        sides[f"ours, {name}"] = partial(Detector.from_pretrained(SPARSE, precision=name), points)
    for peer, calls in peers.items():
        sides |= {f"{peer}, {name}": call for name, call in calls.items()}
    alone, taken = alone_and_beside(sides, torch.device("cpu"), options)
    rows = []
    for state, samples in (("no core taken", alone), ("one core taken", taken)):
        for name, aim in _AIMS.items():
            for peer, calls in peers.items():
                if name not in calls:
                    continue
                own = samples[f"ours, {name}"]
                found = beside(f"{peer}, {name}, network alone", samples[f"{peer}, {name}"], own)
                row = timed(f"detector(points), {name}, {state}", own, **found)
                aimed = {"aim_times": aim, "met": row["times"] >= aim} if peer == "OpenVINO" else {}
                rows.append(row | aimed)
    return rows


def peers_of(seed: int, folder: Path) -> dict[str, dict[Precision, Callable[[], object]]]:
    """Return the calls of each library that is installed, by its name and the name of a precision.

    Args:
        seed: of weights and input.
        folder: for files of the network.
    """
    network = dense_part(seed)
    return {
        "OpenVINO": _peer("openvino", compiled, network, seed),
        "ONNX Runtime": _peer("onnxruntime", sessions, network, seed, folder),
    }


def _peer(
    library: str, make: Callable[..., dict[Precision, Callable[[], object]]], *given: object
) -> dict[Precision, Callable[[], object]]:
    """Return the calls of a library; none if it is not installed."""
    if importlib.util.find_spec(library) is None:
        print(f"{library}: no rows, it is not installed (pip install {library})", file=sys.stderr)
        return {}
    return make(*given)


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
    """By the name of a precision that this CPU has, a call of the network in OpenVINO, set up for latency.

    NNCF quantises it for int8, if that is installed.
    """
    from openvino import Core, convert_model

    canvas = canvas_of(seed)
    with torch.no_grad():
        model = convert_model(network, example_input=canvas)
    core = Core()
    able = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    calls: dict[Precision, Callable[[], object]] = {}
    for name, hint in _HINTS.items():
        if name == "bfloat16" and not ("BF16" in able and has_bfloat16()):
            continue
        if name == "int8":
            if importlib.util.find_spec("nncf") is None:
                print("openvino: no row for int8 (pip install nncf)", file=sys.stderr)
                continue
            import nncf

            model = nncf.quantize(model, nncf.Dataset([canvas.numpy()]), subset_size=1)
        how = {
            "INFERENCE_PRECISION_HINT": hint,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }
        calls[name] = partial(core.compile_model(model, "CPU", how), [canvas.numpy()])
    return calls


def sessions(network: DensePart, seed: int, folder: Path) -> dict[Precision, Callable[[], object]]:
    """Calls of the network in ONNX Runtime, in float32 and quantised to int8."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    canvas = canvas_of(seed)
    files: dict[Precision, Path] = {"float32": folder / "dense.onnx", "int8": folder / "dense-int8.onnx"}
    with torch.no_grad():
        torch.onnx.export(
            network, (canvas,), str(files["float32"]), input_names=["canvas"], opset_version=18, dynamo=False
        )

    class _OneCanvas(CalibrationDataReader):
        def __init__(self) -> None:
            self.left: list[dict[str, object]] = [{"canvas": canvas.numpy()}]

        def get_next(self) -> dict[str, object] | None:
            return self.left.pop() if self.left else None

    joined = folder / "joined.onnx"
    quant_pre_process(files["float32"], joined, skip_symbolic_shape=True)
    quantize_static(
        joined,
        files["int8"],
        _OneCanvas(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    calls: dict[Precision, Callable[[], object]] = {}
    for name, file in files.items():
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        calls[name] = partial(session.run, None, {"canvas": canvas.numpy()})
    return calls


def canvas_of(seed: int) -> Tensor:
    """Return a random canvas (1, 64, 496, 432); times do not depend on the values."""
    return torch.randn(1, 64, 496, 432, generator=torch.Generator().manual_seed(seed))
