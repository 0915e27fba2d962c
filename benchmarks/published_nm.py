"""Tables and sentences about 2:4 and N:M layers in the README and on the pages, made from the result files.

Each public function makes the text of one block; it is empty where its result file does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.published_text import load_result, markdown_table

_LAYERS, _ACCURACY = "nm_linear-cuda", "pruning-accuracy"
_README_ROWS = (1, 16, 32, 128, 1024, 4096, 16384, 65536)
_README_WEIGHTS = ((768, 768), (3072, 768), (1024, 4096), (4096, 4096), (11008, 4096), (4096, 14336))
_PAGE_ROWS = (1, 8, 16, 32, 128, 1024, 4096, 8192, 16384, 65536)
_ACCURACY_ROWS = {
    "dense": "dense",
    "dense, trained on": "dense, trained as long as the rows below",
    "magnitude": "magnitude",
    "Wanda": "Wanda",
    "SparseGPT": "SparseGPT",
    "permuted": "permuted, magnitude",
    "permuted, SparseGPT": "permuted, SparseGPT",
    "fixed masks": "magnitude, then trained with fixed masks",
    "SR-STE": "SR-STE",
    "SR-STE, distilled": "SR-STE, distilled",
}


def layers() -> str:
    """Speed-up over dense by weight and rows, bfloat16, for the README."""
    values = load_result(_LAYERS)
    return "" if values is None else _grid(values, "bfloat16", _README_WEIGHTS, _README_ROWS)


def layers_detail() -> str:
    """The same for every weight and type that was measured, for the page."""
    values = load_result(_LAYERS)
    if values is None:
        return ""
    parts = []
    for dtype in ("bfloat16", "float16", "int8"):
        cases = [row for row in values["cases"] if row["dtype"] == dtype and row["model"] != "odd"]
        weights = list(dict.fromkeys((row["out"], row["columns"]) for row in cases))
        counts = {row["rows"] for row in cases}
        rows = [count for count in _PAGE_ROWS if count in counts]
        parts.append(f"**{dtype}**\n\n" + _grid(values, dtype, weights, rows))
    return "\n\n".join(parts)


def odd() -> str:
    """Row counts and sizes that fit no tile."""
    values = load_result(_LAYERS)
    if values is None:
        return ""
    found = [
        row
        for row in values["cases"]
        if row["model"] == "odd" or (row["dtype"] == "bfloat16" and row["rows"] in (3, 100, 1001, 4097))
    ]
    return markdown_table(
        ["weight, out x in", "rows", "way", "dense, µs", "ours, µs", "times as fast"],
        (
            [
                f"{row['out']} x {row['columns']}",
                f"{row['rows']:,}",
                _way(row),
                _us(_median(row, "dense in a graph")),
                _us(_median(row, "ours in a graph")),
                f"{row['over_dense']['median']:.2f}",
            ]
            for row in found
        ),
    )


def bars() -> str:
    """What was aimed at and what was reached."""
    values = load_result(_LAYERS)
    if values is None:
        return ""
    found = values["bars"]
    return markdown_table(
        ["aim", "measured"],
        (
            [
                "never under 0.99 of dense (in a graph)",
                f"worst {found['worst_over_dense']:.2f} ({found['worst_case']}) of {found['cases']} cases",
            ],
            [
                "4,096 rows and more, bfloat16: geometric mean 1.4",
                f"{found['many_rows_geometric_mean']:.2f}; weights of 4096 x 4096 and larger"
                f" {found['many_rows_large_geometric_mean']:.2f}",
            ],
            [
                "3 times torch's eager 2:4 at 4096³ and smaller",
                f"least {found['over_torch_eager_least']:.1f}, geometric mean"
                f" {found['over_torch_eager_geometric_mean']:.1f}",
            ],
            [
                "16 rows and fewer, 4096 x 4096 and larger, bfloat16: 1.4",
                f"least {found['few_rows_least']:.2f}, geometric mean {found['few_rows_geometric_mean']:.2f}",
            ],
            ["prune and pack 1024 x 4096 bfloat16 in 20 µs", f"{found['prune_and_pack_us']:.1f} µs"],
        ),
    )


def eager() -> str:
    """What calls from Python cost where they, not the GPU, set the pace."""
    values = load_result(_LAYERS)
    if values is None:
        return ""
    small = [
        row["microseconds"]["ours eager"]["median"] - row["microseconds"]["dense eager"]["median"]
        for row in values["cases"]
        if row["dtype"] == "bfloat16" and row["method"] == "dense" and row["rows"] <= 1024
    ]
    middle = sorted(small)[len(small) // 2]
    return (
        f"Called eagerly, a layer costs about {middle:.0f} µs of Python on top of `nn.Linear`"
        f" (median of {len(small)} cases where both run dense; worst ratio"
        f" {values['bars']['eager_worst_over_dense']:.2f}). In a CUDA graph that is gone; the tables compare"
        " graphs."
    )


def packing() -> str:
    """Pruning and packing."""
    values = load_result(_LAYERS)
    if values is None or not values["packing"]:
        return ""
    return markdown_table(
        ["bfloat16 weight", "prune and pack, µs", "both directions, µs", "torch, both directions, µs"],
        (
            [
                f"{row['out']} x {row['columns']}",
                *(_us(side["median"]) for side in row["microseconds"].values()),
            ]
            for row in values["packing"]
        ),
    )


def accuracy() -> str:
    """Accuracy of the small models by method, for the README and the page."""
    values = load_result(_ACCURACY)
    if values is None:
        return ""
    cases = {(case["model"], case["pattern"]): case["rows"] for case in values["cases"]}
    columns = [key for key in cases if key[1] in ("2:4", "1:4")]
    rows = []
    for name, label in _ACCURACY_ROWS.items():
        if all(name in cases[key] for key in columns):
            rows.append([label, *(_score(cases[key][name]["accuracy"]) for key in columns)])
    heads = ["test accuracy, %", *(f"{model}, {pattern}" for model, pattern in columns)]
    return markdown_table(heads, rows)


def _grid(values: dict[str, Any], dtype: str, weights: Sequence[tuple[int, int]], rows: Sequence[int]) -> str:
    found = {
        (row["out"], row["columns"], row["rows"]): row
        for row in values["cases"]
        if row["dtype"] == dtype and row["model"] != "odd"
    }

    def cell(weight: tuple[int, int], count: int) -> str:
        row = found.get((*weight, count))
        if row is None:
            return ""
        return "dense" if row["method"] == "dense" else f"{row['over_dense']['median']:.2f}"

    return markdown_table(
        ["out x in", *(f"{count:,}" for count in rows)],
        (
            [f"{out} x {columns}", *(cell((out, columns), count) for count in rows)]
            for out, columns in weights
        ),
    )


def _way(row: dict[str, Any]) -> str:
    method = str(row["method"]).split(" ")[0]
    return {"dense": "dense", "cuda": "few rows", "vendor": "cuSPARSELt"}.get(method, method)


def _median(row: dict[str, Any], side: str) -> float:
    return float(row["microseconds"][side]["median"])


def _us(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _score(accuracy: dict[str, Any]) -> str:
    return f"{100 * accuracy['mean']:.1f} ± {100 * accuracy['std']:.1f}"
