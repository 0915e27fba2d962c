"""The detector from compressed files: time to load, time of a frame, memory; and 2:4 layers run sparsely.

    python -m benchmarks.detector.compression --device cpu
    python -m benchmarks.detector.compression --device cuda

Weights are unpacked when a file is loaded, so every file runs the same network and frames should take the
same time; this shows whether they do. Which weights are kept changes no time: files that are not in `--files`
are made here, pruned by magnitude. Size and average precision come from `demos/compress_detector.py`. On a
GPU layers with 2:4 kernels (Linear, and Conv2d through the rows that it multiplies) are timed against dense.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.lib.graphs import call_microseconds
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.process_memory import peak_bytes, reset_peak, resident_bytes
from benchmarks.lib.results import RESULTS, number, publish, result, save, show, table, write
from benchmarks.lib.scenes import default_data, load_frames
from benchmarks.lib.timing import Summary, interleave, paired_ratio
from perception import Detector
from perception.checkpoints.compression import (
    PATTERN,
    compress_network,
    inner_layers,
    run_every_layer,
    save_compressed_weights,
)
from perception.checkpoints.weights import load_weights
from perception.comparison.measure import reserved_bytes
from perception.model.network import Network
from sparse_core.compression import compress
from sparse_core.nm.linear import nm_linear

#: True for 2:4, and the coding of the values, by row.
ROWS = {
    "float32": (False, "float32"),
    "float16": (False, "float16"),
    "int8": (False, "int8"),
    "int4": (False, "int4/64"),
    "codebook": (False, "codebook64"),
    "2:4": (True, "float16"),
    "2:4+int8": (True, "int8"),
    "2:4+int4": (True, "int4/64"),
    "2:4+codebook": (True, "codebook64"),
}
_BASE = "float16"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    configure(device, options.threads)
    start = time.perf_counter()
    notes: list[str] = []
    frames = load_frames(options.data, options.frames, seed=options.seed)
    settings = {
        name: getattr(options, name)
        for name in ("device", "frames", "rounds", "threads", "seed", "quick", "rows")
    }
    values = result("compression", device, settings, rows={}, layers=[], notes=notes)
    notes.append(f"{frames.kind}; weights pointpillars-kitti; every frame from points to boxes on the host.")
    with tempfile.TemporaryDirectory() as folder:
        files = {name: _file(name, options.files, Path(folder)) for name in options.rows}
        print(f"[{time.perf_counter() - start:.0f} s] files", file=sys.stderr, flush=True)
        for name, file in files.items():
            values["rows"][name] = _load(file, device, options.loads)
        write(values, options.out)
        print(f"[{time.perf_counter() - start:.0f} s] loaded", file=sys.stderr, flush=True)
        _time_frames(values, files, frames.points, device, options)
    write(values, options.out)
    print(f"[{time.perf_counter() - start:.0f} s] frames", file=sys.stderr, flush=True)
    if device.type == "cuda" and not options.quick:
        left = options.budget_s - (time.perf_counter() - start) if options.budget_s else float("inf")
        values["layers"] = _time_layers(frames.points[0], device, options, left, notes)
    save(values, options)
    measured = options.files and options.files / "results.json"
    if options.publish and measured and measured.is_file():
        found = json.loads(measured.read_text(encoding="utf-8"))
        publish(result("compression-accuracy", device, **found), RESULTS / "compression-accuracy.json")
    show(values, _tables(values), notes, as_json=options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "compression", quick="two frames, few rounds, no single layers")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI folder; simulated if absent")
    parser.add_argument(
        "--files",
        type=Path,
        help="output folder of demos/compress_detector.py; --publish takes its accuracy along",
    )
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="which to time (all)")
    parser.add_argument("--frames", type=int, help="scans (5; 2 with --quick)")
    parser.add_argument("--rounds", type=int, help="times each scan is run (CPU 5, GPU 50; 2 with --quick)")
    parser.add_argument("--loads", type=int, default=5, help="times each file is loaded (5)")
    parser.add_argument("--budget-s", type=float, help="start no further layer after this long")
    options = parse(parser, arguments)
    if options.files is not None and not options.files.is_dir():
        parser.error(f"--files {options.files}: no such folder")
    options.frames = options.frames or (2 if options.quick else 5)
    options.rounds = options.rounds or (2 if options.quick else 50 if options.device == "cuda" else 5)
    return options


def _file(name: str, given: Path | None, folder: Path) -> Path:
    """The file of a row: one that is there, or one made here."""
    file_name = f"{name.replace(':', '-')}.safetensors"
    if given is not None and (given / file_name).is_file():
        return given / file_name
    pruned, coding = ROWS[name]
    network = load_weights("pointpillars-kitti").fold()
    compressed = compress_network(
        network,
        coding,
        pattern=PATTERN if pruned else None,
        dtype=torch.float32 if coding == "float32" else torch.float16,
    )
    return save_compressed_weights(compressed, network.config, folder / file_name)


def _load(file: Path, device: torch.device, repeats: int) -> dict[str, Any]:
    """Bytes of a file, and what reading and unpacking it takes; the file is in the system's cache."""
    times, peaks = [], []
    for _ in range(repeats + 1):
        _give_back()
        before = resident_bytes() if reset_peak() else None
        begin = time.perf_counter()
        network = load_weights(file).to(device)
        _wait(device)
        times.append((time.perf_counter() - begin) * 1e3)
        if before is not None:
            peaks.append((peak_bytes() - before) / 1e6)
        del network
    return {
        "file_bytes": file.stat().st_size,
        "load": Summary.of(times[1:]).to_dict(),
        "load_peak_mb": round(max(peaks), 1) if peaks else None,
    }


def _time_frames(
    values: dict[str, Any],
    files: dict[str, Path],
    points: Sequence[Any],
    device: torch.device,
    options: argparse.Namespace,
) -> None:
    detectors: dict[str, Detector] = {}
    for name, file in files.items():
        before = reserved_bytes(device)
        detectors[name] = Detector(load_weights(file), device=device)
        for cloud in points:
            detectors[name](cloud)
        values["rows"][name]["fast"] = detectors[name].fast
        if device.type == "cuda":
            values["rows"][name]["device_mb"] = round((reserved_bytes(device) - before) / 1e6, 1)
    samples: dict[str, list[float]] = {name: [] for name in files}
    for cloud in points:
        sides = {
            name: (lambda detector=detector, cloud=cloud: detector(cloud))
            for name, detector in detectors.items()
        }
        for name, times in interleave(sides, device, rounds=options.rounds, seed=options.seed).items():
            samples[name] += times
    for name, times in samples.items():
        values["rows"][name]["frame"] = Summary.of(times).to_dict()
        if _BASE in samples:
            values["rows"][name]["over_float16"] = paired_ratio(times, samples[_BASE])


def _time_layers(
    points: Any, device: torch.device, options: argparse.Namespace, left_s: float, notes: list[str]
) -> list[dict[str, Any]]:
    """Layers with 2:4 kernels in float16, dense and sparse, on inputs of the size that a frame gives them."""
    network = load_weights("pointpillars-kitti").to(device).fold().requires_grad_(False)
    shapes = _input_shapes(network, points, device)
    rows = []
    begin = time.perf_counter()
    for name, module in inner_layers(network).items():
        if not isinstance(module, nn.Linear | nn.Conv2d) or name not in shapes:
            continue
        if time.perf_counter() - begin > left_s:
            notes.append(f"left out for lack of time: {name}")
            continue
        try:
            rows.append(_time_layer(name, module, shapes[name], device, options))
        except (ValueError, RuntimeError) as error:
            notes.append(f"{name}: {str(error).splitlines()[0][:160]}")
    return rows


def _time_layer(
    name: str, module: nn.Linear | nn.Conv2d, shape: tuple[int, ...], device: torch.device, options: Any
) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(options.seed)
    x = torch.randn(shape, generator=generator, device=device).half()
    convolution = isinstance(module, nn.Conv2d)
    stored = compress(
        module.weight, PATTERN, "float16", layout="channels_last" if convolution else "rows", name=name
    )
    packed = stored.to_packed(torch.float16)
    weight, bias = stored.to_dense(torch.float16), None if module.bias is None else module.bias.half()
    if isinstance(module, nn.Conv2d):
        x = x.to(memory_format=torch.channels_last)
        weight = weight.to(memory_format=torch.channels_last)
        dense = _convolution(module, x, weight, bias)
        rows = _rows_of(module, x)
        sides: dict[str, Callable[[], object]] = {
            "dense": dense,
            "sparse": lambda: nm_linear(_rows_of(module, x), packed, bias),
            "sparse product alone": lambda: nm_linear(rows, packed, bias),
        }
        exact = dense().permute(0, 2, 3, 1).reshape(-1, module.out_channels).float()
    else:
        rows = x
        sides = {
            "dense": lambda: F.linear(x, weight, bias),
            "sparse": lambda: nm_linear(x, packed, bias),
        }
        exact = F.linear(x, weight, bias).float()
    error = float((nm_linear(rows, packed, bias).float() - exact).abs().max() / exact.abs().max())
    if error > 1e-2:
        raise ValueError(f"sparse and dense differ by {error:.3g}")
    times = call_microseconds(sides, device, rounds=options.rounds, budget_s=3.0, seed=options.seed)
    return {
        "layer": name,
        "kind": type(module).__name__,
        "weight": list(module.weight.shape),
        "rows": len(rows),
        "microseconds": {side: round(statistics.median(taken), 2) for side, taken in times.items()},
    }


def _convolution(module: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Callable[[], Tensor]:
    return lambda: F.conv2d(x, weight, bias, module.stride, module.padding)


def _rows_of(module: nn.Conv2d, x: Tensor) -> Tensor:
    """(cells, kernel height x kernel width x channels) that a convolution of stride 1 multiplies."""
    high, wide = module.kernel_size
    if (high, wide) == (1, 1):
        return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])
    padding = module.padding
    assert not isinstance(padding, str)
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, padding[1], padding[1], padding[0], padding[0]))
    taps = padded.unfold(1, high, 1).unfold(2, wide, 1).permute(0, 1, 2, 4, 5, 3)
    return taps.reshape(-1, high * wide * x.shape[1])


def _input_shapes(network: Network, points: Any, device: torch.device) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    handles = []
    for name, module in inner_layers(network).items():

        def note(module: nn.Module, inputs: tuple[Any, ...], name: str = name) -> None:
            if isinstance(inputs[0], Tensor):
                shapes.setdefault(name, tuple(inputs[0].shape))

        handles.append(module.register_forward_pre_hook(note))
    try:
        with torch.no_grad():
            run_every_layer(network, [torch.from_numpy(points).to(device)])
    finally:
        for handle in handles:
            handle.remove()
    return shapes


def _give_back() -> None:
    """Let the system have the memory that was freed, where the C library can."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _tables(values: dict[str, Any]) -> list[Any]:
    lines = []
    for name, row in values["rows"].items():
        lines.append(
            [
                name,
                f"{row['file_bytes'] / 1e6:.2f}",
                number(row["load"]["median_ms"]),
                number(row["load_peak_mb"]),
                number(row["frame"]["median_ms"], 3),
                number(row.get("over_float16", {}).get("median"), 3),
                number(row.get("device_mb")),
            ]
        )
    heads = ["weights", "MB", "load ms", "load peak MB", "frame ms", "of float16", "GPU MB"]
    built = [table("From compressed files", heads, lines)]
    if values["layers"]:
        layers = [
            [
                row["layer"],
                str(row["rows"]),
                *(
                    number(row["microseconds"].get(side))
                    for side in ("dense", "sparse", "sparse product alone")
                ),
            ]
            for row in values["layers"]
        ]
        built.append(
            table("Layers, microseconds", ["layer", "rows", "dense", "2:4", "2:4 product alone"], layers)
        )
    return built


if __name__ == "__main__":
    sys.exit(main())
