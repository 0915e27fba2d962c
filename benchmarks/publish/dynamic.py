"""Published blocks about sparse training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.publish.text import (
    Block,
    Column,
    Table,
    Text,
    Values,
    markdown_table,
    microseconds,
)

_KINDS = ("block 16", "block 32", "block 64", "block 128", "unstructured, unpacked", "unstructured")
_FORWARD = ("block 16", "block 32", "block 64", "block 128", "fan-in", "unstructured")
_HELD = ("dense", "block 64", "unstructured, unpacked", "unstructured")


def _network(case: Values) -> str:
    return f"{case['shape']}, {case['rows']:,} {'images' if case['size'] else 'rows'}"


def _steps(values: Values) -> list[Values]:
    order = list(dict.fromkeys(map(_network, values["steps"])))
    return sorted(values["steps"], key=lambda case: (order.index(_network(case)), case["sparsity"]))


def _at_ninety(values: Values) -> list[Values]:
    return [case for case in values["steps"] if case["sparsity"] == 0.9]


def _bold(over: float) -> str:
    return f"**{over:.2f}**" if over > 1 else f"{over:.2f}"


def _sides(names: Sequence[str], *more: Column) -> tuple[Column, ...]:
    return (
        Column("network", _network),
        *more,
        Column("dense, µs", "sides/dense/microseconds/median", microseconds),
        *(Column(name, ("sides", name, "over_dense", "median"), _bold) for name in names),
    )


def _step_table(file: str) -> Table:
    return Table(file, _steps, _sides(_KINDS, Column("zero", "sparsity", ".0%")))


def _dynamic_cpu(values: Values) -> str:
    threads = values["environment"]["threads"]
    text = f"On a CPU ({threads} threads, float32), training steps, and below them forward"
    forward = Table("dynamic-cpu", "forward", _sides(_FORWARD))
    return f"{text} passes at 90 %:\n\n{_step_table('dynamic-cpu')()}\n\n{forward()}"


def _exchanges(values: Values) -> list[Values]:
    names = ("block 64", "unstructured, unpacked")
    cases = _at_ninety(values)
    return [
        case | case["sides"][name] | {"side": name}
        for case in cases
        for name in names
        if name in case["sides"]
    ]


def _held(name: str, case: Values) -> str:
    held, dense = (case["sides"][side]["held_mb"] for side in (name, "dense"))
    return f"{held:,.1f}" if name == "dense" else f"{held:,.1f} ({held / dense:.0%})"


def _dynamic_bars(values: Values) -> str:
    sides = [side for case in values["steps"] for side in case["sides"].values() if "share" in side]
    eager, captured = ([side[name] for side in sides] for name in ("share", "share_in_graph"))
    shares = (
        f"{sum(share < 0.02 for share in eager)} of {len(eager)} (largest {max(eager):.2%}) where steps are"
        f" called from Python; {min(captured):.2%} to {max(captured):.1%} of steps in a graph"
    )

    def reached(found: dict[str, Values]) -> str:
        slower = [name for name, best in found.items() if best["over_dense"] <= 1]
        text = f"{len(found) - len(slower)} of {len(found)}"
        return f"{text}; not: {'; '.join(slower)}" if slower else text

    rows = [
        ["updates take under 2 % of training", shares],
        ["a structured training step is faster than dense at 90 %", reached(values["bars"]["steps_faster"])],
        ["a structured forward pass is faster than dense at 90 %", reached(values["bars"]["forward_faster"])],
    ]
    return markdown_table(["target", "measured"], rows)


BLOCKS: dict[str, Block] = {
    "dynamic-speed-bars": Text(("dynamic-cuda",), _dynamic_bars),
    "dynamic-steps": _step_table("dynamic-cuda"),
    "dynamic-forward": Table("dynamic-cuda", "forward", _sides(_FORWARD)),
    "dynamic-updates": Table(
        "dynamic-cuda",
        _exchanges,
        (
            Column("network", _network),
            Column("side", "side"),
            Column("step, ms", "eager_step_ms", ".2f"),
            Column("RigL, ms", "update_ms", ".2f"),
            Column("SET, ms", "set_update_ms", ".2f"),
            Column("share of RigL", "share", ".2%"),
            Column("of steps in a graph", "share_in_graph", ".2%"),
        ),
    ),
    "dynamic-memory": Table(
        "dynamic-cuda",
        lambda values: [case for case in _at_ninety(values) if set(_HELD) <= case["sides"].keys()],
        (Column("MB", _network), *(Column(name, partial(_held, name)) for name in _HELD)),
    ),
    "dynamic-cpu": Text(("dynamic-cpu",), _dynamic_cpu, noted=False),
}
