"""Tables and sentences of the README and the decision pages, made from the result files.

Each public function makes the text of one block; it is empty where its result file does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from benchmarks.published_text import load_result, markdown_table
from sparse_core.formats.thresholds import THRESHOLDS


def _ms(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def _times(value: float) -> str:
    """A ratio: two decimals, one from ten on."""
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _power(value: float) -> str:
    """Powers of ten as people write them: 1e-6."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def _pct(share: float) -> str:
    return f"{100 * share:.0f} %"


def _cpu_name(values: dict[str, Any]) -> str:
    model = values["environment"]["hardware"]["cpu"]
    amx = " with AMX" if any(str(name).startswith("amx") for name in model.get("matrix") or ()) else ""
    return ("Xeon" if "Xeon" in model["model"] else model["model"]) + amx


def _listed(parts: Iterable[str]) -> str:
    """One, two and three."""
    parts = list(parts)
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _median(side: dict[str, Any]) -> float:
    return float(side["time"]["median_ms"])


def _name_of(case: dict[str, Any]) -> str:
    """Name of a matrix, with a space before the per cent sign."""
    return re.sub(r"(?<=\d)%", " %", case["name"])


def spmv() -> str:
    """Products with a vector by matrix, and where they lose; from `spmv-cuda.json`."""
    values = load_result("spmv-cuda")
    if not values:
        return ""
    rows = []
    for case in values["cases"]:
        sides = case["sides"]
        chosen = sides["chosen"]
        rows.append(
            [
                _name_of(case),
                _ms(_median(sides["torch CSR"])),
                _times(sides["CSR"]["speedup"]["median"]),
                f"{case['chosen']['name']} {_times(chosen['speedup']['median'])}",
                _times(sides["CompactCSR"]["speedup"]["median"]),
                _pct(chosen["of_copy"]),
            ]
        )
    summary = values["summary"]
    keys = ["CSR over torch CSR", "chosen format over torch CSR", "CompactCSR over torch CSR"]
    for label, field in (("**geometric mean**", "geometric_mean"), ("worst", "worst")):
        rows.append([label, "", *(_times(summary[key][field]) for key in keys), ""])
    rows[-2][3] = f"**{rows[-2][3]}**"
    return (
        markdown_table(
            ["matrix", "torch CSR, ms", "CSR", "chosen format", "CompactCSR", "chosen, of copy bandwidth"],
            rows,
        )
        + "\n\n"
        + _losses(values)
    )


def _losses(values: dict[str, Any]) -> str:
    def slower(side: str) -> list[str]:
        return [
            f"{_name_of(case)} ({_times(case['sides'][side]['speedup']['median'])})"
            for case in values["cases"]
            if case["sides"][side]["speedup"]["median"] < 0.98
        ]

    chosen, compact = slower("chosen"), slower("CompactCSR")
    text = (
        f"The chosen format loses on {_listed(chosen)}. " if chosen else "The chosen format loses nowhere. "
    )
    text += "CompactCSR holds float16 values and 16-bit column gaps and is never chosen by itself"
    return text + (f"; it loses on {len(compact)} of {len(values['cases'])} matrices." if compact else ".")


def block_spmm() -> str:
    """Speed-up of BSR over dense by block size and sparsity; from `block_spmm-cuda.json`."""
    values = load_result("block_spmm-cuda")
    if not values:
        return ""
    cases, even = values["cases"], values["break_even"]
    shares = sorted({case["sparsity"] for case in cases})
    rows = []
    for block in sorted({case["block"] for case in cases}):
        own = {case["sparsity"]: case for case in cases if case["block"] == block}
        cells = [_times(own[share]["over"]["dense"]["median"]) if share in own else "" for share in shares]
        rows.append([f"{block} x {block}", *cells, _break_even(even[str(block)])])
    settings = values["settings"]
    head = f"{settings['size']}² times {settings['size']} x {settings['columns']}, {settings['dtype']}"
    text = markdown_table([head, *(f"{_pct(share)} zero" for share in shares), "break-even"], rows)
    torch = [case["over"]["torch BSR"]["median"] for case in cases if "torch BSR" in case["over"]]
    if torch:
        text += f"\n\nOver torch's own BSR product: {_times(min(torch))} to {_times(max(torch))} x."
    return text


def _break_even(entry: dict[str, Any]) -> str:
    if entry["sparsity"] is None:
        return "never"
    return ("below " if entry["found"] == "below" else "") + _pct(entry["sparsity"])


def _short(count: int) -> str:
    """A count in thousands or millions."""
    return f"{count // 10**6}M" if count >= 10**6 else f"{count // 1000}k"


def assembly(device: str = "cuda") -> str:
    """Time of COO to CSR and its ratio to torch; from `assembly-cuda.json`."""
    values = load_result(f"assembly-{device}")
    if not values:
        return ""
    cases = values["cases"]
    shares = sorted({case["duplicates"] for case in cases})
    rows = []
    for entries in sorted({case["entries"] for case in cases}, reverse=True):
        for order in ("shuffled", "sorted"):
            own = {c["duplicates"]: c for c in cases if c["entries"] == entries and c["order"] == order}
            rows.append(
                [
                    f"{_short(entries)}, {order}",
                    *(
                        f"{_ms(own[share]['time']['ours']['median_ms'])} ms, "
                        f"{_times(own[share]['over']['ours']['torch']['median'])} x"
                        for share in shares
                    ),
                ]
            )
    return markdown_table(["entries", *(f"{_pct(share)} duplicates" for share in shares)], rows)


def solvers(device: str = "cuda") -> str:
    """Conjugate gradients by preconditioner; from `solvers-cuda.json`."""
    values = load_result(f"solvers-{device}")
    if not values:
        return ""
    rows = [
        [
            case["name"],
            str(case["iterations"]),
            _ms(case["setup_ms"]) if case["setup_ms"] is not None else "",
            _ms(_median(case)),
            _times(case["over_plain"]["median"]),
        ]
        for case in values["cases"]
    ]
    settings = values["settings"]
    head = f"Poisson {settings['grid']}³, {settings['dtype']}, to {_power(settings['rtol'])}"
    text = markdown_table([head, "iterations", "setup, ms", "solve, ms", "times as fast as none"], rows)
    missed = [
        f"{case['name']} ({_power(case['residual'])})" for case in values["cases"] if not case["agrees"]
    ]
    return text + (
        f"\n\nEnded with a true relative residual above the tolerance: {_listed(missed)}." if missed else ""
    )


def formats() -> str:
    """Regret of `choose_format` and of the classic tree; from `formats-cuda.json` and `formats-cpu.json`."""
    rows = []
    for device, label in (("cuda", "GPU"), ("cpu", "CPU")):
        values = load_result(f"formats-{device}")
        if not values:
            continue
        for operation, rules in values["summary"].items():
            product = "vector" if operation == "spmv" else f"{values['settings']['columns']} columns"
            for rule, entry in rules.items():
                rows.append(
                    [
                        f"{label}, {product}",
                        "`choose_format`" if rule == "ours" else "classic tree",
                        _times(entry["geometric_mean"]),
                        f"{_times(entry['worst'])} ({entry['worst_case']})",
                        f"{entry['fastest_in']} of {entry['cases']}",
                    ]
                )
    return (
        markdown_table(["product", "rule", "geometric mean", "worst", "within 5 % of the fastest"], rows)
        if rows
        else ""
    )


def cpu() -> str:
    """A sentence about a CPU; from the `-cpu.json` files of spmv, block_spmm, assembly and solvers."""
    parts = []
    if values := load_result("spmv-cpu"):
        entry = values["summary"]["CSR over torch CSR"]
        parts.append(
            f"products with a vector take {_times(1 / entry['geometric_mean'])} times as long as torch's CSR "
            f"(worst {_times(1 / entry['worst'])})"
        )
    if values := load_result("block_spmm-cpu"):
        found = [c for c in values["cases"] if c["block"] == 64 and c["sparsity"] == 0.9]
        if found:
            ratio = found[0]["over"]["dense"]["median"]
            parts.append(f"blocks of 64 at 90 % zero are {_times(ratio)} x the dense product")
    if values := load_result("assembly-cpu"):
        case = next(c for c in values["cases"] if c["duplicates"] == 0.1 and c["order"] == "shuffled")
        over = case["over"]["ours"]
        parts.append(
            f"assembly of {_short(case['entries'])} entries is {_times(over['torch']['median'])} x torch and "
            f"{_times(over['scipy']['median'])} x scipy"
        )
    if values := load_result("solvers-cpu"):
        cases = {case["name"]: case for case in values["cases"]}
        best = max(
            (c for c in values["cases"] if c["setup_ms"] is not None),
            key=lambda c: c["over_opponent"]["median"],
        )
        parts.append(
            f"conjugate gradients are {_times(cases['none']['over_opponent']['median'])} x scipy's plain and "
            f"{_times(best['over_opponent']['median'])} x with {best['name']} (setup not counted)"
        )
    if not parts:
        return ""
    loaded = (load_result(f"{name}-cpu") for name in ("spmv", "block_spmm", "assembly", "solvers"))
    first = next(values for values in loaded if values)
    return (
        f"**On a CPU** (two threads of a {_cpu_name(first)}) the libraries do the work: "
        + "; ".join(parts)
        + "."
    )


def aims() -> str:
    """Aims, what was measured and whether they are met; from the `-cuda.json` files of spmv, block_spmm and
    assembly.
    """
    rows = []

    def aim(text: str, measured: str, met: bool) -> None:
        rows.append([text, measured, "met" if met else "**missed**"])

    if values := load_result("spmv-cuda"):
        cases, summary = values["cases"], values["summary"]
        stencils = [case for case in cases if "points" in case["name"]]

        def best(case: dict[str, Any]) -> dict[str, Any]:
            own = {
                n: s for n, s in case["sides"].items() if n.startswith(("CSR", "chosen", "SlicedELL", "ELL"))
            }
            return min(own.values(), key=_median)

        shares = [case["sides"]["chosen"]["of_copy"] for case in stencils]
        aim(
            "SpMV on stencils, chosen format: 90 % of copy bandwidth",
            _listed(map(_pct, shares)),
            min(shares) >= 0.9,
        )
        entry = summary["chosen format over torch CSR"]
        aim(
            "SpMV over torch CSR, geometric mean: 1.3",
            _times(entry["geometric_mean"]),
            entry["geometric_mean"] >= 1.3,
        )
        aim(
            "the same, worst matrix: 0.98",
            f"{_times(entry['worst'])} ({entry['worst_matrix']})",
            entry["worst"] >= 0.98,
        )
        entry = summary["CompactCSR over plain CSR"]
        ratios = [case["compact_over_plain_csr"]["median"] for case in stencils]
        aim(
            "CompactCSR over plain CSR: 1.6",
            f"{_listed(map(_times, ratios))} on stencils; geometric mean {_times(entry['geometric_mean'])}, "
            f"worst {_times(entry['worst'])} ({entry['worst_matrix']})",
            entry["geometric_mean"] >= 1.6,
        )
    if values := load_result("block_spmm-cuda"):
        found = [c for c in values["cases"] if c["block"] == 64 and c["sparsity"] == 0.9]
        if found:
            ratio = found[0]["over"]["dense"]["median"]
            aim("BSR-64 times dense at 90 % zero, over dense bfloat16: 6", _times(ratio), ratio >= 6)
        entry = values["break_even"]["64"]
        share = entry["sparsity"]
        aim("the same, break-even at 40 % zero", _break_even(entry), share is not None and share <= 0.4)
    if values := load_result("assembly-cuda"):
        own = [case for case in values["cases"] if case["duplicates"] > 0]
        parts, all_met = [], True
        for entries in sorted({case["entries"] for case in own}, reverse=True):
            ratios = [c["over"]["ours"]["torch"]["median"] for c in own if c["entries"] == entries]
            parts.append(f"{_times(min(ratios))} to {_times(max(ratios))} with {_short(entries)} entries")
            all_met &= min(ratios) >= 3
        aim("COO to CSR with duplicates over torch: 3", "; ".join(parts), all_met)
    return markdown_table(["aim", "measured", ""], rows) if rows else ""


def kernels() -> str:
    """Time of every kernel by matrix, the fastest in bold; from `spmv-cuda.json`."""
    values = load_result("spmv-cuda")
    if not values:
        return ""
    order = [
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
    ]
    heads = [name.removeprefix("CSR ") for name in order]
    rows = []
    for case in values["cases"]:
        found = {name: _median(side) for name, side in case["sides"].items() if name in order}
        fastest = min(found, key=found.__getitem__)
        rows.append(
            [
                _name_of(case),
                *(
                    (f"**{_ms(found[name])}**" if name == fastest else _ms(found[name]))
                    if name in found
                    else ""
                    for name in order
                ),
            ]
        )
    return markdown_table(["median ms", *heads], rows)


def bandwidth() -> str:
    """Share of copy bandwidth, by bytes read and by those of plain CSR; from `spmv-cuda.json`."""
    values = load_result("spmv-cuda")
    if not values:
        return ""
    rows = []
    for case in values["cases"]:
        if "points" not in case["name"]:
            continue
        plain = case["sides"]["torch CSR"]["bytes"]

        def cells(side: str, own: dict[str, Any] = case, plain: int = plain) -> list[str]:
            entry = own["sides"][side]
            return [_pct(entry["of_copy"]), _pct(plain / 1e6 / _median(entry) / own["copy_gb_s"])]

        rows.append(
            [
                _name_of(case),
                f"{case['copy_gb_s']:,.0f}",
                _pct(case["sides"]["torch CSR"]["of_copy"]),
                *cells("CSR"),
                *cells("chosen"),
            ]
        )
    return markdown_table(
        [
            "share of copy bandwidth",
            "copy, GB/s",
            "torch CSR",
            "CSR",
            "counted as plain CSR",
            "chosen",
            "counted as plain CSR",
        ],
        rows,
    )


def conversions() -> str:
    """What each conversion costs in products; from `spmv-cuda.json`."""
    values = load_result("spmv-cuda")
    if not values:
        return ""
    names = ["choose_format", "first product", "SlicedELL", "CompactCSR", "BSR 64"]
    rows = [
        [
            _name_of(case),
            *(
                f"{case['conversions'][name]['products']:.0f}" if name in case["conversions"] else ""
                for name in names
            ),
        ]
        for case in values["cases"]
    ]
    return markdown_table(
        [
            "products of CSR that it takes",
            "`choose_format`",
            "plan of the first product",
            "to SlicedELL",
            "to CompactCSR",
            "to BSR 64",
        ],
        rows,
    )


def classic() -> str:
    """Where the classic tree is furthest from the fastest format; from `formats-cuda.json`."""
    values = load_result("formats-cuda")
    if not values:
        return ""
    rows = []
    for operation in values["summary"]:
        own = [case for case in values["cases"] if case["operation"] == operation]
        worst = sorted(own, key=lambda case: (-case["classic"]["regret"], case["name"]))[:8]
        product = "vector" if operation == "spmv" else f"{values['settings']['columns']} columns"
        for case in worst:
            rows.append(
                [
                    f"{case['name']}; {product}",
                    f"{case['best']}, {_ms(case['time'][case['best']]['median_ms'])} ms",
                    f"{case['classic']['format']}, {_times(case['classic']['regret'])} x",
                    f"{case['ours']['format']}, {_times(case['ours']['regret'])} x",
                ]
            )
    return markdown_table(["matrix", "fastest", "classic tree", "`choose_format`"], rows)


def ours_wrong() -> str:
    """Where `choose_format` is more than 15 % slower than the fastest format; from `formats-cuda.json`."""
    values = load_result("formats-cuda")
    if not values:
        return ""
    worst = sorted(
        (c for c in values["cases"] if c["ours"]["regret"] > 1.15),
        key=lambda c: (-c["ours"]["regret"], c["name"]),
    )
    if not worst:
        return "In this sweep it is nowhere more than 15 % slower than the fastest format."
    products = {"spmv": "vector", "spmm": f"{values['settings']['columns']} columns"}
    parts = [
        f"{case['name']} ({products[case['operation']]}): "
        f"{case['ours']['format']} where {case['best']} is {_times(case['ours']['regret'])} x as fast"
        for case in worst
    ]
    return "Where it is more than 15 % slower than the fastest itself: " + "; ".join(parts) + "."


def thresholds() -> str:
    """The thresholds of `choose_format`; from `sparse_core/formats/thresholds.py`, not from a result file."""
    columns = [("cuda", "spmv"), ("cuda", "spmm"), ("cpu", "spmv"), ("cpu", "spmm")]
    meaning = {
        "dense_below": "dense below this share of zeros",
        "dense_bytes": "but no dense matrix of more bytes than",
        "block_share": "BSR up to so many bytes for each of CSR (0: never)",
        "dense_blocks": "but no BSR from this stored share of the matrix on",
        "sliced_padding": "SlicedELL up to so many slots an entry (0: never)",
        "sliced_mean": "and up to so many entries a row",
        "sliced_rows": "and from so many rows on",
        "block_reuse": "products that pay for BSR",
        "sliced_reuse": "for SlicedELL",
        "csr_reuse": "for CSR",
        "dense_reuse": "for a dense matrix",
    }
    fields = THRESHOLDS[columns[0]]._fields
    rows = [
        [
            f"`{name}`",
            meaning.get(name, ""),
            *(
                f"{getattr(THRESHOLDS[column], name):,g}"
                if name != "dense_bytes"
                else f"{getattr(THRESHOLDS[column], name) / 2**30:g} GiB"
                for column in columns
            ),
        ]
        for name in fields
    ]
    return markdown_table(
        ["threshold", "meaning", "GPU, vector", "GPU, 64 columns", "CPU, vector", "CPU, 64 columns"], rows
    )


def block_detail() -> str:
    """Rates of the block product beside dense and torch; from `block_spmm-cuda.json`."""
    values = load_result("block_spmm-cuda")
    if not values:
        return ""
    rows = []
    for case in values["cases"]:
        sides = case["sides"]
        rows.append(
            [
                f"{case['block']}, {_pct(case['sparsity'])}",
                _ms(_median(sides["BSR"])),
                f"{sides['BSR']['tflop_s']:.0f}",
                f"{case['tile_tb_s']:.1f}",
                _ms(_median(sides["dense"])),
                _ms(_median(sides["torch BSR"])) if "torch BSR" in sides else "",
                _times(case["over"]["dense"]["median"]),
            ]
        )
    return markdown_table(
        ["block, zero", "BSR, ms", "TFLOP/s", "tile TB/s", "dense, ms", "torch BSR, ms", "over dense"], rows
    )


def solver_aim() -> str:
    """Which preconditioners are faster than none; from `solvers-cuda.json`."""
    values = load_result("solvers-cuda")
    if not values:
        return ""
    plain = next(case for case in values["cases"] if case["name"] == "none")
    faster = [c for c in values["cases"] if c["setup_ms"] is not None and _median(c) < _median(plain)]
    whole = [c for c in faster if _median(c) + c["setup_ms"] < _median(plain)]

    def told(cases: list[dict[str, Any]]) -> str:
        return _listed(f"{c['name']} ({c['iterations']} iterations, {_ms(_median(c))} ms)" for c in cases)

    text = f"Plain CG takes {plain['iterations']} iterations and {_ms(_median(plain))} ms. "
    text += f"Faster once set up: {told(faster)}. " if faster else "No preconditioner is faster. "
    text += (
        f"Setup included: {told(whole)}."
        if whole
        else "Setup included, none is; it pays off over several right-hand sides."
    )
    return text
