"""One submanifold layer alone at given numbers of active cells, with and without building its map.

Cells are those of real scans: the pillars of frame after frame, each a grid of the batch, cut at the number
asked for. Every side reads the same cells, features and weights, and its result is compared with that of the
gather before anything is timed.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.lib.graphs import call_microseconds, microseconds
from benchmarks.lib.results import number, table
from benchmarks.lib.timing import Side, interleave
from sparse_core.common.libraries import module_available
from sparse_core.common.table import Table
from sparse_core.conv import (
    CoordinateTable,
    SparseTensor,
    build_table,
    fixed_convolution,
    pack_weight,
    sparse_convolution,
)
from sparse_core.conv.grid import grid_from_cells, linear_cells, neighbour_table
from sparse_core.kernels.op import Impl

#: Spare rows of the capacity that the fixed side is given.
HEADROOM = 1.25
_KERNEL, _STRIDE, _PADDING = (3, 3), (1, 1), (1, 1)
#: Largest difference from the gather, relative to the largest value.
_AGREEMENT = {torch.float16: 1e-2, torch.float32: 1e-2}
SIDES = ("ours, graph", "ours, eager", "gather", "spconv", "spconv-triton")


class Layer(NamedTuple):
    """Inputs that all sides share.

    Attributes:
        coordinates: (M, 3) int32 ``(batch, iy, ix)`` in key order.
        spatial_shape, batch_size: of the grids.
        features: (M, C).
        weight: (C, 3, 3, C).
    """

    coordinates: Tensor
    spatial_shape: tuple[int, ...]
    batch_size: int
    features: Tensor
    weight: Tensor


def cells_of(tables: Sequence[CoordinateTable], sites: int) -> tuple[Tensor, int]:
    """(sites, 3) int32 cells of scan after scan in key order, and how many grids they fill."""
    parts: list[Tensor] = []
    total = 0
    while total < sites:
        found = tables[len(parts) % len(tables)].coordinates.clone()[: sites - total]
        found[:, 0] = len(parts)
        parts.append(found)
        total += len(found)
    return torch.cat(parts), len(parts)


def measure(
    tables: Sequence[CoordinateTable],
    sites: int,
    channels: int,
    dtype: torch.dtype,
    *,
    rounds: int,
    seed: int,
    notes: list[str],
) -> dict[str, Any]:
    """One row of the result: pairs, and microseconds and TFLOP/s by side."""
    device = tables[0].coordinates.device
    coordinates, grids = cells_of(tables, sites)
    generator = torch.Generator().manual_seed(seed)
    layer = Layer(
        coordinates,
        tables[0].spatial_shape,
        grids,
        torch.relu(torch.randn(sites, channels, generator=generator)).to(device, dtype),
        (torch.randn(channels, 3, 3, channels, generator=generator) / (9 * channels) ** 0.5).to(
            device, dtype
        ),
    )
    inputs = _inputs(layer)
    pairs = inputs.submanifold_table(_KERNEL).pairs
    expected = sparse_convolution(
        layer.features, layer.weight, inputs.submanifold_table(_KERNEL), impl="reference"
    ).float()
    sides, eager = _sides(layer, expected, notes)
    times = call_microseconds(sides, device, rounds=rounds, budget_s=60, seed=seed, eager=eager)
    row: dict[str, Any] = {
        "sites": sites,
        "grids": grids,
        "channels": channels,
        "dtype": str(dtype).removeprefix("torch."),
        "pairs": pairs,
        "gflop": round(2e-9 * pairs * channels * channels, 3),
        "device_us": {name: microseconds(samples) for name, samples in times.items()},
    }
    # Operations in a microsecond are millions in a second.
    row["tflops"] = {
        name: round(2e-6 * pairs * channels * channels / entry["median"], 3)
        for name, entry in row["device_us"].items()
    }
    if device.type == "cuda":
        wall = interleave({name: sides[name] for name in eager}, device, rounds=rounds, seed=seed)
        row["wall_us"] = {
            name: microseconds([value * 1e3 for value in samples]) for name, samples in wall.items()
        }
    return row


def _inputs(layer: Layer) -> SparseTensor:
    """A sparse tensor with an empty cache; its table of cells comes with it, as after making pillars."""
    coordinates = build_table(layer.coordinates, layer.spatial_shape)
    return SparseTensor.from_table(layer.features, coordinates, layer.batch_size)


def _sides(layer: Layer, expected: Tensor, notes: list[str]) -> tuple[dict[str, Side], list[str]]:
    """Sides by name, and those that cannot be captured in a graph."""
    sides: dict[str, Side] = {}
    makers: dict[str, Callable[[Layer], dict[str, Side]]] = {
        "ours, graph": _graph_sides,
        "ours, eager": lambda given: _eager_sides(given, "ours, eager", "triton"),
        "gather": lambda given: _eager_sides(given, "gather", "reference"),
        "spconv": lambda given: _spconv_sides(given, "spconv", "spconv"),
        "spconv-triton": lambda given: _spconv_sides(given, "spconv-triton", "spconv_triton"),
    }
    if not layer.features.is_cuda:
        for name in ("ours, graph", "ours, eager", "spconv-triton"):
            del makers[name]
    for name, make in makers.items():
        module = name.replace("-", "_")
        if name.startswith("spconv") and not module_available(module):
            notes.append(f"{name} is not installed: its columns are left out")
            continue
        # An opponent may fail in its own way on a GPU it does not know; the others are measured all the same.
        try:
            made = make(layer)
            for key, run in made.items():
                found = run()
                assert isinstance(found, Tensor)
                gap = float((found[: len(expected)].float() - expected).abs().max() / expected.abs().max())
                if not gap <= _AGREEMENT[layer.features.dtype]:
                    raise RuntimeError(f"{key} differs from the gather by {gap:.2g} of the largest value")
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            notes.append(f"{name}, {len(expected)} sites: {type(error).__name__}: {first[:120]}")
            continue
        sides.update(made)
    return sides, [name for name in sides if not name.startswith("ours, graph")]


def _graph_sides(layer: Layer) -> dict[str, Side]:
    capacity = math.ceil(HEADROOM * len(layer.features))
    cells = linear_cells(layer.coordinates, layer.spatial_shape)
    features = layer.features.new_zeros(capacity, layer.features.shape[1])
    features[: len(layer.features)] = layer.features
    weight = pack_weight(layer.weight)

    def grid_and_map() -> tuple[Tensor, Tensor]:
        grid = grid_from_cells(cells, layer.spatial_shape, layer.batch_size, capacity)
        return neighbour_table(grid, grid, _KERNEL, _STRIDE, _PADDING), grid.count

    def with_map() -> Tensor:
        return fixed_convolution(features, weight, *grid_and_map())

    neighbours, count = grid_and_map()
    return {
        "ours, graph": lambda: fixed_convolution(features, weight, neighbours, count),
        "ours, graph + map": with_map,
    }


def _eager_sides(layer: Layer, name: str, impl: Impl) -> dict[str, Side]:
    inputs = _inputs(layer)
    neighbours = inputs.submanifold_table(_KERNEL)
    coordinates = inputs.table()

    def with_map() -> Tensor:
        fresh = SparseTensor.from_table(layer.features, coordinates, layer.batch_size)
        return sparse_convolution(layer.features, layer.weight, fresh.submanifold_table(_KERNEL), impl=impl)

    return {
        name: lambda: sparse_convolution(layer.features, layer.weight, neighbours, impl=impl),
        f"{name} + map": with_map,
    }


def _spconv_sides(layer: Layer, name: str, package: str) -> dict[str, Side]:
    """spconv, or a library with its interface."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = importlib.import_module(f"{package}.pytorch")
        algorithms = importlib.import_module(f"{package}.core").ConvAlgo
    channels = layer.features.shape[1]
    options = {} if layer.features.is_cuda else {"algo": algorithms.Native}
    module = library.SubMConv2d(channels, channels, 3, padding=1, bias=False, indice_key="map", **options)
    module.weight = torch.nn.Parameter(layer.weight, requires_grad=False)
    module.eval()
    coordinates = layer.coordinates.int().contiguous()
    maps: dict[str, Any] = {}

    def run(kept: dict[str, Any]) -> Tensor:
        cells = library.SparseConvTensor(
            layer.features, coordinates, list(layer.spatial_shape), layer.batch_size
        )
        cells.indice_dict = kept
        features = module(cells).features
        assert isinstance(features, Tensor)
        return features

    return {name: lambda: run(maps), f"{name} + map": lambda: run({})}


def report(rows: Sequence[dict[str, Any]], kind: str) -> list[Table]:
    """Tables of microseconds and of TFLOP/s."""
    names = [f"{side}{suffix}" for side in SIDES for suffix in ("", " + map")]
    names = [name for name in names if any(name in row["device_us"] for row in rows)]
    first = ["sites", "channels", "type", "pairs"]

    def lead(row: dict[str, Any]) -> list[str]:
        return [str(row["sites"]), str(row["channels"]), row["dtype"], str(row["pairs"])]

    built = [
        table(
            f"3x3 submanifold layer alone ({kind}), median µs",
            [*first, *names],
            (
                [*lead(row), *(number(row["device_us"].get(name, {}).get("median"), 1) for name in names)]
                for row in rows
            ),
        )
    ]
    built.append(
        table(
            "the same in TFLOP/s of the pairs",
            [*first, *names],
            ([*lead(row), *(number(row["tflops"].get(name), 2) for name in names)] for row in rows),
        )
    )
    return built
