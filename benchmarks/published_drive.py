"""Tables about the long drive in the README and on the page about the memory, made from the result file.

Each public function makes the text of one block; it is empty where the result file does not exist.
"""

from __future__ import annotations

from typing import Any

from benchmarks.published_text import load_result, markdown_table

_DRIVE = "drive-cpu"
_NAMES = {"ours": "ours", "everything": "keeps everything", "latest": "keeps the most recent"}


def stores() -> str:
    """What three stores hold of a drive, and how right it is."""
    values = load_result(_DRIVE)
    if values is None:
        return ""
    rows = []
    for name, words in _NAMES.items():
        figures = values["summary"][name]["figures"]
        rows.append(
            [
                words,
                f"{figures['memories']['mean']:,.0f}",
                f"{figures['megabytes']['mean']:.1f}",
                _spread(figures["all_precision"], 2),
                _spread(figures["all_recall"], 2),
                f"{figures['all_error_median_m']['mean']:.2f} / {figures['all_error_95_m']['mean']:.2f}",
                f"{100 * figures['right_share']['mean']:.1f} ± {100 * figures['right_share']['std']:.1f}",
                f"{figures['query_median_ms']['mean']:.1f} / {figures['query_p95_ms']['mean']:.0f}",
            ]
        )
    heads = [
        "store",
        "memories",
        "MB",
        "precision",
        "recall",
        "error, m, median / 95 %",
        "answers right, %",
        "query, ms, median / 95 %",
    ]
    return markdown_table(heads, rows)


def kinds() -> str:
    """Answers right out of asked, by the kind of question."""
    values = load_result(_DRIVE)
    if values is None:
        return ""
    asked = list(values["summary"]["ours"]["kinds"])
    rows = []
    for name, words in _NAMES.items():
        found = values["summary"][name]["kinds"]
        rows.append([words, *(f"{found[kind]['right']} of {found[kind]['asked']}" for kind in asked)])
    return markdown_table(["answers right", *asked], rows)


def became() -> str:
    """A sentence about what became of the observations."""
    values = load_result(_DRIVE)
    if values is None:
        return ""
    settings, seeds = values["settings"], values["seeds"]
    total = {key: sum(row[key] for row in seeds) for key in _FATES}
    fates = ", ".join(f"{total[key]:,} {words}" for key, words in _FATES.items() if key != "observations")
    return (
        f"{len(seeds)} towns, {settings['days']} days of {settings['loops']} loops each,"
        f" {sum(row['scans'] for row in seeds):,} scans. Of {total['observations']:,} observations: {fates}."
        f" Observing a scan took {_median(seeds, 'observe_ms'):.0f} ms,"
        f" the tidying at the end of a day {max(row['end_of_day_s'] for row in seeds):.1f} s at most."
    )


_FATES = {
    "observations": "",
    "dropped": "were not kept",
    "displaced": "gave way to better ones",
    "merged": "were merged into others",
    "forgotten": "were forgotten as false alarms",
    "held": "are held",
}


def _median(seeds: list[dict[str, Any]], name: str) -> float:
    found = sorted(row[name]["median"] for row in seeds)
    return float(found[len(found) // 2])


def _spread(figure: dict[str, float], digits: int) -> str:
    return f"{figure['mean']:.{digits}f} ± {figure['std']:.{digits}f}"
