"""Tables about block-sparse attention on the pages, made from the result file.

Each public function makes the text of one block; it is empty where the result file does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.published_text import load_result, markdown_table

_NAME = "sparse_attention-cuda"
_DENSE, _FLASH, _OURS = "cuDNN", "flash", "ours"
_PASSES = {False: "forward", True: "both"}
_PATTERNS = {
    "random": "random",
    "bigbird": "BigBird",
    "window+global": "window and global",
    "causal-window": "causal window",
    "top-k": "top-k",
}


def bars() -> str:
    """What was aimed at and what was reached."""
    values = load_result(_NAME)
    if values is None:
        return ""
    found = values["bars"]
    aims = [
        ("90 % sparse, 4,096: 6 times cuDNN forward", "sparse_4096_forward"),
        ("90 % sparse, 16,384 and longer: 7.5 times cuDNN forward", "sparse_long_forward"),
        ("90 % sparse, 16,384 and longer: 5 times cuDNN forward and backward", "sparse_long_both"),
        ("ahead of FlexAttention at half the blocks and fewer, forward", "over_flex_forward"),
        ("the same, forward and backward", "over_flex_both"),
        ("all blocks: not behind flash, forward", "over_flash_forward"),
        ("the same, forward and backward", "over_flash_both"),
    ]
    rows = [[aim, _least(found[field])] for aim, field in aims]
    for keep, lengths in found["break_even"].items():
        aim = f"top-k with its selection, {100 * float(keep):g} % kept: ahead of cuDNN from 4,096 on"
        rows.append([aim, f"{_length(lengths['device'])}; called eagerly {_length(lengths['wall'])}"])
    if found["encoder"]:
        ratios = ", ".join(f"{_name(name)} {ratio:.2f}" for name, ratio in found["encoder"].items())
        rows.append(["encoder, times dense", ratios])
    if found["disagreeing"]:
        rows.append(["every side agrees", "not in " + ", ".join(found["disagreeing"])])
    return markdown_table(["aim", "measured (least)"], rows)


def speedups() -> str:
    """Speed-up over cuDNN, and over FlexAttention where it was measured, by length, head size and density."""
    return _speedups(frozenset())


def speedups_in_short() -> str:
    """The same for two lengths."""
    return _speedups(frozenset({4096, 16384}))


def _speedups(lengths: frozenset[int]) -> str:
    values = load_result(_NAME)
    if values is None:
        return ""

    def cell(row: dict[str, Any] | None) -> str:
        if row is None:
            return ""
        over = _ratio(row["over_dense"])
        return over if row["over_flex"] is None else f"{over} / {_ratio(row['over_flex'])}"

    targets, keys, found = _main(values)
    return markdown_table(
        ["length, head size", *(f"density {target:g}" for target in targets)],
        (
            [_place(key), *(cell(found.get((*key, target))) for target in targets)]
            for key in keys
            if not lengths or key[1] in lengths
        ),
    )


def times() -> str:
    """Microseconds and TFLOP/s of the work really done, dense and ours, by length, head size and density."""
    values = load_result(_NAME)
    if values is None:
        return ""

    def cell(row: dict[str, Any] | None, side: str = _OURS) -> str:
        if row is None or side not in row["microseconds"]:
            return ""
        return f"{_us(row['microseconds'][side]['median'])} ({row['tflop_s'][side]:.0f})"

    targets, keys, found = _main(values)

    def dense(key: tuple[bool, int, int], side: str) -> str:
        some = next((found[*key, target] for target in targets if (*key, target) in found), None)
        return cell(some, side)

    return markdown_table(
        ["µs (TFLOP/s)", "cuDNN", "flash", *(f"ours, {target:g}" for target in targets)],
        (
            [
                _place(key),
                dense(key, _DENSE),
                dense(key, _FLASH),
                *(cell(found.get((*key, target))) for target in targets),
            ]
            for key in keys
        ),
    )


def patterns() -> str:
    """Other patterns, blocks of 64 and float16."""
    values = load_result(_NAME)
    if values is None:
        return ""
    rows = [
        row
        for row in values["cases"]
        if (row["pattern"], row["block_size"], row["dtype"]) != ("random", 128, "bfloat16")
    ]
    heads = ["pattern", "length, head size", "block", "type", "density", "blocks kept"]
    return markdown_table(
        [*heads, "cuDNN, µs", "ours, µs", "TFLOP/s", "times cuDNN", "times FlexAttention"],
        (
            [
                _PATTERNS[row["pattern"]],
                _place((row["gradient"], row["length"], row["dim"])),
                str(row["block_size"]),
                row["dtype"],
                f"{row['density']:.3f}",
                f"{row['block_density']:.3f}",
                _us(_median(row, _DENSE)),
                _us(_median(row, _OURS)),
                f"{row['tflop_s'][_OURS]:.0f}",
                _ratio(row["over_dense"]),
                _ratio(row["over_flex"]),
            ]
            for row in rows
        ),
    )


def selection() -> str:
    """Top-k with its selection."""
    values = load_result(_NAME)
    if values is None or not values["selection"]:
        return ""
    rows = sorted(values["selection"], key=lambda row: (row["target"], row["length"]))
    heads = ["kept", "length", "cuDNN, µs", "selection, µs", "with attention, µs", "times cuDNN"]
    return markdown_table(
        [*heads, "the same eagerly, wall clock"],
        (
            [
                f"{row['target']:g}",
                f"{row['length']:,}",
                _us(_median(row, _DENSE)),
                _us(_median(row, "selection")),
                _us(_median(row, "selection and attention")),
                _ratio(row["over_dense"]),
                _ratio(row["wall_over_dense"]),
            ]
            for row in rows
        ),
    )


def encoder() -> str:
    """The encoder, from input to output."""
    values = load_result(_NAME)
    if values is None or values["encoder"] is None:
        return ""
    found = values["encoder"]
    size = f"{found['layers']} layers, width {found['dim']}, batch {found['batch']} x {found['length']:,}"
    return markdown_table(
        [size, "ms", "times dense"],
        (
            [
                "dense (cuDNN)" if name == _DENSE else _name(name),
                f"{entry['median'] / 1e3:.1f}",
                _ratio(found["over_dense"].get(name)),
            ]
            for name, entry in found["microseconds"].items()
        ),
    )


def gathered() -> str:
    """Attention by lists of keys."""
    values = load_result(_NAME)
    if values is None or not values["gathered"]:
        return ""
    sides = list(dict.fromkeys(side for row in values["gathered"] for side in row["microseconds"]))
    return markdown_table(
        ["µs", *sides],
        (
            [
                f"{row['heads']} heads, {row['queries']:,} queries, {row['listed']} of {row['keys']:,} keys,"
                f" {'shared lists' if row['shared'] else 'a list a head'}, {_PASSES[row['gradient']]}",
                *(_us(_median(row, side)) for side in sides),
            ]
            for row in values["gathered"]
        ),
    )


def _main(
    values: dict[str, Any],
) -> tuple[list[float], list[tuple[bool, int, int]], dict[tuple[bool, int, int, float], dict[str, Any]]]:
    """Densities, places (pass, length, head size), and the cells of random blocks of 128 in bfloat16."""
    found = {
        (row["gradient"], row["length"], row["dim"], row["target"]): row
        for row in values["cases"]
        if (row["pattern"], row["block_size"], row["dtype"]) == ("random", 128, "bfloat16")
    }
    keys = sorted({key[:3] for key in found})
    return sorted({key[3] for key in found}, reverse=True), keys, found


def _place(key: Sequence[Any]) -> str:
    gradient, length, dim = key
    return f"{length:,}, {dim}, {_PASSES[bool(gradient)]}"


def _least(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "–"
    return f"{entry['least']:.2f} ({entry['case']}) of {entry['cases']} cases"


def _length(entry: dict[str, Any]) -> str:
    """A break-even in words."""
    if entry["length"] is None:
        return "never"
    return (
        f"from {entry['length']:,} on" if entry["found"] == "between" else f"at {entry['length']:,} already"
    )


def _name(name: str) -> str:
    return name.replace("%", " %")


def _ratio(entry: dict[str, float] | None) -> str:
    return "–" if entry is None else f"{entry['median']:.2f}"


def _median(row: dict[str, Any], side: str) -> float | None:
    found = row["microseconds"].get(side)
    return None if found is None else float(found["median"])


def _us(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
