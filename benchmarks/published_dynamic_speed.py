"""Tables about what sparse training costs in time and memory, made from the result file.

Each public function makes the text of one block; it is empty where the result file does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.published_text import load_result, markdown_table

_RESULT, _CPU = "dynamic-cuda", "dynamic-cpu"
_KINDS = ("block 16", "block 32", "block 64", "block 128", "unstructured, unpacked", "unstructured")
_FORWARD = ("block 16", "block 32", "block 64", "block 128", "fan-in", "unstructured")
_UPDATED = ("block 64", "unstructured, unpacked")
_HELD = ("dense", "block 64", "unstructured, unpacked", "unstructured")


def steps() -> str:
    """How many times as fast a training step is as the dense one, by network and sparsity."""
    return _steps(_RESULT)


def cpu() -> str:
    """The same on a CPU, and its forward passes."""
    values = load_result(_CPU)
    if values is None:
        return ""
    threads = values["environment"]["threads"]
    text = f"On a CPU ({threads} threads, float32), training steps, and below them forward passes at 90 %:"
    forward = _speeds(values["forward"], _FORWARD, sparsity=False)
    return f"{text}\n\n{_steps(_CPU)}\n\n{forward}"


def _steps(name: str) -> str:
    values = load_result(name)
    if values is None:
        return ""
    cases = sorted(values["steps"], key=lambda case: (_order(values["steps"], case), case["sparsity"]))
    return _speeds(cases, _KINDS, sparsity=True)


def forward() -> str:
    """The same for inference at 90 %."""
    values = load_result(_RESULT)
    return "" if values is None else _speeds(values["forward"], _FORWARD, sparsity=False)


def updates() -> str:
    """Milliseconds of an exchange, and its share of training at the default interval, at 90 %."""
    values = load_result(_RESULT)
    if values is None:
        return ""
    rows = []
    for case in _at_ninety(values):
        for name in _UPDATED:
            side = case["sides"].get(name)
            if side is None:
                continue
            rows.append(
                [
                    _label(case),
                    name,
                    f"{side['eager_step_ms']:.2f}",
                    f"{side['update_ms']:.2f}",
                    f"{side['set_update_ms']:.2f}",
                    f"{side['share']:.2%}",
                    f"{side['share_in_graph']:.2%}",
                ]
            )
    heads = ["network", "side", "step, ms", "RigL, ms", "SET, ms", "share of RigL", "of steps in a graph"]
    return markdown_table(heads, rows)


def memory() -> str:
    """Weights, gradients, moments and connections between steps, at 90 %."""
    values = load_result(_RESULT)
    if values is None:
        return ""
    rows = []
    for case in _at_ninety(values):
        dense = case["sides"]["dense"]["held_mb"]
        found = [case["sides"][name]["held_mb"] for name in _HELD if name in case["sides"]]
        if len(found) == len(_HELD):
            others = [f"{held:,.1f} ({held / dense:.0%})" for held in found[1:]]
            rows.append([_label(case), f"{dense:,.1f}", *others])
    return markdown_table(["MB", *_HELD], rows)


def bars() -> str:
    """What was aimed at and what was reached."""
    values = load_result(_RESULT)
    if values is None:
        return ""
    found = values["bars"]
    return markdown_table(
        ["aim", "measured"],
        (
            ["updates take under 2 % of training", _shares(values["steps"])],
            [
                "a structured training step is faster than dense at 90 %",
                _reached(found["steps_faster"]),
            ],
            [
                "a structured forward pass is faster than dense at 90 %",
                _reached(found["forward_faster"]),
            ],
        ),
    )


def _shares(cases: Sequence[dict[str, Any]]) -> str:
    sides = [side for case in cases for side in case["sides"].values() if "share" in side]
    eager, captured = ([side[name] for side in sides] for name in ("share", "share_in_graph"))
    within = sum(share < 0.02 for share in eager)
    return (
        f"{within} of {len(eager)} (largest {max(eager):.2%}) where steps are called from Python;"
        f" {min(captured):.2%} to {max(captured):.1%} of steps in a graph"
    )


def _reached(found: dict[str, dict[str, Any]]) -> str:
    slower = [name for name, best in found.items() if best["over_dense"] <= 1]
    text = f"{len(found) - len(slower)} of {len(found)}"
    return f"{text}; not: {'; '.join(slower)}" if slower else text


def _at_ninety(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [case for case in values["steps"] if case["sparsity"] == 0.9]


def _order(cases: Sequence[dict[str, Any]], case: dict[str, Any]) -> int:
    return list(dict.fromkeys(map(_label, cases))).index(_label(case))


def _label(case: dict[str, Any]) -> str:
    return f"{case['shape']}, {case['rows']:,} {'images' if case['size'] else 'rows'}"


def _speeds(cases: Iterable[dict[str, Any]], names: Sequence[str], *, sparsity: bool) -> str:
    def cell(case: dict[str, Any], name: str) -> str:
        side = case["sides"].get(name)
        if side is None:
            return ""
        over = side["over_dense"]["median"]
        return f"**{over:.2f}**" if over > 1 else f"{over:.2f}"

    return markdown_table(
        ["network", *(["zero"] if sparsity else []), "dense, µs", *names],
        (
            [
                _label(case),
                *([f"{case['sparsity']:.0%}"] if sparsity else []),
                _time(case["sides"]["dense"]["microseconds"]["median"]),
                *(cell(case, name) for name in names),
            ]
            for case in cases
        ),
    )


def _time(microseconds: float) -> str:
    return f"{microseconds:,.0f}" if microseconds >= 100 else f"{microseconds:.1f}"
