"""Report of a drive as one HTML page: figures, map, outcomes of observations, answers, times, example scans.

The page is self-contained: style, drawings and pictures are inside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from drive.comparison import StoreEvaluation, size_of
from drive.report.charts import curves, example_figure
from drive.report.evaluation import answer_sections, store_sections
from drive.report.map import class_rules, map_figure
from drive.report.picture import DriveSummary
from drive.robot import Tally
from drive.tour import DIM
from drive.viewers import Day, DriveViewer, Example
from memory import MemoryStore
from memory.errors import UnknownMemoryError
from sparse_core.common.files import write_file

#: Most memories whose fate the store explains; the others are only counted.
_MOST_EXPLAINED = 20_000
_MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? UTC"


@dataclass(frozen=True)
class ReportContent:
    """Content of a report; empty parts are omitted.

    Attributes:
        title, settings: of the drive, in words.
        drawn: map and curves.
        tally: outcomes of the observations.
        results: evaluations of the stores, the robot's own first; empty without ground truth.
        answers: plain answers, for drives without ground truth.
        truth: source of the ground truth.
        bytes: size of the robot's store.
        days, examples: see :class:`drive.viewers.DriveViewer`.
        fates: see :func:`fates_of`.
    """

    title: str
    settings: str
    drawn: DriveSummary
    tally: Tally
    results: Sequence[StoreEvaluation] = ()
    answers: Sequence[str] = ()
    truth: str = "the simulator's"
    bytes: int = 0
    days: Sequence[Day] = ()
    examples: Sequence[Example] = ()
    fates: Sequence[tuple[str, str, int, str]] = field(default=())


def write_report(path: Path, shown: ReportContent) -> Path:
    """Write the page.

    Raises:
        ValueError: the name does not end in .html.
        OSError: the file cannot be written.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path}: choose a name that ends in .html")
    labels = sorted(
        {memory.label for memory in shown.drawn.memories if memory.kind == "object"}
        | {label for label, _ in shown.drawn.trails}
        | {label for example in shown.examples for label in example.detections.labels}
    )
    style = (Path(__file__).parent / "report.css").read_text(encoding="utf-8") + class_rules(labels)
    parts = [
        f"<h1>{escape(shown.title)}</h1><p class=soft>{escape(shown.settings)}</p>",
        _tiles(shown),
        "<h2>Map of the drive and its memories</h2>",
        map_figure(shown.drawn),
        *_became(shown),
        *answer_sections(shown.results, shown.answers, shown.truth),
        *store_sections(shown.results),
        *_times(shown),
        *_examples(shown.examples),
    ]
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(shown.title)}</title><style>{style}</style></head><body><main>"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, page.encode("utf-8", "replace"))
    return path


def report_drive(
    path: Path | None,
    view: DriveViewer,
    folder: Path,
    drawn: DriveSummary,
    tally: Tally,
    *,
    settings: dict[str, Any],
    results: Sequence[StoreEvaluation] = (),
    answers: Sequence[str] = (),
    truth: str = "the simulator's",
) -> Path | None:
    """Write the page of a drive, if requested.

    Args:
        path: of the page, or None.
        view: viewer of the drive.
        folder: of the robot's store, closed.
        drawn, tally, results, answers, truth: see :class:`ReportContent`.
        settings: of the drive, by name.
    """
    if path is None:
        return None
    shown = ReportContent(
        "Report of a drive and its memory",
        f"{drawn.title}. {settings_text(settings)}",
        drawn,
        tally,
        results,
        answers,
        truth,
        size_of(folder),
        view.days,
        view.examples,
        fates_of(folder, DIM),
    )
    return write_report(path, shown)


def fates_of(folder: Path, dim: int, most: int = _MOST_EXPLAINED) -> list[tuple[str, str, int, str]]:
    """Return why the memories of a store were kept, merged or forgotten, as the store explains it.

    Args:
        folder: of the store, closed.
        dim: vector length.
        most: most memories to explain.

    Returns:
        Outcome, reason, count, and one full example; most frequent first.
    """
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    with MemoryStore.open(folder, dim=dim) as store:
        number = 0
        while number < most:
            number += 1
            try:
                explanation = store.explain(number)
            except UnknownMemoryError:
                break
            # The time of storage is part of every explanation and is no reason.
            reasons = [text for text in explanation.reasons if not text.startswith("it is stored since")]
            reason = [*reasons, *explanation.reasons, "no reason is on record"][0]
            fate = (explanation.status, without_numbers(reason))
            counts[fate] += 1
            examples.setdefault(fate, f"memory {number}: {'; '.join(explanation.reasons)}")
    return [(status, why, count, examples[status, why]) for (status, why), count in counts.most_common()]


def without_numbers(reason: str) -> str:
    """Return a reason without times and numbers, so that equal kinds compare equal."""
    reason = re.sub(rf"^\w+ on {_MOMENT}: ", "", reason)
    reason = re.sub(rf"(?: since| at)? {_MOMENT}(?:, present before)?", "", reason)
    return re.sub(r"\s+", " ", re.sub(r"[-+]?\d+(?:[.:,]\d+)*", "…", reason)).strip()


def _tiles(shown: ReportContent) -> str:
    tally = shown.tally
    tiles = [
        (f"{len(tally.timeline):,}", "scans"),
        (f"{tally.offered:,}", "observations"),
        (f"{len(shown.drawn.memories):,}", "memories"),
    ]
    if shown.bytes:
        tiles.append((f"{shown.bytes / 1e3:,.0f} kB", "on disk"))
    if shown.results:
        ours = shown.results[0]
        tiles += [
            (f"{ours.right} / {len(ours.answers)}", "answers right"),
            (f"{ours.cars.precision:.2f}", "precision, cars now"),
            (f"{ours.cars.recall:.2f}", "recall, cars now"),
        ]
    if tally.detection_ms:
        tiles.append((f"{np.median(tally.detection_ms):.0f} ms", "detection, median"))
    inside = "".join(f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for value, name in tiles)
    return f'<div class="tiles">{inside}</div>'


def _became(shown: ReportContent) -> Iterable[str]:
    tally = shown.tally
    yield "<h2>Outcomes of the observations</h2>"
    parts = [
        ("in memory now", tally.held, "kept"),
        ("merged into others", tally.merged, "merged"),
        ("displaced by better ones", tally.displaced, "displaced"),
        ("forgotten", tally.forgotten.total(), "forgotten"),
        ("not stored", tally.dropped.total(), "dropped"),
    ]
    total = max(sum(count for _, count, _ in parts), 1)
    yield (
        '<div class="stack" role="img" aria-label="Outcomes of the observations">'
        + "".join(
            f'<i style="--key:var(--{name});width:{100 * count / total:.2f}%" title="{title}: {count}"></i>'
            for title, count, name in parts
            if count
        )
        + "</div>"
    )
    yield (
        '<div class="legend">'
        + "".join(
            f'<span><i class="key" style="--key:var(--{name})"></i>{title}: <b>{count:,}</b>'
            f" ({100 * count / total:.1f} %)</span>"
            for title, count, name in parts
        )
        + "</div>"
    )
    yield f"<p class=note>The objects of {tally.gone} memories are gone.</p>"
    rows = [("not stored", why, count, "dropped") for why, count in tally.dropped.most_common()]
    rows += [("forgotten", why, count, "forgotten") for why, count in tally.forgotten.most_common()]
    if rows:
        yield "<h2>Why observations were not stored</h2>" + _reasons(rows)
    if shown.fates:
        fates = [(status, why, count, _key_of(status)) for status, why, count, _ in shown.fates]
        yield "<h2>Why memories were kept, merged or forgotten</h2>" + _reasons(fates[:12])
        examples = "".join(
            f"<tr><td>{escape(status)}</td><td>{escape(example)}</td></tr>"
            for status, _, _, example in shown.fates[:12]
        )
        yield (
            "<details><summary>One example of each, explained by the store</summary>"
            f'<div class="scroll"><table class="words"><tbody>{examples}</tbody></table></div></details>'
        )


def _key_of(status: str) -> str:
    return {"kept": "kept", "merged": "merged", "forgotten": "forgotten"}.get(status, "displaced")


def _reasons(rows: Sequence[tuple[str, str, int, str]]) -> str:
    most = max(count for _, _, count, _ in rows)
    body = "".join(
        f"<tr><td>{escape(status)}</td><td>{escape(why)}</td><td class=count>{count:,}</td>"
        f'<td class="bars"><div class="bar" style="--key:var(--{key});width:{100 * count / most:.1f}%"></div>'
        "</td></tr>"
        for status, why, count, key in rows
    )
    return f'<div class="scroll"><table class="words"><tbody>{body}</tbody></table></div>'


def _times(shown: ReportContent) -> Iterable[str]:
    tally = shown.tally
    counts = np.array(tally.timeline, np.float64).reshape(-1, 2)
    yield '<h2>Over time</h2><div class="two">'
    yield curves(
        "Observations and memories",
        [
            ("offered", "var(--dropped)", counts[:, 0].tolist()),
            ("held", "var(--kept)", counts[:, 1].tolist()),
        ],
        shown.days,
    )
    milliseconds = [
        ("detection", "var(--kept)", tally.detection_ms),
        ("memory", "var(--merged)", tally.observe_ms),
    ]
    yield curves("Time per scan", milliseconds, shown.days, unit="ms") + "</div>"
    asked = [answer.ms for answer in shown.results[0].answers] if shown.results else []
    rows = [
        ("detection, per scan", tally.detection_ms),
        ("memory, per scan", tally.observe_ms),
        ("consolidation, per day", [1e3 * value for value in tally.consolidation_s]),
        ("check for gone objects, per day", [1e3 * value for value in tally.presence_s]),
        ("answer, per question", asked),
    ]
    body = "".join(
        f"<tr><td>{name}</td><td>{len(values):,}</td>"
        + "".join(f"<td>{value:,.1f}</td>" for value in (*np.percentile(values, [50, 95]), max(values)))
        + "</tr>"
        for name, values in rows
        if values
    )
    yield (
        '<div class="scroll"><table><thead><tr><th>milliseconds</th><th>count</th><th>median</th>'
        f"<th>p95</th><th>maximum</th></tr></thead><tbody>{body}</tbody></table></div>"
    )


def _examples(examples: Sequence[Example]) -> Iterable[str]:
    if examples:
        yield "<h2>Example scans with detections</h2>"
        yield '<div class="scans">' + "".join(map(example_figure, examples)) + "</div>"


def settings_text(settings: dict[str, Any]) -> str:
    """Return settings in one line."""
    return " · ".join(f"{name} {value}" for name, value in settings.items() if value is not None)
