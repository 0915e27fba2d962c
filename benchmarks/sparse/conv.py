"""One sparse convolution layer: this library against spconv, spconv-triton and the dense layer.

    python -m benchmarks.sparse.conv --device cpu

Over the pillars of real scans, with and without building its table of neighbours. A dense layer has none:
with it, the time includes scattering the features into the dense canvas that it needs. A second part times a
submanifold layer alone at round numbers of active cells, on a GPU also in a CUDA graph. On a GPU tiles are
measured first, unless --quick.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.scenes import default_data, load_frames
from benchmarks.lib.timing import Side, Summary, interleave
from benchmarks.sparse import conv_sites
from perception.config import PillarConfig
from perception.model.pillars import make_pillars
from sparse_core.common.libraries import module_available
from sparse_core.conv import (
    CoordinateTable,
    SparseConv2d,
    SparseTensor,
    SubmanifoldConv2d,
    convolution_tuning,
)
from sparse_core.kernels.op import Impl

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Layer = Literal["submanifold", "strided"]
_SIDE_NAMES: dict[Impl, str] = {"reference": "gather", "triton": "triton", "vendor": "spconv"}
#: Active cells and channels of the case with the most work.
_LARGEST = (50_000, 256)


class Case(NamedTuple):
    """One block of the table.

    Attributes:
        layer: 3x3, stride 1 on the active cells, or 3x3 with stride 2.
        channels: in and out.
        dtype: name of the type of features and weights.
    """

    layer: Layer
    channels: int
    dtype: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    frames = load_frames(options.data, options.frames, seed=options.seed)
    config = PillarConfig()
    tables = [make_pillars([torch.from_numpy(p).to(device)], config).table for p in frames.points]
    notes: list[str] = []
    half = "float16" if device.type == "cuda" else "bfloat16"
    tuned = device.type == "cuda" and not options.quick
    with convolution_tuning() if tuned else nullcontext():
        rows = [
            _measure(Case(layer, channels, dtype), tables, device, options, notes)
            for layer in ("submanifold", "strided")
            for channels in options.channels
            for dtype in ("float32", half)
        ]
        site_rows = _measure_sites(tables, device, options, notes)
    settings = {
        "device": options.device,
        "frames": len(frames),
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": options.seed,
        "quick": options.quick,
        "channels": options.channels,
        "tuned": tuned,
        "grid": list(config.grid_shape),
    }
    pillars = [len(entry) for entry in tables]
    values = result(
        "conv",
        device,
        settings,
        frames={"kind": frames.kind, "names": list(frames.names), "pillars": pillars},
        cases=rows,
        sites=site_rows,
        notes=list(dict.fromkeys(notes)),
    )
    save(values, options)
    site_tables = conv_sites.report(site_rows, frames.kind)
    show(values, [*_tables(values), *site_tables], values["notes"], as_json=options.json)
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "conv")
    parser.add_argument("--data", type=Path, default=default_data(), help="KITTI folder; simulated if absent")
    parser.add_argument("--frames", type=int, help="scans to measure on (5; 2 with --quick)")
    parser.add_argument("--rounds", type=int, help="measured calls on each scan (10; 5 with --quick)")
    parser.add_argument("--channels", type=int, nargs="+", help="widths (64 128; on a GPU also 256)")
    parser.add_argument(
        "--sites", type=int, nargs="+", help="active cells of the second part (3000 6000 15000)"
    )
    options = parse(parser, arguments)
    options.largest = options.sites is None and options.device == "cuda" and not options.quick
    widest = [256] if options.device == "cuda" and not options.quick else []
    options.channels = options.channels or [64, 128, *widest]
    options.sites = options.sites or ([3000] if options.quick else [3000, 6000, 15_000])
    options.frames = options.frames or (2 if options.quick else 5)
    options.rounds = options.rounds or (5 if options.quick else 10)
    return options


def _measure_sites(
    tables: Sequence[CoordinateTable],
    device: torch.device,
    options: argparse.Namespace,
    notes: list[str],
) -> list[dict[str, Any]]:
    """The second part: half precision on a GPU, float32 on a CPU."""
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    cases = [(sites, channels) for channels in options.channels for sites in options.sites]
    if options.largest:
        cases.append(_LARGEST)
    with torch.inference_mode():
        return [
            conv_sites.measure(
                tables, sites, channels, dtype, rounds=options.rounds, seed=options.seed, notes=notes
            )
            for sites, channels in cases
        ]


def _measure(
    case: Case,
    tables: Sequence[CoordinateTable],
    device: torch.device,
    options: argparse.Namespace,
    notes: list[str],
) -> dict[str, Any]:
    samples: dict[str, list[float]] = {}
    device_samples: dict[str, list[float]] = {}
    torch.manual_seed(options.seed)
    for index, coordinates in enumerate(tables):
        with torch.inference_mode():
            sides = _sides(case, coordinates, device, notes if index == 0 else [])
            settings: dict[str, Any] = {"rounds": options.rounds, "warmup": 2, "seed": options.seed + index}
            for name, times in interleave(sides, device, **settings).items():
                samples.setdefault(name, []).extend(times)
            if device.type == "cuda":
                for name, times in interleave(sides, device, clock="device", **settings).items():
                    device_samples.setdefault(name, []).extend(times)
    row: dict[str, Any] = {
        **case._asdict(),
        "wall": {name: Summary.of(times).to_dict() for name, times in samples.items()},
    }
    if device_samples:
        row["device"] = {name: Summary.of(times).to_dict() for name, times in device_samples.items()}
    return row


def _sides(
    case: Case, coordinates: CoordinateTable, device: torch.device, notes: list[str]
) -> dict[str, Side]:
    """Return the sides to time on one scan; sides that cannot run are left out and noted."""
    dtype = _DTYPES[case.dtype]
    features = torch.relu(torch.randn(len(coordinates), case.channels, device=device)).to(dtype)
    sides: dict[str, Side] = {}
    for impl, name in _SIDE_NAMES.items():
        if impl == "triton" and not (device.type == "cuda" and module_available("triton")):
            continue
        if impl == "vendor" and not module_available("spconv"):
            notes.append("spconv is not installed: its column is left out")
            continue
        if impl == "vendor" and case.dtype == "bfloat16":
            notes.append("spconv has no bfloat16 layers: left out there")
            continue
        layer = _sparse_layer(case, impl).to(device, dtype)
        cached = SparseTensor.from_table(features, coordinates, 1)
        try:
            layer(cached)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            notes.append(f"{name}, {case.layer}, {case.dtype}: {str(error).splitlines()[0][:120]}")
            continue
        # spconv keeps the map of a strided layer to itself, so that it cannot be left out.
        if impl != "vendor" or case.layer == "submanifold":
            sides[name] = partial(layer, cached)
        sides[f"{name} + map"] = partial(_with_map, layer, features, coordinates)
    canvas = SparseTensor.from_table(features, coordinates, 1)
    dense = nn.Conv2d(case.channels, case.channels, 3, stride=_stride(case), padding=1, bias=False)
    dense = dense.to(device=device, dtype=dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
    sides["dense"] = partial(dense, canvas.to_dense(channels_last=True))
    sides["dense + canvas"] = partial(_with_canvas, dense, canvas)
    return sides


def _timed(rows: Sequence[dict[str, Any]], name: str) -> bool:
    return any(name in row["wall"] for row in rows)


def _stride(case: Case) -> int:
    return 1 if case.layer == "submanifold" else 2


def _sparse_layer(case: Case, impl: Impl) -> nn.Module:
    if case.layer == "submanifold":
        return SubmanifoldConv2d(case.channels, case.channels, 3, impl=impl).eval()
    return SparseConv2d(case.channels, case.channels, 3, stride=2, padding=1, impl=impl).eval()


def _with_map(layer: nn.Module, features: Tensor, coordinates: CoordinateTable) -> object:
    # A new tensor has an empty cache; the table is there already, the pillars come with it.
    return layer(SparseTensor.from_table(features, coordinates, 1))


def _with_canvas(layer: nn.Module, inputs: SparseTensor) -> object:
    return layer(inputs.to_dense(channels_last=True))


def _tables(values: dict[str, Any]) -> list[Any]:
    clocks = [clock for clock in ("wall", "device") if clock in values["cases"][0]]
    maps = [f"{name}{suffix}" for name in _SIDE_NAMES.values() for suffix in ("", " + map")]
    names = [name for name in [*maps, "dense", "dense + canvas"] if _timed(values["cases"], name)]
    pillars = sorted(values["frames"]["pillars"])
    title = f"3x3 layer over {pillars[0]}–{pillars[-1]} pillars ({values['frames']['kind']}), median ms"
    return [
        table(
            f"{title}, {clock} clock",
            ["layer", "channels", "type", *names],
            (
                [
                    row["layer"],
                    str(row["channels"]),
                    row["dtype"],
                    *(number(row[clock].get(name, {}).get("median_ms"), 3) for name in names),
                ]
                for row in values["cases"]
            ),
        )
        for clock in clocks
    ]


if __name__ == "__main__":
    sys.exit(main())
