"""Published blocks about block-sparse attention."""

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
    at,
    markdown_table,
    microseconds,
    pivot,
)

_PATTERNS = {
    "random": "random",
    "bigbird": "BigBird",
    "window+global": "window and global",
    "causal-window": "causal window",
    "top-k": "top-k",
}
_PASSES = {False: "forward", True: "both"}


def _is_main(case: Values) -> bool:
    return (case["pattern"], case["block_size"], case["dtype"]) == ("random", 128, "bfloat16")


def _place(gradient: bool, length: int, dim: int) -> str:
    return f"{length:,}, {dim}, {_PASSES[gradient]}"


def _places(values: Values, lengths: Sequence[int] = ()) -> list[Any]:
    """Random blocks of 128 in bfloat16, by pass, length and head size."""
    cases = [
        case for case in values["cases"] if _is_main(case) and (not lengths or case["length"] in lengths)
    ]
    return sorted(
        pivot(cases, lambda c: (c["gradient"], c["length"], c["dim"]), lambda c: c["target"]), key=_first
    )


def _first(row: tuple[Any, Any]) -> Any:
    return row[0]


def _targets(values: Values) -> list[float]:
    return sorted({case["target"] for case in values["cases"] if _is_main(case)}, reverse=True)


def _over(case: Values) -> str:
    over = f"{case['over_dense']['median']:.2f}"
    return over if case["over_flex"] is None else f"{over} / {case['over_flex']['median']:.2f}"


def _speedups(lengths: Sequence[int] = ()) -> Table:
    return Table(
        "sparse_attention-cuda",
        lambda values: _places(values, lengths),
        lambda values: [
            Column("length, head size", lambda row: _place(*row[0])),
            *(Column(f"density {target:g}", (1, target), _over) for target in _targets(values)),
        ],
    )


def _against_fa4(case: Values) -> str:
    if case.get("over_fa4") is None:
        return "–"
    sides = (microseconds(case["microseconds"][side]["median"]) for side in ("FlashAttention-4", "ours"))
    return f"{' / '.join(sides)}: {case['over_fa4']['median']:.2f}"


def _rate(side: str, case: Values) -> str:
    if side not in case["microseconds"]:
        return ""
    return f"{microseconds(case['microseconds'][side]['median'])} ({case['tflop_s'][side]:.0f})"


def _attention_bars(values: Values) -> str:
    def least(entry: Values | None) -> str:
        return "–" if entry is None else f"{entry['least']:.2f} ({entry['case']}) of {entry['cases']} cases"

    def length(entry: Values) -> str:
        if entry["length"] is None:
            return "never"
        return (
            f"from {entry['length']:,} on"
            if entry["found"] == "between"
            else f"at {entry['length']:,} already"
        )

    found = values["bars"]
    aims = (
        ("90 % sparse, 4,096: 6 times cuDNN forward", "sparse_4096_forward"),
        ("90 % sparse, 16,384 and longer: 7.5 times cuDNN forward", "sparse_long_forward"),
        ("90 % sparse, 16,384 and longer: 5 times cuDNN forward and backward", "sparse_long_both"),
        ("ahead of FlexAttention at half the blocks and fewer, forward", "over_flex_forward"),
        ("the same, forward and backward", "over_flex_both"),
        ("half the blocks and fewer: as fast as FlashAttention-4, forward", "over_fa4_forward"),
        ("1.15 times as fast, forward and backward", "over_fa4_both"),
        ("all blocks: not behind flash, forward", "over_flash_forward"),
        ("the same, forward and backward", "over_flash_both"),
    )
    rows = [[aim, least(found.get(field))] for aim, field in aims]
    for keep, at_length in found["break_even"].items():
        aim = f"top-k with its selection, {100 * float(keep):g} % kept: ahead of cuDNN from 4,096 on"
        rows.append([aim, f"{length(at_length['device'])}; called eagerly {length(at_length['wall'])}"])
    if found["encoder"]:
        ratios = ", ".join(
            f"{name.replace('%', ' %')} {ratio:.2f}" for name, ratio in found["encoder"].items()
        )
        rows.append(["encoder, times dense", ratios])
    if found["disagreeing"]:
        rows.append(["every side agrees", "not in " + ", ".join(found["disagreeing"])])
    return markdown_table(["target", "measured (least)"], rows)


def _encoder_columns(values: Values) -> list[Column]:
    found = values["encoder"]
    size = f"{found['layers']} layers, width {found['dim']}, batch {found['batch']} x {found['length']:,}"
    return [
        Column(size, lambda row: "dense (cuDNN)" if row[0] == "cuDNN" else row[0].replace("%", " %")),
        Column("ms", lambda row: row[1]["median"] / 1e3, ".1f"),
        Column("times dense", lambda row: at(found, ("over_dense", row[0], "median")), ".2f", "–"),
    ]


def _called_and_graph(side: str, row: Values) -> str:
    """Times of a side as called and in a graph; "–" where it cannot run or be captured."""
    places = ("microseconds", "graph_microseconds")
    times = (at(row, (place, side, "median")) for place in places)
    return " / ".join("–" if time is None else microseconds(time) for time in times)


def _changing_columns(values: Values) -> list[Column]:
    sides = dict.fromkeys(side for row in values["changing"] for side in row["microseconds"])
    return [
        Column("kept", "keep", "g"),
        Column("length", "length", ",d"),
        *(Column(side, lambda row: row, partial(_called_and_graph, side)) for side in sides),
    ]


def _gathered(row: Values) -> str:
    return (
        f"{row['heads']} heads, {row['queries']:,} queries, {row['listed']} of {row['keys']:,} keys,"
        f" {'shared lists' if row['shared'] else 'a list a head'}, {_PASSES[row['gradient']]}"
    )


BLOCKS: dict[str, Block] = {
    "attention-bars": Text(("sparse_attention-cuda",), _attention_bars),
    "attention-speedups": _speedups(),
    "attention-speedups-short": _speedups((4096, 16384)),
    "attention-fa4": Table(
        "sparse_attention-cuda",
        _places,
        lambda values: [
            Column("length, head size", lambda row: _place(*row[0])),
            *(Column(f"density {target:g}", (1, target), _against_fa4) for target in _targets(values)),
        ],
    ),
    "attention-times": Table(
        "sparse_attention-cuda",
        _places,
        lambda values: [
            Column("µs (TFLOP/s)", lambda row: _place(*row[0])),
            *(
                # Dense sides attend every pair: any density will do.
                Column(side, lambda row: row[1][max(row[1])], partial(_rate, side))
                for side in ("cuDNN", "flash")
            ),
            *(
                Column(f"ours, {target:g}", (1, target), partial(_rate, "ours"))
                for target in _targets(values)
            ),
        ],
    ),
    "attention-patterns": Table(
        "sparse_attention-cuda",
        lambda values: [case for case in values["cases"] if not _is_main(case)],
        (
            Column("pattern", lambda case: _PATTERNS[case["pattern"]]),
            Column("length, head size", lambda case: _place(case["gradient"], case["length"], case["dim"])),
            Column("block", "block_size"),
            Column("type", "dtype"),
            Column("density", "density", ".3f"),
            Column("blocks kept", "block_density", ".3f"),
            Column("cuDNN, µs", "microseconds/cuDNN/median", microseconds, "–"),
            Column("ours, µs", "microseconds/ours/median", microseconds, "–"),
            Column("TFLOP/s", "tflop_s/ours", ".0f"),
            Column("times cuDNN", "over_dense/median", ".2f", "–"),
            Column("times FlexAttention", "over_flex/median", ".2f", "–"),
        ),
    ),
    "attention-selection": Table(
        "sparse_attention-cuda",
        lambda values: sorted(values["selection"], key=lambda row: (row["target"], row["length"])),
        (
            Column("kept", "target", "g"),
            Column("length", "length", ",d"),
            Column("cuDNN, µs", "microseconds/cuDNN/median", microseconds, "–"),
            Column("selection, µs", "microseconds/selection/median", microseconds, "–"),
            Column("with attention, µs", "microseconds/selection and attention/median", microseconds, "–"),
            Column("times cuDNN", "over_dense/median", ".2f", "–"),
            Column("the same eagerly, wall clock", "wall_over_dense/median", ".2f", "–"),
        ),
    ),
    "attention-changing": Table(
        "sparse_attention-cuda",
        lambda values: values.get("changing", []),
        lambda values: _changing_columns(values) if values.get("changing") else [],
    ),
    "attention-encoder": Table(
        "sparse_attention-cuda",
        lambda values: list(at(values, "encoder/microseconds").items()) if values["encoder"] else [],
        _encoder_columns,
    ),
    "attention-gathered": Table(
        "sparse_attention-cuda",
        "gathered",
        lambda values: [
            Column("µs", _gathered),
            *(
                Column(side, ("microseconds", side, "median"), microseconds, "–")
                for side in dict.fromkeys(side for row in values["gathered"] for side in row["microseconds"])
            ),
        ],
    ),
}
