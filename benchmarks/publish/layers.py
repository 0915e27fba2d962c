"""Published blocks about layers: 2:4, block-sparse attention, sparse training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.layers.dynamic_summary import MEASURES, score_text
from benchmarks.publish.text import (
    Block,
    Column,
    Table,
    Text,
    Values,
    at,
    distinct,
    markdown_table,
    microseconds,
    pivot,
    spread,
)


def _bars(rows: Sequence[tuple[str, ...]], heads: Sequence[str], values: Values) -> str:
    """Aims in words, each with a template that is filled from the measured bars."""
    return markdown_table(
        heads, [[words, *(form.format(**values["bars"]) for form in forms)] for words, *forms in rows]
    )


_FEW = (1, 16, 32, 128, 1024, 4096, 16384, 65536)
_ROWS = (1, 8, 16, 32, 128, 1024, 4096, 8192, 16384, 65536)
_WEIGHTS = ((768, 768), (3072, 768), (1024, 4096), (4096, 4096), (11008, 4096), (4096, 14336))
_IN_GRAPH = "microseconds/{} in a graph/median"
_ACCURACY = {
    "dense": "dense",
    "dense, trained on": "dense, trained as long as the rows below",
    "magnitude": "magnitude",
    "Wanda": "Wanda",
    "SparseGPT": "SparseGPT",
    "permuted": "permuted, magnitude",
    "permuted, SparseGPT": "permuted, SparseGPT",
    "fixed masks": "magnitude, then trained with fixed masks",
    "SR-STE": "SR-STE",
    "SR-STE, distilled": "SR-STE, distilled",
}


def _layer_grid(
    values: Values, dtype: str, weights: Sequence[Any] = (), counts: Sequence[int] = _ROWS
) -> str:
    cases = [case for case in values["cases"] if case["dtype"] == dtype and case["model"] != "odd"]
    found = dict(pivot(cases, lambda c: (c["out"], c["columns"]), lambda c: c["rows"]))
    measured = {case["rows"] for case in cases}

    def over(case: Values) -> str:
        return "dense" if case["method"] == "dense" else f"{case['over_dense']['median']:.2f}"

    columns = [Column(f"{n:,}", (1, n), over) for n in counts if weights or n in measured]
    rows = [(weight, found.get(weight, {})) for weight in weights or found]
    return markdown_table(
        ["out x in", *(column.head for column in columns)],
        [[f"{row[0][0]} x {row[0][1]}", *(column.cell(row) for column in columns)] for row in rows],
    )


def _layers_detail(values: Values) -> str:
    return "\n\n".join(
        f"**{dtype}**\n\n{_layer_grid(values, dtype)}" for dtype in ("bfloat16", "float16", "int8")
    )


def _eager(values: Values) -> str:
    small = [
        case["microseconds"]["ours eager"]["median"] - case["microseconds"]["dense eager"]["median"]
        for case in values["cases"]
        if case["dtype"] == "bfloat16" and case["method"] == "dense" and case["rows"] <= 1024
    ]
    return (
        f"Called eagerly, a layer costs about {sorted(small)[len(small) // 2]:.0f} µs of Python on top of"
        " `nn.Linear`"
        f" (median of {len(small)} cases where both run dense; worst ratio"
        f" {values['bars']['eager_worst_over_dense']:.2f}). In a CUDA graph that is gone; the tables compare"
        " graphs."
    )


def _way(case: Values) -> str:
    method = str(case["method"]).split(" ")[0]
    return {"cuda": "few rows", "vendor": "cuSPARSELt"}.get(method, method)


def _accuracy(values: Values) -> str:
    cases = {(c["model"], c["pattern"]): c["rows"] for c in values["cases"] if c["pattern"] in ("2:4", "1:4")}
    rows = [
        [label, *(spread(1, 100)(rows[name]["accuracy"]) for rows in cases.values())]
        for name, label in _ACCURACY.items()
        if all(name in rows for rows in cases.values())
    ]
    return markdown_table(["test accuracy, %", *(f"{model}, {pattern}" for model, pattern in cases)], rows)


_NM: dict[str, Block] = {
    "nm-layers": Text(("nm_linear-cuda",), lambda v: _layer_grid(v, "bfloat16", _WEIGHTS, _FEW)),
    "nm-layers-detail": Text(("nm_linear-cuda",), _layers_detail),
    "nm-layers-cpu": Text(
        ("nm_linear-cpu",), lambda v: _layer_grid(v, "float32", counts=(1, 2, 4, 8, 16, 32, 128))
    ),
    "nm-odd": Table(
        "nm_linear-cuda",
        lambda values: [
            case
            for case in values["cases"]
            if case["model"] == "odd"
            or (case["dtype"] == "bfloat16" and case["rows"] in (3, 100, 1001, 4097))
        ],
        (
            Column("weight, out x in", lambda case: f"{case['out']} x {case['columns']}"),
            Column("rows", "rows", ",d"),
            Column("way", _way),
            Column("dense, µs", _IN_GRAPH.format("dense"), microseconds),
            Column("ours, µs", _IN_GRAPH.format("ours"), microseconds),
            Column("times as fast", "over_dense/median", ".2f"),
        ),
    ),
    "nm-bars": Text(
        ("nm_linear-cuda",),
        partial(
            _bars,
            (
                (
                    "never under 0.99 of dense (in a graph)",
                    "worst {worst_over_dense:.2f} ({worst_case}) of {cases} cases",
                ),
                (
                    "4,096 rows and more, bfloat16: geometric mean 1.4",
                    "{many_rows_geometric_mean:.2f}; weights of 4096 x 4096 and larger"
                    " {many_rows_large_geometric_mean:.2f}",
                ),
                (
                    "3 times torch's eager 2:4 at 4096³ and smaller",
                    "least {over_torch_eager_least:.1f}, geometric mean"
                    " {over_torch_eager_geometric_mean:.1f}",
                ),
                (
                    "16 rows and fewer, 4096 x 4096 and larger, bfloat16: 1.4",
                    "least {few_rows_least:.2f}, geometric mean {few_rows_geometric_mean:.2f}",
                ),
                ("prune and pack 1024 x 4096 bfloat16 in 20 µs", "{prune_and_pack_us:.1f} µs"),
            ),
            ("aim", "measured"),
        ),
    ),
    "nm-eager": Text(("nm_linear-cuda",), _eager),
    "nm-packing": Table(
        "nm_linear-cuda",
        "packing",
        (
            Column("bfloat16 weight", lambda row: f"{row['out']} x {row['columns']}"),
            Column("prune and pack, µs", "microseconds/prune and pack/median", microseconds),
            Column("both directions, µs", "microseconds/both directions/median", microseconds),
            Column("torch, both directions, µs", "microseconds/torch, both directions/median", microseconds),
        ),
    ),
    "nm-accuracy": Text(("pruning-accuracy",), _accuracy),
}

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
        ("all blocks: not behind flash, forward", "over_flash_forward"),
        ("the same, forward and backward", "over_flash_both"),
    )
    rows = [[aim, least(found[field])] for aim, field in aims]
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
    return markdown_table(["aim", "measured (least)"], rows)


def _encoder_columns(values: Values) -> list[Column]:
    found = values["encoder"]
    size = f"{found['layers']} layers, width {found['dim']}, batch {found['batch']} x {found['length']:,}"
    return [
        Column(size, lambda row: "dense (cuDNN)" if row[0] == "cuDNN" else row[0].replace("%", " %")),
        Column("ms", lambda row: row[1]["median"] / 1e3, ".1f"),
        Column("times dense", lambda row: at(found, ("over_dense", row[0], "median")), ".2f", "–"),
    ]


def _gathered(row: Values) -> str:
    return (
        f"{row['heads']} heads, {row['queries']:,} queries, {row['listed']} of {row['keys']:,} keys,"
        f" {'shared lists' if row['shared'] else 'a list a head'}, {_PASSES[row['gradient']]}"
    )


_ATTENTION: dict[str, Block] = {
    "attention-bars": Text(("sparse_attention-cuda",), _attention_bars),
    "attention-speedups": _speedups(),
    "attention-speedups-short": _speedups((4096, 16384)),
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

_TASKS = {"digits-mlp": "digits, perceptron", "digits-convnet": "digits, convnet", "text-transformer": "text"}
#: Rows of the table of costs; static random costs what SET does, and constant fan-in what RigL does.
_COSTS = ("dense", "small dense", "SET", "RigL", "RigL, blocks")
_KINDS = ("block 16", "block 32", "block 64", "block 128", "unstructured, unpacked", "unstructured")
_FORWARD = ("block 16", "block 32", "block 64", "block 128", "fan-in", "unstructured")
_HELD = ("dense", "block 64", "unstructured, unpacked", "unstructured")


def _training(case: Values) -> tuple[str, float]:
    return case["label"], case["sparsity"]


def _trained(key: tuple[str, float]) -> str:
    return f"{key[0]}, {key[1]:.0%}" if key[1] else key[0]


def _trainings(values: Values) -> list[Any]:
    rows = pivot(values["cases"], _training, lambda case: (case["task"], case["length"]))
    return sorted(rows, key=lambda row: row[0][1])


def _scores(values: Values) -> list[Column]:
    places = sorted(
        distinct(values["cases"], "task", "length"), key=lambda p: (list(MEASURES).index(p[0]), p[1])
    )
    return [
        Column("accuracy in %; text: bits a character", lambda row: _trained(row[0])),
        *(
            Column(
                _TASKS[task] + (f", {length}x" if length > 1 else ""), (1, (task, length)), score_text, "–"
            )
            for task, length in places
        ),
    ]


def _costs(values: Values) -> list[Column]:
    lengths = sorted(distinct(values["cases"], "length"))
    heading = " / ".join(f"{length}x" for length in lengths)

    def work(task: str, row: Any) -> str:
        found = (row[1].get((task, length)) for length in lengths)
        return " / ".join("–" if case is None else f"{case['cost']:.2f}" for case in found)

    columns = [Column("", lambda row: _trained(row[0]))]
    for task in (task for task in _TASKS if any(case["task"] == task for case in values["cases"])):
        columns.append(
            Column(f"{_TASKS[task]}: parameters", (1, (task, lengths[0]), "parameters"), ",d", "–")
        )
        columns.append(Column(f"multiply-adds, {heading}", partial(work, task)))
    return columns


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
    return markdown_table(["aim", "measured"], rows)


_DYNAMIC: dict[str, Block] = {
    "dynamic-accuracy": Table("dynamic-accuracy", _trainings, _scores),
    "dynamic-cost": Table(
        "dynamic-accuracy", lambda values: [row for row in _trainings(values) if row[0][0] in _COSTS], _costs
    ),
    "dynamic-detector": Table(
        "dynamic-accuracy-detector",
        "cases",
        (
            Column("", lambda case: _trained(_training(case))),
            Column("steps", "steps", ",d"),
            Column(
                "Car 3D AP40, easy / moderate / hard",
                lambda case: " / ".join(
                    score_text(case, f"ap_{level}") for level in ("easy", "moderate", "hard")
                ),
            ),
            Column("seen from above, moderate", lambda case: score_text(case, "ap_bev")),
            Column("loss", lambda case: score_text(case, "loss")),
            Column("n", "seeds", lambda seeds: str(len(seeds))),
            Column("multiply-adds", "cost", ".2f"),
        ),
    ),
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
    "dynamic-cpu": Text(("dynamic-cpu",), _dynamic_cpu),
}

BLOCKS: dict[str, Block] = {**_NM, **_ATTENTION, **_DYNAMIC}
