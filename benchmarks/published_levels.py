"""Tables about the levels of a budgeted detector, made from the result files.

Each public function makes the text of one block; it is empty where the result file does not exist.
"""

from __future__ import annotations

from typing import Any

from benchmarks.published_text import load_result, markdown_table


def candidates_cpu() -> str:
    """Time and precision of each candidate on a CPU."""
    return _candidates("levels-cpu")


def candidates_cuda() -> str:
    """Time and precision of each candidate on a GPU."""
    return _candidates("levels-cuda")


def budgets_cpu() -> str:
    """What became of frames under budgets on a CPU."""
    return _budgets("levels-cpu")


def budgets_cuda() -> str:
    """What became of frames under budgets on a GPU."""
    return _budgets("levels-cuda")


def _candidates(name: str) -> str:
    values = load_result(name)
    if values is None:
        return ""
    rows = []
    for case in values["cases"]:
        car, timed = case["precision"]["car_3d"], case["time"]
        rows.append(
            [
                f"**{case['name']}**" if case["default"] else case["name"],
                f"{timed['median_ms']:.2f}" if timed else "–",
                f"{case['of_all']['median']:.2f}" if timed else "–",
                " / ".join(f"{car[side]:.1f}" for side in ("easy", "moderate", "hard")),
                f"{case['precision']['car_3d_loose']['moderate']:.1f}",
                f"{case['precision']['cyclist_3d']['moderate']:.1f}",
            ]
        )
    heads = ["level", "ms", "of all", "car 3D", "car 3D, IoU 0.5", "cyclist"]
    return f"{_where(values)}\n\n{markdown_table(heads, rows)}"


def _budgets(name: str) -> str:
    values = load_result(name)
    if values is None:
        return ""
    rows = [
        [
            f"{row['budget_ms']:.2f}",
            f"{100 * row['within']:.0f} %",
            f"{row['time']['median_ms']:.2f} / {row['time']['p99_ms']:.2f}",
            str(row["switches"]),
            f"{row['precision']['car_3d']['moderate']:.1f}",
            ", ".join(f"{level}: {count}" for level, count in row["frames"].items() if count),
        ]
        for row in values["budgets"]
    ]
    heads = ["budget, ms", "frames within", "ms, median / 99 %", "switches", "car 3D", "frames of each level"]
    return markdown_table(heads, rows)


def _where(values: dict[str, Any]) -> str:
    hardware, threads = values["environment"]["hardware"], values["environment"]["threads"]
    device = hardware["gpu"]["model"] if hardware["gpu"] else f"{hardware['cpu']['model']}, {threads} threads"
    return f"{device}; {len(values['frames']['names'])} frames."
