"""Tables about sparse training on its page, made from the result files.

Each public function makes the text of one block; it is empty where its result file does not exist.
"""

from __future__ import annotations

from typing import Any

from benchmarks.dynamic_summary import MEASURES, score_text
from benchmarks.published_text import load_result, markdown_table

_SMALL, _DETECTOR = "dynamic-accuracy", "dynamic-accuracy-detector"
_TASKS = {
    "digits-mlp": "digits, perceptron",
    "digits-convnet": "digits, convnet",
    "text-transformer": "text",
}
#: Rows of the table of costs; static random costs what SET does, and constant fan-in what RigL does.
_COST_ROWS = ("dense", "small dense", "SET", "RigL", "RigL, blocks")
_Key = tuple[str, float]


def accuracy() -> str:
    """Score of every row on the small tasks, once and five times the steps."""
    values = load_result(_SMALL)
    if values is None:
        return ""
    cases = values["cases"]
    columns = _columns(cases)
    found = {(case["task"], case["length"], *_key(case)): case for case in cases}
    return markdown_table(
        [
            "accuracy in %; text: bits a character",
            *(_TASKS[task] + (f", {length}x" if length > 1 else "") for task, length in columns),
        ],
        (
            [
                _name(key),
                *(_cell(found.get((task, length, *key))) for task, length in columns),
            ]
            for key in _keys(cases)
        ),
    )


def cost() -> str:
    """Parameters, and multiply-adds of a training over those of the dense one."""
    values = load_result(_SMALL)
    if values is None:
        return ""
    cases = values["cases"]
    found = {(case["task"], case["length"], *_key(case)): case for case in cases}
    tasks = [task for task in _TASKS if any(case["task"] == task for case in cases)]
    lengths = sorted({case["length"] for case in cases})
    rows = []
    for key in _keys(cases):
        if key[0] not in _COST_ROWS:
            continue
        cells = []
        for task in tasks:
            chosen = [found.get((task, length, *key)) for length in lengths]
            cells.append(f"{chosen[0]['parameters']:,}" if chosen[0] else "–")
            cells.append(" / ".join("–" if case is None else f"{case['cost']:.2f}" for case in chosen))
        rows.append([_name(key), *cells])
    times = " / ".join(f"{length}x" for length in lengths)
    heads = [_TASKS[task] for task in tasks]
    return markdown_table(
        ["", *(cell for head in heads for cell in (f"{head}: parameters", f"multiply-adds, {times}"))], rows
    )


def detector() -> str:
    """Average precision of the detector, trained for a short time."""
    values = load_result(_DETECTOR)
    if values is None:
        return ""
    return markdown_table(
        [
            "",
            "steps",
            "Car 3D AP40, easy / moderate / hard",
            "seen from above, moderate",
            "loss",
            "n",
            "multiply-adds",
        ],
        (
            [
                _name(_key(case)),
                f"{case['steps']:,}",
                " / ".join(score_text(case, f"ap_{level}") for level in ("easy", "moderate", "hard")),
                score_text(case, "ap_bev"),
                score_text(case, "loss"),
                str(len(case["seeds"])),
                f"{case['cost']:.2f}",
            ]
            for case in values["cases"]
        ),
    )


def _key(case: dict[str, Any]) -> _Key:
    return case["label"], case["sparsity"]


def _keys(cases: list[dict[str, Any]]) -> list[_Key]:
    """Rows in the order of the result."""
    return sorted(dict.fromkeys(_key(case) for case in cases), key=lambda key: key[1])


def _columns(cases: list[dict[str, Any]]) -> list[tuple[str, int]]:
    known = {(case["task"], case["length"]) for case in cases}
    return sorted(known, key=lambda column: (list(MEASURES).index(column[0]), column[1]))


def _name(key: _Key) -> str:
    label, sparsity = key
    return f"{label}, {sparsity:.0%}" if sparsity else label


def _cell(case: dict[str, Any] | None) -> str:
    return "–" if case is None else score_text(case)
