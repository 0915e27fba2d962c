"""A drive as text: counts of observations, a comparison of the stores, questions and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drive.comparison import StoreEvaluation
from drive.questions import Answer
from drive.report.picture import some_of_each_kind

#: Most answers shown, and most reasons per outcome.
MOST_ANSWERS, MOST_REASONS = 18, 3
_RIGHT, _WRONG = Text("✓", "bold green"), Text("✗", "bold red")


def show_tally(console: Console, tally: dict[str, Any]) -> None:
    """Print what happened to the observations, and why."""
    table = _table("Observations", "", "", "why", right=(1,))
    table.add_row("observed", f"{tally['offered']}", "")
    for name, words in (("dropped", "not kept"), ("forgotten", "forgotten")):
        reasons = sorted(tally[name].items(), key=lambda entry: -entry[1])
        rest = sum(count for _, count in reasons[MOST_REASONS:])
        shown = [f"{count} × {reason}" for reason, count in reasons[:MOST_REASONS]]
        shown += [f"{rest} × other reasons"] if rest else []
        table.add_row(words, f"-{sum(tally[name].values())}", "\n".join(shown))
        if name == "dropped":
            table.add_row(
                "displaced", f"-{tally['displaced']}", "replaced by better observations of the same object"
            )
            table.add_row("merged", f"-{tally['merged']}", "into memories of the same object")
    table.add_row("held", f"{tally['held']}", f"{tally['gone']} of them are history: their object is gone")
    console.print(table)
    took = [(tally[name]["median"], tally[name]["p95"]) for name in ("detection_ms", "observe_ms")]
    console.print(
        f"per scan, median (p95): detection {took[0][0]:.0f} ms ({took[0][1]:.0f}),"
        f" memory {took[1][0]:.1f} ms ({took[1][1]:.1f})"
    )


def show_results(console: Console, results: Sequence[StoreEvaluation]) -> None:
    """Print a comparison of the stores, and our answers."""
    table = _table(
        "\nPresent cars, by store",
        "store", "memories", "on disk", "precision", "recall", "error, m", "p95", "query, ms", "p95",
        "right answers",
    )  # fmt: skip
    for result in results:
        cars, asked = result.cars, result.to_json()["questions"]
        table.add_row(
            result.name, f"{result.memories}", f"{result.bytes / 1e3:,.0f} kB", f"{cars.precision:.2f}",
            f"{cars.recall:.2f}", _metres(cars.error_median_m), _metres(cars.error_95_m),
            f"{asked['median_ms']:.1f}", f"{asked['p95_ms']:.1f}",
            f"{result.right} of {len(result.answers)}",
        )  # fmt: skip
    console.print(table)
    kinds = list(dict.fromkeys(answer.kind for answer in results[0].answers))
    by_kind = _table("\nRight answers, by kind of question", "store", *kinds)
    for result in results:
        counts = result.to_json()["questions"]["by_kind"]
        by_kind.add_row(
            result.name, *(f"{counts[kind]['right']} of {counts[kind]['asked']}" for kind in kinds)
        )
    console.print(by_kind)
    _show_answers(console, results[0].answers)


def _show_answers(console: Console, answers: Sequence[Answer]) -> None:
    """Print some right answers of each kind, and all wrong ones."""
    shown = some_of_each_kind(answers, MOST_ANSWERS)
    title = "\nQuestions and answers" if len(shown) == len(answers) else "\nSome questions and answers"
    table = _table(title, "", "question", "answer", right=())
    for answer in shown:
        if answer.right:
            table.add_row(_RIGHT, answer.text, answer.said)
    for answer in answers:
        if not answer.right:
            table.add_row(_WRONG, answer.text, f"{answer.said} (wrong: {answer.expected})")
    console.print(table)


def _table(title: str, *heads: str, right: Sequence[int] | None = None) -> Table:
    """Return a table without lines; number columns (by default all but the first) are right-aligned."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for place, heading in enumerate(heads):
        number = place > 0 if right is None else place in right
        table.add_column(heading, justify="right" if number else "left", header_style="dim")
    return table


def _metres(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
