"""Published blocks about the detector, merging and the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.lib.results import number
from benchmarks.publish.text import (
    Block,
    Column,
    Table,
    Text,
    Values,
    at,
    distinct,
    markdown_table,
    megabytes,
    millions,
    percent,
    pivot,
    spread,
    written,
)

_MEDIAN_MS = "time/median_ms"
_LEVELS = ("easy", "moderate", "hard")


def _where(values: Values, table: str) -> str:
    hardware, threads = values["environment"]["hardware"], values["environment"]["threads"]
    device = hardware["gpu"]["model"] if hardware["gpu"] else f"{hardware['cpu']['model']}, {threads} threads"
    return f"{device}; {len(values['frames']['names'])} frames.\n\n{table}"


def _candidates(file: str) -> Table:
    columns = (
        Column("level", lambda case: f"**{case['name']}**" if case["default"] else case["name"]),
        Column("ms", _MEDIAN_MS, ".2f", "–"),
        Column("of all", "of_all/median", ".2f", "–"),
        Column(
            "car 3D", "precision/car_3d", lambda car: " / ".join(f"{car[level]:.1f}" for level in _LEVELS)
        ),
        Column("car 3D, IoU 0.5", "precision/car_3d_loose/moderate", ".1f"),
        Column("cyclist", "precision/cyclist_3d/moderate", ".1f"),
    )
    return Table(file, "cases", columns, around=_where)


def _budgets(file: str) -> Table:
    def frames(found: dict[str, int]) -> str:
        return ", ".join(f"{level}: {number_}" for level, number_ in found.items() if number_)

    columns = (
        Column("budget, ms", "budget_ms", ".2f"),
        Column("frames within", "within", percent),
        Column("ms, median / 99 %", "time", lambda time: f"{time['median_ms']:.2f} / {time['p99_ms']:.2f}"),
        Column("switches", "switches"),
        Column("car 3D", "precision/car_3d/moderate", ".1f"),
        Column("frames of each level", "frames", frames),
    )
    return Table(file, "budgets", columns)


def _compression(accuracy: Values, cpu: Values | None, gpu: Values | None) -> str:
    base = accuracy["rows"]["float16"]["file_bytes"]
    pruned = {"magnitude": "no, by magnitude", "sparsegpt": "no, SparseGPT"}
    rows = []
    for name, found in accuracy["rows"].items():
        # Which weights are kept changes no time.
        plain = name.removesuffix(" tuned").removesuffix(" trained").removesuffix(" magnitude")
        trained = {"trained": "masks and values", "tuned": "masks"}.get(name.split(" ")[-1])
        sides = ((gpu, "load", 0), (cpu, "frame", 0), (gpu, "frame", 2))
        rows.append(
            [
                plain,
                trained or pruned.get(str(found["pruning"]), ""),
                f"{found['file_bytes'] / 1e6:.2f} MB",
                f"{found['file_bytes'] / base:.0%}",
                " / ".join(f"{precision:.1f}" for precision in found["car_3d"]),
                *(
                    number(at(side, ("rows", plain, what, "median_ms")), digits)
                    for side, what, digits in sides
                ),
            ]
        )
    heads = ["weights", "trained so", "file", "of float16", "Car 3D AP40"]
    return markdown_table([*heads, "load to a GPU, ms", "frame CPU, ms", "frame GPU, ms"], rows)


def _merging_speed(cpu: Values, cuda: Values | None) -> str:
    def seconds(value: float) -> str:
        return f"{value / 1e3:.2f} s" if value >= 1000 else f"{value:.0f} ms"

    rows = []
    for values in (cpu, cuda or {"cases": []}):
        for case in values["cases"]:
            gpu, threads = values["environment"]["hardware"]["gpu"], values["environment"]["threads"]
            device = gpu["model"] if gpu else f"CPU, {threads} threads"
            sides = [
                at(case, ("time", side, "median_ms")) for side in ("thresholds", "argsort", "stable argsort")
            ]
            rows.append(
                [
                    f"{device}, {millions(case['parameters'])}",
                    *("–" if side is None else seconds(side) for side in sides),
                    f"{case['over']['argsort']['median']:.1f}",
                    *(megabytes(case["beyond_the_models_bytes"][side]) for side in ("thresholds", "argsort")),
                ]
            )
    heads = ["", "here", "`argsort`", "stable `argsort`", "speed-up over `argsort`"]
    return markdown_table([*heads, "MB beyond the models, here", "`argsort`"], rows)


_WHOLE, _SHARE, _TIME = "{:,.0f}", "{:.4f}", "{:.2f} ms"
#: Figure of the results, words, what was aimed at, how it is written.
_MEMORY_BARS = (
    ("inserts_single_s", "durable inserts per second, one by one", "4,000", _WHOLE),
    ("inserts_grouped_s", "the same, 5,000 together", "50,000", _WHOLE),
    ("lsh_queries_s_at_95", "queries per second at recall@10 .95, index lsh (default)", "5,000", _WHOLE),
    ("filtered_least_recall", "least recall@10 with a filter, 100 to 0.01 %", "0.99", _SHARE),
    ("filtered_worst_p99_ms", "slowest 99th percentile of these", "5 ms", _TIME),
    ("last_seen_p99_ms", "last seen, a million memories, 99th percentile", "5 ms", _TIME),
    ("fresh_ms", "slowest first query after an acknowledgement", "10 ms", _TIME),
)


#: Sides whose speed at one recall is listed, each by its index.
_INDEXES = (
    ("ours, LSH", "queries per second at recall@10 .99, index lsh (default)", "–"),
    ("ours, faiss", "the same, index faiss (extra `faiss`)", "10,000"),
    ("hnswlib", "the same, hnswlib alone", "–"),
)


def _memory_bars(values: Values) -> list[tuple[Any, ...]]:
    """Rows: a figure, what it is, what was aimed at, how it is written."""
    rows = [(values["bars"][name], *words) for name, *words in _MEMORY_BARS]
    for side, words, aim in _INDEXES:
        good = [
            row["queries_s"] for row in values["searches"] if row["side"] == side and row["recall"] >= 0.99
        ]
        rows.append((max(good, default=None), words, aim, _WHOLE))
    return rows


def _searches(values: Values) -> str:
    parts = [values, *([values["real"]] if values.get("real") else [])]
    names = dict.fromkeys(row["side"] for part in parts for row in part["searches"])

    def fastest(part: Values, name: str, least: float) -> str:
        good = [
            row["queries_s"] for row in part["searches"] if row["side"] == name and row["recall"] >= least
        ]
        return f"{max(good):,.0f}" if good else "–"

    heads = ["", "at .95", "at .99"]
    heads += [head for part in parts[1:] for head in (f"{part['rows']:,} sentences at .95", "at .99")]
    rows = [
        [name, *(fastest(part, name, least) for part in parts for least in (0.95, 0.99))] for name in names
    ]
    return markdown_table(heads, rows)


def _moving(values: Values) -> str:
    found = values["moving"]
    return found and (
        f"While {found['added']:,} memories came in and {found['moved']:,} moved to the long-term tier,"
        f" a query took {found['median_ms']:.1f} ms (99th percentile {found['p99_ms']:.1f}, slowest"
        f" {found['worst_ms']:.1f}); before, {found['quiet_median_ms']:.1f} ms"
        f" ({found['quiet_p99_ms']:.1f})."
    )


def _retention(values: Values) -> list[Column]:
    names = dict.fromkeys(name for row in values["shares"] for name in row["sides"])
    return [
        Column("kept", "achieved", percent),
        *(Column(f"value, {name}", ("sides", name, "of_oracle"), _tenth) for name in names),
        Column("answers as the dense store's, ours", "sides/ours/agree", _tenth),
        Column("random", "sides/random/agree", _tenth),
    ]


def _tenth(share: float) -> str:
    return f"{100 * share:.1f} %"


_STORES = {"ours": "ours", "everything": "keeps everything", "latest": "keeps the most recent"}
_FATES = {
    "dropped": "were not kept",
    "displaced": "gave way to better ones",
    "merged": "were merged into others",
    "forgotten": "were forgotten as false alarms",
    "held": "are held",
}


def _stores(values: Values) -> list[Values]:
    return [values["summary"][name] | {"words": words} for name, words in _STORES.items()]


def _both(first: str, second: str, form: str) -> Callable[[Values], str]:
    return lambda store: form.format(store["figures"][first]["mean"], store["figures"][second]["mean"])


def _became(values: Values) -> str:
    settings, seeds = values["settings"], values["seeds"]
    fates = ", ".join(f"{sum(row[key] for row in seeds):,} {words}" for key, words in _FATES.items())
    observing = sorted(row["observe_ms"]["median"] for row in seeds)
    return (
        f"{len(seeds)} towns, {settings['days']} days of {settings['loops']} loops each,"
        f" {sum(row['scans'] for row in seeds):,} scans. Of {sum(row['observations'] for row in seeds):,}"
        f" observations: {fates}. Observing a scan took {observing[len(observing) // 2]:.0f} ms,"
        f" the tidying at the end of a day {max(row['end_of_day_s'] for row in seeds):.1f} s at most."
    )


_LIMITS = (
    Column("range", "name"),
    Column("pillars", "pillars", ",d"),
    Column("peaks / proposals / boxes", "limits", lambda most: " / ".join(f"{each:,d}" for each in most)),
    Column("frames at a limit", lambda case: max(case["reached"].values(), default=0)),
    Column("boxes from 0.3 on", "sure"),
    Column("lost", "lost"),
    Column("ms per frame", "time/median_ms", ".3g"),
    Column(
        "quartiles",
        "time",
        lambda time: f"{time['lower_quartile_ms']:.3g} to {time['upper_quartile_ms']:.3g}",
    ),
)

BLOCKS: dict[str, Block] = {
    "levels-cpu": _candidates("levels-cpu"),
    "levels-cuda": _candidates("levels-cuda"),
    "levels-budgets-cpu": _budgets("levels-cpu"),
    "levels-budgets-cuda": _budgets("levels-cuda"),
    "compression": Text(("compression-accuracy", "compression-cpu", "compression-cuda"), _compression),
    "merging-speed": Text(("merging-cpu", "merging-cuda"), _merging_speed),
    "merging-vectors": Table(
        "merging-cpu",
        "cases/0/task_vector",
        lambda values: [
            Column(f"{millions(values['cases'][0]['parameters'])} at 10 % density", "values"),
            Column("bytes", "bytes", ",d"),
            Column("of float32", "of_float32", ".4f"),
            Column("of 16 bits", "of_16_bits", ".4f"),
        ],
    ),
    "merging-files": Table(
        "merging_files-cpu",
        "cases",
        (
            Column("models", lambda case: f"{case['models']} of {millions(case['parameters'])}"),
            Column("they and the base, MB", "all_models_bytes", megabytes),
            Column("largest tensor", "largest_tensor_bytes", megabytes),
            Column("own memory", "own_bytes", megabytes),
            Column("of the models", "own_of_models", _tenth),
            Column("with mapped pages", "peak_bytes", megabytes),
        ),
    ),
    "memory-bars": Table(
        "memory-cpu",
        _memory_bars,
        (
            Column("figure", (1,)),
            Column("target", (2,)),
            Column("measured", lambda row: None if row[0] is None else written(row[0], row[3]), missing="–"),
        ),
    ),
    "memory-searches": Text(("memory-cpu",), _searches),
    "memory-filtered": Table(
        "memory-cpu",
        lambda values: pivot(values["filtered"], lambda row: row["side"], lambda row: row["selectivity"]),
        lambda values: [
            Column("recall@10 · 99th percentile in ms", (0,)),
            *(
                Column(
                    f"{100 * share:g} %",
                    (1, share),
                    lambda row: f"{row['recall']:.3f} · {row['p99_ms']:.1f}",
                    "–",
                )
                for share in distinct(values["filtered"], "selectivity")
            ),
        ],
    ),
    "memory-inserts": Table(
        "memory-cpu",
        "inserts",
        (Column("", "side"), Column("", "way"), Column("rows per second", "rows_s", ",.0f")),
    ),
    "memory-moving": Text(("memory-cpu",), _moving),
    "memory-retention": Table("retention-cpu", "shares", _retention),
    "drive": Table(
        "drive-cpu",
        _stores,
        (
            Column("store", "words"),
            Column("memories", "figures/memories/mean", ",.0f"),
            Column("MB", "figures/megabytes/mean", ".1f"),
            Column("precision", "figures/all_precision", spread(2)),
            Column("recall", "figures/all_recall", spread(2)),
            Column(
                "error, m, median / 95 %", _both("all_error_median_m", "all_error_95_m", "{:.2f} / {:.2f}")
            ),
            Column("answers right, %", "figures/right_share", spread(1, 100)),
            Column("query, ms, median / 95 %", _both("query_median_ms", "query_p95_ms", "{:.1f} / {:.0f}")),
        ),
    ),
    "drive-kinds": Table(
        "drive-cpu",
        _stores,
        lambda values: [
            Column("answers right", "words"),
            *(
                Column(kind, ("kinds", kind), lambda found: f"{found['right']} of {found['asked']}")
                for kind in values["summary"]["ours"]["kinds"]
            ),
        ],
    ),
    "drive-became": Text(("drive-cpu",), _became),
    **{f"limits-{device}": Table(f"limits-{device}", "cases", _LIMITS) for device in ("cpu", "cuda")},
}
