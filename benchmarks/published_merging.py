"""Tables about merging on its page, made from the result files.

Each public function makes the text of one block; it is empty where its result file does not exist.
"""

from __future__ import annotations

from typing import Any

from benchmarks.bench_merging_quality import spread_text
from benchmarks.published_text import load_result, markdown_table

_DEVICES = {"cpu": "CPU, {threads} threads", "cuda": "{gpu}"}


def speed() -> str:
    """Seconds and memory of TIES against full sorts; from `merging-cpu.json` and `merging-cuda.json`."""
    rows = []
    for device, words in _DEVICES.items():
        values = load_result(f"merging-{device}")
        if values is None:
            continue
        gpu = values["environment"]["hardware"]["gpu"]
        name = words.format(threads=values["environment"]["threads"], gpu="" if gpu is None else gpu["model"])
        for case in values["cases"]:
            rows.append([f"{name}, {_millions(case['parameters'])}", *_speed_row(case)])
    if not rows:
        return ""
    heads = ["", "here", "`argsort`", "stable `argsort`", "times as fast as `argsort`"]
    return markdown_table([*heads, "MB beyond the models, here", "`argsort`"], rows)


def _speed_row(case: dict[str, Any]) -> list[str]:
    times = {name: summary["median_ms"] for name, summary in case["time"].items()}
    beyond = case["beyond_the_models_bytes"]
    return [
        _time(times["thresholds"]),
        _time(times["argsort"]),
        _time(times["stable argsort"]) if "stable argsort" in times else "–",
        f"{case['over']['argsort']['median']:.1f}",
        f"{beyond['thresholds'] / 1e6:,.0f}",
        f"{beyond['argsort'] / 1e6:,.0f}",
    ]


def task_vectors() -> str:
    """Bytes of a task vector file at 10 % density; from `merging-cpu.json`."""
    values = load_result("merging-cpu")
    if values is None:
        return ""
    case = values["cases"][0]
    rows = [
        [row["values"], f"{row['bytes']:,}", f"{row['of_float32']:.4f}", f"{row['of_16_bits']:.4f}"]
        for row in case["task_vector"]
    ]
    heads = [f"{_millions(case['parameters'])} at 10 % density", "bytes", "of float32", "of 16 bits"]
    return markdown_table(heads, rows)


def files() -> str:
    """Memory of merging from disk; from `merging_files-cpu.json`."""
    values = load_result("merging_files-cpu")
    if values is None:
        return ""
    rows = []
    for case in values["cases"]:
        sizes = (case["all_models_bytes"], case["largest_tensor_bytes"], case["own_bytes"])
        rows.append(
            [
                f"{case['models']} of {_millions(case['parameters'])}",
                *(f"{size / 1e6:,.0f}" for size in sizes),
                f"{100 * case['own_of_models']:.1f} %",
                f"{case['peak_bytes'] / 1e6:,.0f}",
            ]
        )
    heads = ["models", "they and the base, MB", "largest tensor", "own memory", "of the models"]
    return markdown_table([*heads, "with mapped pages"], rows)


def quality() -> str:
    """Scores of models tuned for two tasks and of their merges; from `merging_quality-cpu.json`."""
    values = load_result("merging_quality-cpu")
    if values is None:
        return ""
    parts = []
    for key, pair in values["pairs"].items():
        scores = (*pair["tasks"], "both")
        best = _best_merge(pair)
        rows = []
        for name, row in pair["rows"].items():
            label = f"**{name}**" if name == best else name
            rows.append([label, *(spread_text(row[part], pair["unit"]) for part in scores)])
        better = "more" if pair["larger_is_better"] else "less"
        parts.append(markdown_table([f"{key}: {pair['unit']} ({better} is better)", *scores], rows))
    return "\n\n".join(parts)


def _best_merge(pair: dict[str, Any]) -> str:
    merges: dict[str, float] = {name: pair["rows"][name]["both"]["mean"] for name in pair["settings"]}
    return (max if pair["larger_is_better"] else min)(merges, key=lambda name: merges[name])


def _millions(count: int) -> str:
    return f"{round(count / 1e6):,} million"


def _time(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.2f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"
