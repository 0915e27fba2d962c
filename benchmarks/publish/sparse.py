"""Published blocks about sparse matrices: formats, products, assembly, solvers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.publish.text import (
    Column,
    Table,
    Text,
    Values,
    count,
    distinct,
    listed,
    markdown_table,
    milliseconds,
    percent,
    pivot,
    power,
    times,
)
from sparse_core.formats.choice.thresholds import THRESHOLDS

_MEDIAN_MS = "time/median_ms"


def _median(side: Values) -> float:
    return float(side["time"]["median_ms"])


def _matrix(case: Values) -> str:
    return re.sub(r"(?<=\d)%", " %", case["name"])


def _stencils(values: Values) -> list[Values]:
    return [case for case in values["cases"] if "points" in case["name"]]


def _spmv_summary(values: Values) -> list[list[str]]:
    names = ("CSR", "chosen format", "CompactCSR")
    mean, worst = (
        [times(values["summary"][f"{name} over torch CSR"][field]) for name in names]
        for field in ("geometric_mean", "worst")
    )
    return [["**geometric mean**", "", mean[0], f"**{mean[1]}**", mean[2], ""], ["worst", "", *worst, ""]]


def _spmv_losses(values: Values, table: str) -> str:
    chosen, compact = (
        [
            f"{_matrix(c)} ({times(s)})"
            for c in values["cases"]
            if (s := c["sides"][side]["speedup"]["median"]) < 0.98
        ]
        for side in ("chosen", "CompactCSR")
    )
    text = f"The chosen format loses {f'on {listed(chosen)}' if chosen else 'nowhere'}. "
    text += "CompactCSR holds float16 values and 16-bit column gaps and is never chosen automatically"
    lost = f"; it loses on {len(compact)} of {len(values['cases'])} matrices." if compact else "."
    return f"{table}\n\n{text}{lost}"


_KERNELS = (
    "torch CSR",
    "CSR scalar",
    "CSR vector",
    "CSR adaptive",
    "CSR merge",
    "CSR pattern",
    "ELL",
    "SlicedELL",
    "CompactCSR",
    "BSR 64",
    "dense",
)


def _kernel(name: str, case: Values) -> str | None:
    found = {kernel: _median(side) for kernel, side in case["sides"].items() if kernel in _KERNELS}
    if name not in found:
        return None
    text = milliseconds(found[name])
    return f"**{text}**" if name == min(found, key=found.__getitem__) else text


def _as_plain(side: str, case: Values) -> float:
    """Share of the copy's bandwidth, had it read the bytes of plain CSR."""
    plain = case["sides"]["torch CSR"]["bytes"] / 1e6
    return float(plain / _median(case["sides"][side]) / case["copy_gb_s"])


def _break_even(entry: Values) -> str:
    if entry["sparsity"] is None:
        return "never"
    return ("below " if entry["found"] == "below" else "") + percent(entry["sparsity"])


def _block_columns(values: Values) -> list[Column]:
    settings, even = values["settings"], values["break_even"]
    head = f"{settings['size']}² times {settings['size']} x {settings['columns']}, {settings['dtype']}"
    shares = sorted(distinct(values["cases"], "sparsity"))
    cells = [Column(f"{percent(s)} zero", (1, s, "over", "dense", "median"), times) for s in shares]
    return [
        Column(head, (0,), "{0} x {0}"),
        *cells,
        Column("break-even", lambda r: even[str(r[0])], _break_even),
    ]


def _block_torch(values: Values, table: str) -> str:
    found = [case["over"]["torch BSR"]["median"] for case in values["cases"] if "torch BSR" in case["over"]]
    over = f"\n\nOver torch's own BSR product: {times(min(found))} to {times(max(found))} x." if found else ""
    return table + over


def _assembled(case: Values) -> str:
    over = times(case["over"]["ours"]["torch"]["median"])
    return f"{milliseconds(case['time']['ours']['median_ms'])} ms, {over} x"


def _assembly_rows(values: Values) -> list[Any]:
    cases = sorted(values["cases"], key=lambda case: (-case["entries"], case["order"] == "sorted"))
    return pivot(cases, lambda c: f"{count(c['entries'])}, {c['order']}", lambda c: c["duplicates"])


def _solver_columns(values: Values) -> list[Column]:
    settings = values["settings"]
    return [
        Column(f"Poisson {settings['grid']}³, {settings['dtype']}, to {power(settings['rtol'])}", "name"),
        Column("iterations", "iterations"),
        Column("setup, ms", "setup_ms", milliseconds),
        Column("solve, ms", _MEDIAN_MS, milliseconds),
        Column("speed-up over none", "over_plain/median", times),
    ]


def _solvers_missed(values: Values, table: str) -> str:
    missed = [f"{case['name']} ({power(case['residual'])})" for case in values["cases"] if not case["agrees"]]
    return table + (
        f"\n\nEnded with a true relative residual above the tolerance: {listed(missed)}." if missed else ""
    )


def _solver_aim(values: Values) -> str:
    plain = next(case for case in values["cases"] if case["name"] == "none")
    faster = [c for c in values["cases"] if c["setup_ms"] is not None and _median(c) < _median(plain)]
    whole = [c for c in faster if _median(c) + c["setup_ms"] < _median(plain)]

    def told(cases: list[Values]) -> str:
        return listed(
            f"{c['name']} ({c['iterations']} iterations, {milliseconds(_median(c))} ms)" for c in cases
        )

    return (
        f"Plain CG takes {plain['iterations']} iterations and {milliseconds(_median(plain))} ms. "
        + (f"Faster once set up: {told(faster)}. " if faster else "No preconditioner is faster. ")
        + (f"Setup included: {told(whole)}." if whole else "Setup included, none is;")
        + ("" if whole else " it pays off over several right-hand sides.")
    )


def _product(values: Values, operation: str) -> str:
    return "vector" if operation == "spmv" else f"{values['settings']['columns']} columns"


def _formats(cuda: Values, cpu: Values | None) -> str:
    rows = [
        [
            f"{label}, {_product(values, operation)}",
            "`choose_format`" if rule == "ours" else "classic tree",
            times(entry["geometric_mean"]),
            f"{times(entry['worst'])} ({entry['worst_case']})",
            f"{entry['fastest_in']} of {entry['cases']}",
        ]
        for label, values in (("GPU", cuda), ("CPU", cpu or {"summary": {}}))
        for operation, rules in values["summary"].items()
        for rule, entry in rules.items()
    ]
    return markdown_table(["product", "rule", "geometric mean", "worst", "within 5 % of the fastest"], rows)


def _classic_rows(values: Values) -> list[Values]:
    return [
        case | {"product": _product(values, operation), "best_ms": case["time"][case["best"]]["median_ms"]}
        for operation in values["summary"]
        for case in sorted(
            (case for case in values["cases"] if case["operation"] == operation),
            key=lambda case: (-case["classic"]["regret"], case["name"]),
        )[:8]
    ]


def _choice(choice: Values) -> str:
    return f"{choice['format']}, {times(choice['regret'])} x"


def _ours_wrong(values: Values) -> str:
    wrong = [case for case in values["cases"] if case["ours"]["regret"] > 1.15]
    if not wrong:
        return "In this sweep it is nowhere more than 15 % slower than the fastest format."
    return "Where it is more than 15 % slower than the fastest itself: {}.".format(
        "; ".join(
            f"{case['name']} ({_product(values, case['operation'])}): "
            f"{case['ours']['format']} where {case['best']} is {times(case['ours']['regret'])} x as fast"
            for case in sorted(wrong, key=lambda case: (-case["ours"]["regret"], case["name"]))
        )
    )


def _block_of_64(values: Values) -> float:
    """Over dense, with blocks of 64 at 90 % zero."""
    found = next(case for case in values["cases"] if case["block"] == 64 and case["sparsity"] == 0.9)
    return float(found["over"]["dense"]["median"])


def _cpu(spmv: Values, blocks: Values, assembly: Values, solvers: Values) -> str:
    model = spmv["environment"]["hardware"]["cpu"]
    amx = " with AMX" if any(str(name).startswith("amx") for name in model.get("matrix") or ()) else ""
    product = spmv["summary"]["CSR over torch CSR"]
    case = next(c for c in assembly["cases"] if c["duplicates"] == 0.1 and c["order"] == "shuffled")
    over = case["over"]["ours"]
    prepared = [c for c in solvers["cases"] if c["setup_ms"] is not None]
    best = max(prepared, key=lambda c: c["over_opponent"]["median"])
    plain = next(c for c in solvers["cases"] if c["name"] == "none")
    return (
        f"**On a CPU** ({'Xeon' if 'Xeon' in model['model'] else model['model']}{amx}, two threads) the "
        f"libraries do the work: products with a vector take {times(1 / product['geometric_mean'])} times as "
        f"long as torch's CSR (worst {times(1 / product['worst'])}); blocks of 64 at 90 % zero are "
        f"{times(_block_of_64(blocks))} x the dense product; assembly of {count(case['entries'])} entries is "
        f"{times(over['torch']['median'])} x torch and "
        f"{times(over['scipy']['median'])} x scipy; conjugate gradients are "
        f"{times(plain['over_opponent']['median'])} x scipy's plain and "
        f"{times(best['over_opponent']['median'])} x with "
        f"{best['name']} (setup not counted)."
    )


def _aims(spmv: Values, blocks: Values, assembly: Values) -> str:
    shares = [case["sides"]["chosen"]["of_copy"] for case in _stencils(spmv)]
    chosen, compact = (
        spmv["summary"][f"{name}"] for name in ("chosen format over torch CSR", "CompactCSR over plain CSR")
    )
    ratios = [times(case["compact_over_plain_csr"]["median"]) for case in _stencils(spmv)]
    even = blocks["break_even"]["64"]
    torch: dict[int, list[float]] = {}
    for case in sorted(assembly["cases"], key=lambda case: -case["entries"]):
        if case["duplicates"] > 0:
            torch.setdefault(case["entries"], []).append(case["over"]["ours"]["torch"]["median"])
    rows = [
        (
            "SpMV on stencils, chosen format: 90 % of copy bandwidth",
            listed(map(percent, shares)),
            min(shares) >= 0.9,
        ),
        (
            "SpMV over torch CSR, geometric mean: 1.3",
            times(chosen["geometric_mean"]),
            chosen["geometric_mean"] >= 1.3,
        ),
        (
            "the same, worst matrix: 0.98",
            f"{times(chosen['worst'])} ({chosen['worst_matrix']})",
            chosen["worst"] >= 0.98,
        ),
        (
            "CompactCSR over plain CSR: 1.6",
            f"{listed(ratios)} on stencils; geometric mean {times(compact['geometric_mean'])}, "
            f"worst {times(compact['worst'])} ({compact['worst_matrix']})",
            compact["geometric_mean"] >= 1.6,
        ),
        (
            "BSR-64 times dense at 90 % zero, over dense bfloat16: 6",
            times(_block_of_64(blocks)),
            _block_of_64(blocks) >= 6,
        ),
        (
            "the same, break-even at 40 % zero",
            _break_even(even),
            even["sparsity"] is not None and even["sparsity"] <= 0.4,
        ),
        (
            "COO to CSR with duplicates over torch: 3",
            "; ".join(
                f"{times(min(r))} to {times(max(r))} with {count(n)} entries" for n, r in torch.items()
            ),
            min(map(min, torch.values())) >= 3,
        ),
    ]
    cells = [[aim, measured, "met" if met else "**missed**"] for aim, measured, met in rows]
    return markdown_table(["target", "measured", ""], cells)


_MEANING = {
    "dense_below": "dense below this share of zeros",
    "dense_bytes": "but no dense matrix of more bytes than",
    "block_share": "BSR up to this many bytes per byte of CSR (0: never)",
    "dense_blocks": "but no BSR from this stored share of the matrix on",
    "sliced_padding": "SlicedELL up to this many slots per entry (0: never)",
    "sliced_mean": "and up to this many entries per row",
    "sliced_rows": "and from this many rows on",
    "block_reuse": "products that pay for BSR",
    "sliced_reuse": "for SlicedELL",
    "csr_reuse": "for CSR",
    "dense_reuse": "for a dense matrix",
}


def _thresholds() -> str:
    columns = [("cuda", "spmv"), ("cuda", "spmm"), ("cpu", "spmv"), ("cpu", "spmm")]

    def cell(name: str, value: float) -> str:
        return f"{value / 2**30:g} GiB" if name == "dense_bytes" else f"{value:,g}"

    heads = ["threshold", "meaning", "GPU, vector", "GPU, 64 columns", "CPU, vector", "CPU, 64 columns"]
    rows = [
        [
            f"`{name}`",
            _MEANING.get(name, ""),
            *(cell(name, getattr(THRESHOLDS[column], name)) for column in columns),
        ]
        for name in THRESHOLDS[columns[0]]._fields
    ]
    return markdown_table(heads, rows)


def _graphs(device: str) -> Table:
    return Table(
        f"graphs-{device}",
        lambda values: [
            {**case, "phase": phase, "ms": case[phase], "over": case[f"{phase}_over"]}
            for case in values["cases"]
            for phase in ("forward", "step")
        ],
        lambda values: [
            Column("nodes, edges", lambda row: f"{count(row['nodes'])}, {count(row['edges'])}"),
            Column("features", "width"),
            Column("what", lambda row: "with gradient" if row["phase"] == "step" else "forward"),
            *(
                Column(name if name.startswith("ours") else f"{name}, ms", ("ms", name), milliseconds)
                for name in values["cases"][0]["forward"]
            ),
            Column("speed-up over torch CSR", "over/torch CSR", times),
        ],
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "spmv": Table(
        "spmv-cuda",
        "cases",
        (
            Column("matrix", _matrix),
            Column("torch CSR, ms", "sides/torch CSR/time/median_ms", milliseconds),
            Column("CSR", "sides/CSR/speedup/median", times),
            Column(
                "chosen format",
                lambda case: (
                    f"{case['chosen']['name']} {times(case['sides']['chosen']['speedup']['median'])}"
                ),
            ),
            Column("CompactCSR", "sides/CompactCSR/speedup/median", times),
            Column("chosen, of copy bandwidth", "sides/chosen/of_copy", percent),
        ),
        more=_spmv_summary,
        around=_spmv_losses,
    ),
    "spmv-kernels": Table(
        "spmv-cuda",
        "cases",
        (
            Column("median ms", _matrix),
            *(Column(name.removeprefix("CSR "), partial(_kernel, name)) for name in _KERNELS),
        ),
    ),
    "spmv-bandwidth": Table(
        "spmv-cuda",
        _stencils,
        (
            Column("share of copy bandwidth", _matrix),
            Column("copy, GB/s", "copy_gb_s", ",.0f"),
            Column("torch CSR", "sides/torch CSR/of_copy", percent),
            Column("CSR", "sides/CSR/of_copy", percent),
            Column("counted as plain CSR", partial(_as_plain, "CSR"), percent),
            Column("chosen", "sides/chosen/of_copy", percent),
            Column("counted as plain CSR", partial(_as_plain, "chosen"), percent),
        ),
    ),
    "conversions": Table(
        "spmv-cuda",
        "cases",
        (
            Column("products of CSR that it takes", _matrix),
            Column("`choose_format`", "conversions/choose_format/products", ".0f"),
            Column("plan of the first product", "conversions/first product/products", ".0f"),
            Column("to SlicedELL", "conversions/SlicedELL/products", ".0f"),
            Column("to CompactCSR", "conversions/CompactCSR/products", ".0f"),
            Column("to BSR 64", "conversions/BSR 64/products", ".0f"),
        ),
    ),
    "block_spmm": Table(
        "block_spmm-cuda",
        lambda values: sorted(pivot(values["cases"], lambda c: c["block"], lambda c: c["sparsity"])),
        _block_columns,
        around=_block_torch,
    ),
    "block_spmm-detail": Table(
        "block_spmm-cuda",
        "cases",
        (
            Column("block, zero", lambda case: f"{case['block']}, {percent(case['sparsity'])}"),
            Column("BSR, ms", "sides/BSR/time/median_ms", milliseconds),
            Column("TFLOP/s", "sides/BSR/tflop_s", ".0f"),
            Column("tile TB/s", "tile_tb_s", ".1f"),
            Column("dense, ms", "sides/dense/time/median_ms", milliseconds),
            Column("torch BSR, ms", "sides/torch BSR/time/median_ms", milliseconds),
            Column("over dense", "over/dense/median", times),
        ),
    ),
    "assembly": Table(
        "assembly-cuda",
        _assembly_rows,
        lambda values: [
            Column("entries", (0,)),
            *(
                Column(f"{percent(share)} duplicates", (1, share), _assembled)
                for share in sorted(distinct(values["cases"], "duplicates"))
            ),
        ],
    ),
    "graphs": _graphs("cpu"),
    "graphs-cuda": _graphs("cuda"),
    "solvers": Table("solvers-cuda", "cases", _solver_columns, around=_solvers_missed),
    "solvers-aim": Text(("solvers-cuda",), _solver_aim),
    "formats": Text(("formats-cuda", "formats-cpu"), _formats),
    "formats-classic": Table(
        "formats-cuda",
        _classic_rows,
        (
            Column("matrix", lambda case: f"{case['name']}; {case['product']}"),
            Column("fastest", lambda case: f"{case['best']}, {milliseconds(case['best_ms'])} ms"),
            Column("classic tree", "classic", _choice),
            Column("`choose_format`", "ours", _choice),
        ),
    ),
    "formats-ours": Text(("formats-cuda",), _ours_wrong),
    "cpu": Text(("spmv-cpu", "block_spmm-cpu", "assembly-cpu", "solvers-cpu"), _cpu),
    "aims": Text(("spmv-cuda", "block_spmm-cuda", "assembly-cuda"), _aims),
    "thresholds": _thresholds,
}
