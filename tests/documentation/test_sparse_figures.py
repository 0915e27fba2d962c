"""Figures about sparse matrices on docs/measured.md and decision pages are those of benchmarks/results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparse_core.formats.choice.thresholds import THRESHOLDS

Table = dict[str, list[str]]
FORMATS_PAGE = "docs/decisions/0005-sparse-formats.md"
SOLVERS_PAGE = "docs/decisions/0006-sparse-solvers.md"


def block(text: str, name: str) -> str:
    """Return what stands between the markers of one measurement, without the note on its age."""
    (found,) = re.findall(rf"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", text, flags=re.DOTALL)
    return str(found).split("\n\n*Historical")[0]


def table(text: str) -> Table:
    """Cells by the first cell of their row, bold marks taken off; without heading and rule."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in lines[2:]]
    found = {row[0]: row[1:] for row in rows}
    assert len(found) == len(rows), "two rows of the same name"
    return found


def digits(value: float) -> str:
    """A time: three significant digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def ratio(value: float) -> str:
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def median(side: dict[str, Any]) -> str:
    return digits(side["time"]["median_ms"])


def matrix_name(case: dict[str, Any]) -> str:
    return str(case["name"]).replace("% zero", " % zero").replace("  %", " %")


def spmv(values: dict[str, Any]) -> Table:
    rows = {}
    for case in values["cases"]:
        speedup = {name: ratio(side["speedup"]["median"]) for name, side in case["sides"].items()}
        rows[matrix_name(case)] = [
            median(case["sides"]["torch CSR"]),
            speedup["CSR"],
            f"{case['chosen']['name']} {speedup['chosen']}",
            speedup["CompactCSR"],
            percent(case["sides"]["chosen"]["of_copy"]),
        ]
    over = [values["summary"][f"{name} over torch CSR"] for name in ("CSR", "chosen format", "CompactCSR")]
    rows["geometric mean"] = ["", *(ratio(entry["geometric_mean"]) for entry in over), ""]
    rows["worst"] = ["", *(ratio(entry["worst"]) for entry in over), ""]
    return rows


def block_spmm(values: dict[str, Any]) -> Table:
    rows: Table = {}
    for case in sorted(values["cases"], key=lambda case: (case["block"], case["sparsity"])):
        name = f"{case['block']} x {case['block']}"
        rows.setdefault(name, []).append(ratio(case["over"]["dense"]["median"]))
    for size, entry in values["break_even"].items():
        text = "never" if entry["sparsity"] is None else percent(entry["sparsity"])
        rows[f"{size} x {size}"].append(f"below {text}" if entry["found"] == "below" else text)
    return rows


def assembly(values: dict[str, Any]) -> Table:
    rows: Table = {}
    for case in sorted(values["cases"], key=lambda case: float(case["duplicates"])):
        count = {10**7: "10M", 10**6: "1M", 10**5: "100k"}[case["entries"]]
        ours, over = case["time"]["ours"]["median_ms"], case["over"]["ours"]["torch"]["median"]
        rows.setdefault(f"{count}, {case['order']}", []).append(f"{digits(ours)} ms, {ratio(over)} x")
    return rows


def solvers(values: dict[str, Any]) -> Table:
    return {
        case["name"]: [
            str(case["iterations"]),
            "" if case["setup_ms"] is None else digits(case["setup_ms"]),
            median(case),
            ratio(case["over_plain"]["median"]),
        ]
        for case in values["cases"]
    }


def kernels(values: dict[str, Any]) -> Table:
    names = ["torch CSR", *(f"CSR {name}" for name in ("scalar", "vector", "adaptive", "merge", "pattern"))]
    names += ["ELL", "SlicedELL", "CompactCSR", "BSR 64", "dense"]
    return {
        matrix_name(case): [median(case["sides"][name]) if name in case["sides"] else "" for name in names]
        for case in values["cases"]
    }


def block_detail(values: dict[str, Any]) -> Table:
    return {
        f"{case['block']}, {percent(case['sparsity'])}": [
            median(case["sides"]["BSR"]),
            f"{case['sides']['BSR']['tflop_s']:.0f}",
            f"{case['tile_tb_s']:.1f}",
            median(case["sides"]["dense"]),
            median(case["sides"]["torch BSR"]) if "torch BSR" in case["sides"] else "",
            ratio(case["over"]["dense"]["median"]),
        ]
        for case in values["cases"]
    }


@pytest.mark.parametrize(
    ("page", "name", "file", "expected"),
    [
        ("docs/measured.md", "spmv", "spmv", spmv),
        ("docs/measured.md", "block_spmm", "block_spmm", block_spmm),
        ("docs/measured.md", "assembly", "assembly", assembly),
        ("docs/measured.md", "solvers", "solvers", solvers),
        (FORMATS_PAGE, "spmv-kernels", "spmv", kernels),
        (FORMATS_PAGE, "block_spmm-detail", "block_spmm", block_detail),
        (SOLVERS_PAGE, "solvers", "solvers", solvers),
    ],
)
def test_tables_are_the_results(
    repository: Path, page: str, name: str, file: str, expected: Callable[[dict[str, Any]], Table]
) -> None:
    text = (repository / page).read_text()
    shown = block(text, name)
    results = repository / f"benchmarks/results/{file}-cuda.json"
    if not results.is_file():
        assert shown == "", f"{page} shows what {results.name} should prove"
        return
    values = json.loads(results.read_text())
    # The GPU that is named last before the table.
    named = re.findall(r"NVIDIA \w+", text[: text.index(f"<!-- {name}:begin -->")])
    assert values["environment"]["hardware"]["gpu"]["model"].startswith(named[-1])
    assert table(shown) == expected(values)


def test_regret_is_that_of_the_results(repository: Path) -> None:
    lines = block((repository / "docs/measured.md").read_text(), "formats").splitlines()
    expected = []
    for device, label in (("cuda", "GPU"), ("cpu", "CPU")):
        results = repository / f"benchmarks/results/formats-{device}.json"
        summary = json.loads(results.read_text())["summary"] if results.is_file() else {}
        for operation, product in (("spmv", "vector"), ("spmm", "64 columns")):
            for rule, name in (("ours", "`choose_format`"), ("classic", "classic tree")):
                if operation not in summary:
                    continue
                entry = summary[operation][rule]
                worst = f"{ratio(entry['worst'])} ({entry['worst_case']})"
                cells = [f"{label}, {product}", name, ratio(entry["geometric_mean"]), worst]
                cells.append(f"{entry['fastest_in']} of {entry['cases']}")
                expected.append(f"| {' | '.join(cells)} |")
    assert lines[2:] == expected


def test_thresholds_are_those_of_the_code(repository: Path) -> None:
    shown = table(block((repository / FORMATS_PAGE).read_text(), "thresholds"))
    columns = [
        THRESHOLDS[key] for key in (("cuda", "spmv"), ("cuda", "spmm"), ("cpu", "spmv"), ("cpu", "spmm"))
    ]
    assert list(shown) == [f"`{field}`" for field in columns[0]._fields]
    for field, cells in ((name.strip("`"), cells) for name, cells in shown.items()):
        unit, suffix = (2**30, " GiB") if field == "dense_bytes" else (1, "")
        assert cells[1:] == [f"{getattr(column, field) / unit:,g}{suffix}" for column in columns], field


@pytest.mark.parametrize("page", [FORMATS_PAGE, SOLVERS_PAGE])
def test_links_of_the_pages_lead_somewhere(repository: Path, page: str) -> None:
    path = repository / page
    links = re.findall(r"\]\(([^)#]+)\)", path.read_text())
    assert links
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []
