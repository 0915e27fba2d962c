"""The drive as text: what became of the observations, the stores side by side, questions and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from drive.asking import Answer
from drive.comparing import Judged
from drive.picture import some_of_each_kind

#: Answers that are shown, and reasons of each fate.
MOST_ANSWERS, MOST_REASONS = 18, 3
_RIGHT, _WRONG = Text("✓", "bold green"), Text("✗", "bold red")


def show_tally(console: Console, tally: dict[str, Any]) -> None:
    """What became of the observations, and why."""
    table = _table("What became of the observations", "", "", "why", right=(1,))
    table.add_row("observed", f"{tally['offered']}", "")
    for name, words in (("dropped", "not kept"), ("forgotten", "forgotten")):
        reasons = sorted(tally[name].items(), key=lambda entry: -entry[1])
        rest = sum(count for _, count in reasons[MOST_REASONS:])
        shown = [f"{count} × {reason}" for reason, count in reasons[:MOST_REASONS]]
        shown += [f"{rest} × other reasons"] if rest else []
        table.add_row(words, f"-{sum(tally[name].values())}", "\n".join(shown))
        if name == "dropped":
            table.add_row(
                "displaced", f"-{tally['displaced']}", "better sights of the same place and time came"
            )
            table.add_row("merged", f"-{tally['merged']}", "into memories of the same thing")
    table.add_row("held", f"{tally['held']}", f"{tally['gone']} things were found gone, and stay as history")
    console.print(table)
    took = [(tally[name]["median"], tally[name]["p95"]) for name in ("detection_ms", "observe_ms")]
    console.print(
        f"detection {took[0][0]:.0f} ms a scan (95 %: {took[0][1]:.0f}),"
        f" observing {took[1][0]:.1f} ms ({took[1][1]:.1f})"
    )


def show_results(console: Console, results: Sequence[Judged]) -> None:
    """The stores side by side, and what ours answered."""
    table = _table(
        "\nWhich cars are where now",
        "store", "memories", "on disk", "precision", "recall", "error, m", "95 %", "query, ms", "95 %",
        "right",
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
    by_kind = _table("\nAnswers right, by the kind of question", "store", *kinds)
    for result in results:
        counts = result.to_json()["questions"]["by_kind"]
        by_kind.add_row(
            result.name, *(f"{counts[kind]['right']} of {counts[kind]['asked']}" for kind in kinds)
        )
    console.print(by_kind)
    _show_answers(console, results[0].answers)


def _show_answers(console: Console, answers: Sequence[Answer]) -> None:
    """Some of each kind, and all that are wrong."""
    shown = some_of_each_kind(answers, MOST_ANSWERS)
    title = "\nAsked and answered" if len(shown) == len(answers) else "\nSome of what was asked and answered"
    table = _table(title, "", "question", "answer", right=())
    for answer in shown:
        if answer.right:
            table.add_row(_RIGHT, answer.text, answer.said)
    for answer in answers:
        if not answer.right:
            table.add_row(_WRONG, answer.text, f"{answer.said} (wrong: {answer.expected})")
    console.print(table)


def _table(title: str, *heads: str, right: Sequence[int] | None = None) -> Table:
    """Without lines; all columns but the first are numbers, or those that are named."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for place, heading in enumerate(heads):
        number = place > 0 if right is None else place in right
        table.add_column(heading, justify="right" if number else "left", header_style="dim")
    return table


def _metres(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
