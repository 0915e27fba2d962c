"""Published blocks about 2:4 layers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.publish.text import (
    Block,
    Column,
    Table,
    Text,
    Values,
    markdown_table,
    microseconds,
    pivot,
)


def _bars(rows: Sequence[tuple[str, ...]], heads: Sequence[str], values: Values) -> str:
    """Aims in words, each with a template that is filled from the measured bars."""
    return markdown_table(
        heads, [[words, *(form.format(**values["bars"]) for form in forms)] for words, *forms in rows]
    )


_FEW = (1, 16, 32, 128, 1024, 4096, 16384, 65536)
_ROWS = (1, 8, 16, 32, 128, 1024, 4096, 8192, 16384, 65536)
_WEIGHTS = ((768, 768), (3072, 768), (1024, 4096), (4096, 4096), (11008, 4096), (4096, 14336))
_IN_GRAPH = "microseconds/{} in a graph/median"


def _layer_grid(
    values: Values, dtype: str, weights: Sequence[Any] = (), counts: Sequence[int] = _ROWS
) -> str:
    cases = [case for case in values["cases"] if case["dtype"] == dtype and case["model"] != "odd"]
    found = dict(pivot(cases, lambda c: (c["out"], c["columns"]), lambda c: c["rows"]))
    measured = {case["rows"] for case in cases}

    def over(case: Values) -> str:
        return "dense" if case["method"] == "dense" else f"{case['over_dense']['median']:.2f}"

    columns = [Column(f"{n:,}", (1, n), over) for n in counts if weights or n in measured]
    rows = [(weight, found.get(weight, {})) for weight in weights or found]
    return markdown_table(
        ["out x in", *(column.head for column in columns)],
        [[f"{row[0][0]} x {row[0][1]}", *(column.cell(row) for column in columns)] for row in rows],
    )


def _layers_detail(values: Values) -> str:
    return "\n\n".join(
        f"**{dtype}**\n\n{_layer_grid(values, dtype)}" for dtype in ("bfloat16", "float16", "int8")
    )


def _generation(case: Values) -> str:
    what = f"prefill, {case['sequences']} x {case['tokens']:,}"
    if case["case"] == "decode":
        what = f"decode, {case['sequences']} sequence{'' if case['sequences'] == 1 else 's'}"
    return f"{what}, `torch.compile`" if case["compiled"] else what


def _generated(side: str, case: Values) -> str:
    """Tokens per second and the speed-up over dense; of the dense side tokens per second alone."""
    found = case["sides"][side]
    rate = f"{found['tokens_per_second']:,.0f}"
    return rate if side == "dense" else f"{rate} ({found['speed_up']['median']:.2f})"


def _eager(values: Values) -> str:
    small = [
        case["microseconds"]["ours eager"]["median"] - case["microseconds"]["dense eager"]["median"]
        for case in values["cases"]
        if case["dtype"] == "bfloat16" and case["method"] == "dense" and case["rows"] <= 1024
    ]
    return (
        f"Called eagerly, a layer costs about {sorted(small)[len(small) // 2]:.0f} µs of Python on top of"
        " `nn.Linear`"
        f" (median of {len(small)} cases where both run dense; worst ratio"
        f" {values['bars']['eager_worst_over_dense']:.2f}). In a CUDA graph that is gone; the tables compare"
        " graphs."
    )


def _way(case: Values) -> str:
    method = str(case["method"]).split(" ")[0]
    return {"cuda": "few rows", "vendor": "cuSPARSELt"}.get(method, method)


BLOCKS: dict[str, Block] = {
    "nm-layers": Text(("nm_linear-cuda",), lambda v: _layer_grid(v, "bfloat16", _WEIGHTS, _FEW)),
    "nm-layers-detail": Text(("nm_linear-cuda",), _layers_detail),
    "nm-layers-cpu": Text(
        ("nm_linear-cpu",), lambda v: _layer_grid(v, "float32", counts=(1, 2, 4, 8, 16, 32, 128))
    ),
    "nm-odd": Table(
        "nm_linear-cuda",
        lambda values: [
            case
            for case in values["cases"]
            if case["model"] == "odd"
            or (case["dtype"] == "bfloat16" and case["rows"] in (3, 100, 1001, 4097))
        ],
        (
            Column("weight, out x in", lambda case: f"{case['out']} x {case['columns']}"),
            Column("rows", "rows", ",d"),
            Column("way", _way),
            Column("dense, µs", _IN_GRAPH.format("dense"), microseconds),
            Column("ours, µs", _IN_GRAPH.format("ours"), microseconds),
            Column("speed-up", "over_dense/median", ".2f"),
        ),
    ),
    "nm-bars": Text(
        ("nm_linear-cuda",),
        partial(
            _bars,
            (
                (
                    "never under 0.99 of dense (in a graph)",
                    "worst {worst_over_dense:.2f} ({worst_case}) of {cases} cases",
                ),
                (
                    "4,096 rows and more, bfloat16: geometric mean 1.4",
                    "{many_rows_geometric_mean:.2f}; weights of 4096 x 4096 and larger"
                    " {many_rows_large_geometric_mean:.2f}",
                ),
                (
                    "3 times torch's eager 2:4 at 4096³ and smaller",
                    "least {over_torch_eager_least:.1f}, geometric mean"
                    " {over_torch_eager_geometric_mean:.1f}",
                ),
                (
                    "16 rows and fewer, 4096 x 4096 and larger, bfloat16: 1.4",
                    "least {few_rows_least:.2f}, geometric mean {few_rows_geometric_mean:.2f}",
                ),
                ("prune and pack 1024 x 4096 bfloat16 in 20 µs", "{prune_and_pack_us:.1f} µs"),
            ),
            ("target", "measured"),
        ),
    ),
    "nm-eager": Text(("nm_linear-cuda",), _eager),
    "generation": Table(
        "generation-cuda",
        lambda values: sorted(
            values["cases"],
            key=lambda case: (not case["compiled"], case["case"] == "decode", case["sequences"]),
        ),
        (
            Column("tokens per second", _generation),
            *(
                Column(side.replace(" int8", ", int8"), partial(_generated, side))
                for side in ("dense", "2:4", "2:4 int8")
            ),
        ),
    ),
    "nm-packing": Table(
        "nm_linear-cuda",
        "packing",
        (
            Column("bfloat16 weight", lambda row: f"{row['out']} x {row['columns']}"),
            Column("prune and pack, µs", "microseconds/prune and pack/median", microseconds),
            Column("both directions, µs", "microseconds/both directions/median", microseconds),
            Column("torch, both directions, µs", "microseconds/torch, both directions/median", microseconds),
        ),
    ),
}
