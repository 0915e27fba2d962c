"""2:4 linear layers against dense ones: which wins at which shape, in a CUDA graph and eagerly.

    python -m benchmarks.layers.nm_linear --device cuda
    python -m benchmarks.layers.nm_linear --device cpu       # float32, few rows, against the dense product

Layers of BERT, ViT and Llama and of this project's detector, 1 to 65,536 rows, aligned and odd, bfloat16,
float16 and int8. Four sides: the dense product of cuBLAS, torch's own 2:4 weights, ours called eagerly, and
ours in a CUDA graph (next to dense in a graph). Small row counts go round copies of the weight, so that no
side finds it in the cache. Results are compared with float64 before anything is timed.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.layers.nm_choice import chosen, way
from benchmarks.layers.nm_linear_chart import draw
from benchmarks.lib.graphs import captured, device_ms, microseconds
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import aims, result, save, show
from benchmarks.lib.timing import Side, interleave, paired_ratio
from benchmarks.publish.screen import tables
from sparse_core.nm import SparseLinear, nm_mask, prune_and_pack, prune_and_pack_both, tuning
from sparse_core.nm.linear import cpu, nm_linear
from sparse_core.nm.packing.packed_weight import PackedNM

DENSE, OURS = "dense in a graph", "ours in a graph"
DENSE_EAGER, OURS_EAGER, TORCH_EAGER = "dense eager", "ours eager", "torch 2:4 eager"
_TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.int8: 0.0}
_CACHE_BYTES = 200e6
_GRAPH_MS = 0.15


class Shape(NamedTuple):
    """A linear layer of a model.

    Attributes:
        model, layer: where it comes from.
        out, columns: of the weight.
    """

    model: str
    layer: str
    out: int
    columns: int


SHAPES = (
    Shape("BERT base", "attention", 768, 768),
    Shape("BERT base", "up", 3072, 768),
    Shape("BERT base", "down", 768, 3072),
    Shape("ViT large", "attention", 1024, 1024),
    Shape("ViT large", "up", 4096, 1024),
    Shape("ViT large", "down", 1024, 4096),
    Shape("Llama 2 7B", "attention", 4096, 4096),
    Shape("Llama 2 7B", "up", 11008, 4096),
    Shape("Llama 2 7B", "down", 4096, 11008),
    Shape("Llama 3 8B", "up", 14336, 4096),
    Shape("Llama 3 8B", "down", 4096, 14336),
    Shape("Llama 3 70B", "attention", 8192, 8192),
    Shape("Sparsight", "box head", 96, 864),
    Shape("Sparsight", "second stage", 256, 256),
)
ODD = (
    Shape("odd", "width 1000", 1000, 4096),
    Shape("odd", "depth 4100", 4096, 4100),
    Shape("odd", "17 heads of 80", 1360, 1360),
)
ROWS = (1, 8, 16, 32, 128, 1024, 4096, 8192, 16384, 65536)
ODD_ROWS = (3, 100, 1001, 4097)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    if options.draw_from:
        draw(json.loads(options.draw_from.read_text()), options.png)
        return 0
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    configure(device, options.threads)
    notes: list[str] = []
    rows = []
    with tempfile.TemporaryDirectory() as folder, tuning(folder=folder) as settings:
        start = time.perf_counter()
        for dtype, shape, counts in _cases(options):
            if options.budget_s and time.perf_counter() - start > options.budget_s:
                notes.append(f"left out after {options.budget_s:.0f} s: {dtype}, {shape.out}x{shape.columns}")
                continue
            rows += _measure_shape(dtype, shape, counts, device, options, notes)
        packing = _packing(device, options) if device.type == "cuda" else []
        if options.save_table:
            assert settings.folder is not None
            (kept,) = settings.folder.glob("*.json")
            options.save_table.write_text(kept.read_text())
    settings_used = {
        "device": options.device,
        "rounds": options.rounds,
        "threads": options.threads,
        "seed": options.seed,
        "quick": options.quick,
    }
    notes.append(
        "'ours' is a SparseLinear that was tuned before: 'method' is what it chose. Rows up to 1,024 go round"
        " copies of the weight of 200 MB together, more rows round two."
    )
    values = result(
        "nm_linear",
        device,
        settings_used,
        cases=rows,
        packing=packing,
        bars=bars(rows, packing),
        notes=list(dict.fromkeys(notes)),
    )
    save(values, options)
    if options.png:
        draw(values, options.png)
    show(
        values,
        [*tables(values, "nm-layers-detail", "nm-layers-cpu", "nm-odd", "nm-packing"), *aims(values)],
        values["notes"],
        as_json=options.json,
    )
    return 0 if all(row["agrees"] for row in rows) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "nm_linear", quick="few shapes, rows and rounds")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (15; 3 with --quick)")
    parser.add_argument("--png", type=Path, help="draw the curves")
    parser.add_argument("--budget-s", type=float, help="start no further weight after this long")
    parser.add_argument("--save-table", type=Path, help="keep the choices that were measured")
    parser.add_argument("--draw-from", type=Path, help="only draw this result file (needs --png)")
    options = parse(parser, arguments)
    if options.draw_from and not options.png:
        parser.error("--draw-from needs --png")
    options.rounds = options.rounds or (3 if options.quick else 15)
    return options


def _cases(options: argparse.Namespace) -> list[tuple[torch.dtype, Shape, tuple[int, ...]]]:
    if options.device == "cpu":
        if options.quick:
            return [(torch.float32, SHAPES[0], (1, 64)), (torch.bfloat16, SHAPES[0], (64,))]
        shapes = (SHAPES[0], SHAPES[3], SHAPES[6], SHAPES[7], SHAPES[8])
        return [(torch.float32, shape, (1, 2, 4, 8, 16, 32, 128)) for shape in shapes]
    if options.quick:
        return [(torch.bfloat16, SHAPES[3], (1, 16, 4096)), (torch.int8, SHAPES[3], (4096,))]
    found: list[tuple[torch.dtype, Shape, tuple[int, ...]]] = []
    for shape in SHAPES:
        most = 16384 if shape.out * shape.columns > 6e7 else 65536
        found.append((torch.bfloat16, shape, tuple(count for count in ROWS if count <= most)))
    for shape in (SHAPES[1], SHAPES[6], SHAPES[9]):
        found.append((torch.bfloat16, shape, ODD_ROWS))
    for shape in ODD:
        found.append((torch.bfloat16, shape, (1, 16, 1001, 4096)))
    for shape in (SHAPES[2], SHAPES[5], SHAPES[6], SHAPES[10]):
        found.append((torch.float16, shape, (1, 16, 1024, 4096, 16384)))
        found.append((torch.int8, shape, (32, 1024, 4096, 16384)))
    return found


def _measure_shape(
    dtype: torch.dtype,
    shape: Shape,
    counts: tuple[int, ...],
    device: torch.device,
    options: argparse.Namespace,
    notes: list[str],
) -> list[dict[str, Any]]:
    """All row counts of one weight; few rows go round enough copies to find nothing in the cache."""
    itemsize = dtype.itemsize
    copies = max(2, min(32, math.ceil(_CACHE_BYTES / (shape.out * shape.columns * itemsize))))
    weights = [_Weights(dtype, shape, device, options.seed + index) for index in range(copies)]
    rows = []
    for count in counts:
        used = weights if count <= 1024 else weights[:2]
        rows.append(_measure(dtype, shape, count, used, device, options, notes))
        print(_progress(rows[-1]), file=sys.stderr, flush=True)
    del weights
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return rows


class _Weights:
    """One weight in the forms of all sides.

    Attributes:
        dense: (out, columns), pruned.
        ours: calls our product.
        plain: calls the dense product.
        torch: calls torch's 2:4 product, or ``None`` where torch refuses.
    """

    def __init__(self, dtype: torch.dtype, shape: Shape, device: torch.device, seed: int) -> None:
        generator = torch.Generator(device=device).manual_seed(seed)
        weight = torch.randn(shape.out, shape.columns, device=device, generator=generator)
        self.refusal = ""
        if dtype == torch.int8:
            self._int8(weight)
            return
        linear = nn.Linear(shape.columns, shape.out, device="meta")
        linear.weight = nn.Parameter((weight / math.sqrt(shape.columns)).to(dtype), requires_grad=False)
        bias = torch.randn(shape.out, device=device, generator=generator).to(dtype)
        linear.bias = nn.Parameter(bias, requires_grad=False)
        layer = SparseLinear.from_dense(linear)
        self.dense = layer.packed.to_dense()
        self.packed: PackedNM = layer.packed
        self.bias: Tensor | None = bias
        dense = self.dense
        self.ours: Callable[[Tensor], Tensor] = layer
        self.plain: Callable[[Tensor], Tensor] = lambda x: nn.functional.linear(x, dense, bias)
        self.torch = self._torch(dense, bias)

    def _int8(self, weight: Tensor) -> None:
        largest = weight.abs().amax(dim=1, keepdim=True)
        packed = PackedNM.from_dense((weight / largest * 127).round(), mask=nm_mask(weight, 2, 4)).to(
            torch.int8
        )
        dense = packed.to_dense()
        self.dense, self.packed, self.bias = dense, packed, None
        self.ours = lambda x: nm_linear(x, packed, dense=dense)
        transposed = dense.T
        self.plain = lambda x: torch._int_mm(x, transposed)
        self.torch = None

    def _torch(self, dense: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor] | None:
        if not dense.is_cuda:
            return None
        try:
            sparse = torch.sparse.to_sparse_semi_structured(dense)
            nn.functional.linear(
                torch.zeros(64, dense.shape[1], dtype=dense.dtype, device=dense.device), sparse, bias
            )
        except (RuntimeError, NotImplementedError) as error:
            self.refusal = str(error).splitlines()[0][:150]
            return None
        return lambda x: nn.functional.linear(x, sparse, bias)


@torch.no_grad()
def _measure(
    dtype: torch.dtype,
    shape: Shape,
    rows: int,
    weights: list[_Weights],
    device: torch.device,
    options: argparse.Namespace,
    notes: list[str],
) -> dict[str, Any]:
    generator = torch.Generator(device=device).manual_seed(options.seed)
    if dtype == torch.int8:
        x = torch.randint(-127, 128, (rows, shape.columns), dtype=dtype, device=device, generator=generator)
    else:
        x = torch.randn(rows, shape.columns, device=device, generator=generator).to(dtype)
    start = time.perf_counter()
    y = weights[0].ours(x)
    if device.type == "cuda":
        torch.cuda.synchronize()
    tuning_ms = (time.perf_counter() - start) * 1e3
    error = _error(y, x, weights[0])
    del y
    if weights[0].refusal:
        notes.append(f"torch 2:4, {shape.out}x{shape.columns}: {weights[0].refusal}")
    sides, calls = _sides(x, weights, device)
    samples = (
        interleave(
            sides, device, rounds=options.rounds, warmup=2, budget_s=1.5, clock="wall", seed=options.seed
        )
        if device.type == "cpu"
        else _interleave_gpu(sides, device, options)
    )
    per_call = {name: [value * 1e3 / calls for value in times] for name, times in samples.items()}
    ours, dense = (OURS, DENSE) if device.type == "cuda" else (OURS_EAGER, DENSE_EAGER)
    return {
        **shape._asdict(),
        "dtype": str(dtype).removeprefix("torch."),
        "rows": rows,
        "method": _method(weights[0], rows, device),
        "tuning_ms": round(tuning_ms, 1),
        "error": round(error, 6),
        "agrees": error <= _TOLERANCE.get(dtype, 1e-5),
        "microseconds": {name: microseconds(times) for name, times in per_call.items()},
        "over_dense": paired_ratio(per_call[dense], per_call[ours]),
        "eager_over_dense": paired_ratio(per_call[DENSE_EAGER], per_call[OURS_EAGER]),
        "eager_over_torch": (
            paired_ratio(per_call[TORCH_EAGER], per_call[OURS_EAGER]) if TORCH_EAGER in per_call else None
        ),
    }


def _interleave_gpu(
    sides: dict[str, Side], device: torch.device, options: argparse.Namespace
) -> dict[str, list[float]]:
    graphs = {name: side for name, side in sides.items() if name in (DENSE, OURS)}
    eager = {name: side for name, side in sides.items() if name not in graphs}
    found = interleave(
        graphs, device, rounds=options.rounds, warmup=2, budget_s=1.0, clock="device", seed=options.seed
    )
    found.update(
        interleave(
            eager, device, rounds=options.rounds, warmup=2, budget_s=0.7, clock="wall", seed=options.seed
        )
    )
    return found


def _sides(x: Tensor, weights: list[_Weights], device: torch.device) -> tuple[dict[str, Side], int]:
    """Return the sides to time, each with the same number of calls, and that number."""
    forms = {DENSE_EAGER: [entry.plain for entry in weights], OURS_EAGER: [entry.ours for entry in weights]}
    with_torch = [entry.torch for entry in weights if entry.torch is not None]
    if with_torch:
        forms[TORCH_EAGER] = with_torch
    if device.type == "cpu":
        calls = len(weights)
        return {name: _loop(entries, x, calls) for name, entries in forms.items()}, calls
    calls = max(1, min(40, math.ceil(_GRAPH_MS / device_ms(lambda: weights[0].plain(x)))))
    calls = max(calls, 2)
    sides: dict[str, Side] = {name: _loop(entries, x, calls) for name, entries in forms.items()}
    for name, entries in ((DENSE, forms[DENSE_EAGER]), (OURS, forms[OURS_EAGER])):
        sides[name] = captured(_loop(entries, x, calls))
    return sides, calls


def _loop(calls: list[Callable[[Tensor], Tensor]], x: Tensor, count: int) -> Side:
    def run() -> None:
        for index in range(count):
            calls[index % len(calls)](x)

    return run


def _method(weights: _Weights, rows: int, device: torch.device) -> str:
    if device.type != "cuda":
        few = rows <= cpu.most_rows(None) and weights.packed.dtype == torch.float32 and cpu.why_not() is None
        return "cpu" if few else "unpacked"
    found = chosen(weights.packed, rows, bias=weights.bias is not None)
    return "unknown" if found is None else way(found)


def _error(y: Tensor, x: Tensor, weights: _Weights) -> float:
    """Largest difference from float64 on some rows, relative to the largest number."""
    some = torch.linspace(0, x.shape[0] - 1, min(64, x.shape[0]), device=x.device).long()
    exact = x[some].double() @ weights.dense.double().T
    if weights.bias is not None:
        exact = exact + weights.bias.double()
    return float((y[some].double() - exact).abs().max() / exact.abs().max())


def _packing(device: torch.device, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Pruning and packing in a CUDA graph: ours one way and both ways, and torch's kernel for both ways."""
    rows = []
    for out, columns in ((1024, 4096), (4096, 4096), (4096, 14336)):
        weight = torch.randn(out, columns, device=device, dtype=torch.bfloat16)

        def torch_both(weight: Tensor = weight) -> object:
            return torch._sparse_semi_structured_tile(weight, use_cutlass=False)

        forms: dict[str, Side] = {
            "prune and pack": lambda weight=weight: prune_and_pack(weight),  # type: ignore[misc]
            "both directions": lambda weight=weight: prune_and_pack_both(weight),  # type: ignore[misc]
            "torch, both directions": torch_both,
        }
        sides: dict[str, Side] = {}
        calls = 10
        for name, form in forms.items():
            form()
            sides[name] = captured(_loop([lambda _, form=form: form()], weight, calls))  # type: ignore[misc]
        samples = interleave(
            sides, device, rounds=options.rounds, warmup=2, clock="device", seed=options.seed
        )
        rows.append(
            {
                "out": out,
                "columns": columns,
                "microseconds": {
                    name: microseconds([value * 1e3 / calls for value in times])
                    for name, times in samples.items()
                },
            }
        )
    return rows


def bars(rows: Sequence[dict[str, Any]], packing: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures that this project set itself as aims, from the cases.

    Args:
        rows: measured cases.
        packing: measured packings.

    Returns:
        Each figure with its number of cases; ``None`` where there are none.
    """
    bf16 = [row for row in rows if row["dtype"] == "bfloat16"]

    def over(chosen: Sequence[dict[str, Any]], field: str = "over_dense") -> list[float]:
        return [row[field]["median"] for row in chosen if row[field] is not None]

    def mean(values: Sequence[float]) -> float | None:
        return round(math.exp(sum(map(math.log, values)) / len(values)), 3) if values else None

    many = [row for row in bf16 if row["rows"] >= 4096]
    few = [row for row in bf16 if row["rows"] <= 16 and row["out"] >= 4096 and row["columns"] >= 4096]
    against_torch = [row for row in bf16 if max(row["rows"], row["out"], row["columns"]) <= 4096]
    worst = min(rows, key=lambda row: row["over_dense"]["median"], default=None)
    pack = next((row for row in packing if (row["out"], row["columns"]) == (1024, 4096)), None)
    return {
        "cases": len(rows),
        "worst_over_dense": None if worst is None else worst["over_dense"]["median"],
        "worst_case": None if worst is None else f"{worst['rows']} x {worst['columns']} -> {worst['out']}",
        "many_rows_geometric_mean": mean(over(many)),
        "many_rows_large_geometric_mean": mean(
            over([row for row in many if row["out"] >= 4096 and row["columns"] >= 4096])
        ),
        "few_rows_least": min(over(few), default=None),
        "few_rows_geometric_mean": mean(over(few)),
        "over_torch_eager_least": min(over(against_torch, "eager_over_torch"), default=None),
        "over_torch_eager_geometric_mean": mean(over(against_torch, "eager_over_torch")),
        "eager_worst_over_dense": min(over(rows, "eager_over_dense"), default=None),
        "prune_and_pack_us": None if pack is None else pack["microseconds"]["prune and pack"]["median"],
    }


def _progress(row: dict[str, Any]) -> str:
    return (
        f"{row['dtype']} {row['rows']} x {row['columns']} -> {row['out']}: {row['method']},"
        f" {row['over_dense']['median']}x dense"
    )


if __name__ == "__main__":
    sys.exit(main())
