"""Tables about the memory in the README and on its pages, made from the result files.

Each public function makes the text of one block; it is empty where its result file does not exist.
"""

from __future__ import annotations

from typing import Any

from benchmarks.published_text import load_result, markdown_table

_MEMORY, _RETENTION, _PLACES = "memory-cpu", "retention-cpu", "places-cpu"
_WHOLE, _SHARE, _TIME = "{:,.0f}", "{:.4f}", "{:.2f} ms"
#: Figure of the results, words, what was aimed at, how it is written.
_BARS = (
    ("inserts_single_s", "durable inserts a second, one by one", "4,000", _WHOLE),
    ("inserts_grouped_s", "the same, 5,000 together", "50,000", _WHOLE),
    ("queries_s_at_99", "queries a second at recall@10 .99", "10,000", _WHOLE),
    ("lsh_queries_s_at_95", "without training at .95", "5,000", _WHOLE),
    ("filtered_least_recall", "least recall@10 with a filter, 100 to 0.01 %", "0.99", _SHARE),
    ("filtered_worst_p99_ms", "slowest 99th percentile of these", "5 ms", _TIME),
    ("last_seen_p99_ms", "last seen, a million memories, 99th percentile", "5 ms", _TIME),
    ("fresh_ms", "slowest first query after an acknowledgement", "10 ms", _TIME),
)


def bars() -> str:
    """What was aimed at and what was measured."""
    values = load_result(_MEMORY)
    if values is None:
        return ""
    found = values["bars"]
    rows = [
        [words, aim, "–" if found[name] is None else form.format(found[name])]
        for name, words, aim, form in _BARS
    ]
    return markdown_table(["figure", "aim", "measured"], rows)


def searches() -> str:
    """Queries a second at two recalls, of every side."""
    values = load_result(_MEMORY)
    if values is None:
        return ""
    real = values.get("real")
    heads = ["", "at .95", "at .99"]
    if real is not None:
        heads += [f"{real['rows']:,} sentences at .95", "at .99"]
    sides = [*values["searches"], *(real["searches"] if real is not None else ())]
    names = list(dict.fromkeys(row["side"] for row in sides))
    rows = []
    for name in names:
        cells = [_fastest(values["searches"], name, least) for least in (0.95, 0.99)]
        if real is not None:
            cells += [_fastest(real["searches"], name, least) for least in (0.95, 0.99)]
        rows.append([name, *cells])
    return markdown_table(heads, rows)


def filtered() -> str:
    """Recall and time of filtered queries by selectivity."""
    values = load_result(_MEMORY)
    if values is None:
        return ""
    shares = list(dict.fromkeys(row["selectivity"] for row in values["filtered"]))
    rows = []
    for name in dict.fromkeys(row["side"] for row in values["filtered"]):
        own = {row["selectivity"]: row for row in values["filtered"] if row["side"] == name}
        cells = [
            f"{own[share]['recall']:.3f} · {own[share]['p99_ms']:.1f}" if share in own else "–"
            for share in shares
        ]
        rows.append([name, *cells])
    heads = ["recall@10 · 99th percentile in ms", *(f"{100 * share:g} %" for share in shares)]
    return markdown_table(heads, rows)


def inserts() -> str:
    """Durable rows a second."""
    values = load_result(_MEMORY)
    if values is None:
        return ""
    rows = [[row["side"], row["way"], f"{row['rows_s']:,.0f}"] for row in values["inserts"]]
    return markdown_table(["", "", "rows a second"], rows)


def moving() -> str:
    """A sentence about queries while vectors move."""
    values = load_result(_MEMORY)
    if values is None or not values["moving"]:
        return ""
    found = values["moving"]
    return (
        f"While {found['added']:,} memories came in and {found['moved']:,} moved to the long-term tier,"
        f" a query took {found['median_ms']:.1f} ms (99th percentile {found['p99_ms']:.1f}, slowest"
        f" {found['worst_ms']:.1f}); before, {found['quiet_median_ms']:.1f} ms"
        f" ({found['quiet_p99_ms']:.1f})."
    )


def retention() -> str:
    """Value and answers by the share that is kept."""
    values = load_result(_RETENTION)
    if values is None:
        return ""
    names = list(dict.fromkeys(name for row in values["shares"] for name in row["sides"]))
    heads = ["kept", *(f"value, {name}" for name in names), "answers as the dense store's, ours", "random"]
    rows = []
    for row in values["shares"]:
        sides = row["sides"]
        rows.append(
            [
                f"{100 * row['achieved']:.0f} %",
                *(f"{100 * sides[name]['of_oracle']:.1f} %" for name in names),
                *(_percent(sides.get(name, {}).get("agree")) for name in ("ours", "random")),
            ]
        )
    return markdown_table(heads, rows)


def places() -> str:
    """Place recognition of every encoder."""
    values = load_result(_PLACES)
    if values is None:
        return ""
    gaps = [gap["gap_frames"] for gap in next(iter(values["sides"].values()))["gaps"]]
    rows = []
    for name, side in values["sides"].items():
        spent = "" if side["ms_a_frame"] is None else f"{side['ms_a_frame']:.1f}"
        rows.append([name, *(f"{gap['recall_at_1']:.3f}" for gap in side["gaps"]), spent])
    heads = ["recall@1 within 0.5 m", *(f"gap of {gap} frames" for gap in gaps), "ms a frame"]
    return markdown_table(heads, rows)


def _fastest(rows: list[dict[str, Any]], name: str, least: float) -> str:
    good = [row["queries_s"] for row in rows if row["side"] == name and row["recall"] >= least]
    return f"{max(good):,.0f}" if good else "–"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"
