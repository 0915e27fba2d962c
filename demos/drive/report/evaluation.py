"""Report sections of the evaluation: answers against the truth, and a comparison of the stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from drive.comparison import StoreEvaluation


def answer_sections(
    results: Sequence[StoreEvaluation], answers: Sequence[str], truth: str = "the simulator's"
) -> Iterator[str]:
    """Yield questions with answers and the truth, or plain answers without ground truth."""
    if answers:
        items = "".join(f"<li>{escape(line)}</li>" for line in answers)
        yield f"<h2>Answers</h2><ul>{items}</ul>"
        yield "<p class=note>A recorded drive has no ground truth, so there is no score.</p>"
    if not results:
        return
    yield "<h2>Answers against the truth</h2>"
    by_kind = [result.to_json()["questions"]["by_kind"] for result in results]
    kinds = list(by_kind[0])
    head = "".join(f"<th>{escape(kind)}</th>" for kind in (*kinds, "all"))
    body = ""
    for result, counts in zip(results, by_kind, strict=True):
        cells = "".join(
            f"<td>{counts[kind]['right']} / {counts[kind]['asked']}</td>" if kind in counts else "<td>-</td>"
            for kind in kinds
        )
        best = " class=best" if result is results[0] else ""
        total = f"<td>{result.right} / {len(result.answers)}</td>"
        body += f"<tr{best}><td>{escape(result.name)}</td>{cells}{total}</tr>"
    yield (
        f'<div class="scroll"><table><thead><tr><th>store</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
        f"<p class=note>The truth is {escape(truth)}. An unknown answer counts as wrong.</p>"
    )
    ours = results[0].answers
    for right, title in ((False, "wrong"), (True, "right")):
        chosen = [answer for answer in ours if answer.right is right]
        rows = "".join(
            f'<tr><td class="{title}">{"✓" if right else "✗"}</td><td>{escape(answer.kind)}</td>'
            f"<td>{escape(answer.text)}</td><td>{escape(answer.said)}</td><td>{escape(answer.expected)}</td></tr>"
            for answer in chosen
        )
        if rows:
            yield (
                f"<details{'' if right else ' open'}><summary>{_answers_are(len(chosen), title)}</summary>"
                '<div class="scroll"><table class="words"><thead><tr><th></th><th>kind</th><th>question</th>'
                f"<th>answer</th><th>true</th></tr></thead><tbody>{rows}</tbody></table></div></details>"
            )


def _answers_are(count: int, title: str) -> str:
    return f"1 answer is {title}" if count == 1 else f"{count} answers are {title}"


def store_sections(results: Sequence[StoreEvaluation]) -> Iterator[str]:
    """Yield the comparison of the stores."""
    if not results:
        return
    heads = (
        "store",
        "memories",
        "kB",
        "precision",
        "recall",
        "near a car",
        "error m, median",
        "p95",
    )
    body = ""
    for place, result in enumerate(results):
        cars = result.cars
        errors = [
            "-" if value is None else f"{value:.2f}" for value in (cars.error_median_m, cars.error_95_m)
        ]
        cells = (
            f"{result.memories:,}",
            f"{result.bytes / 1e3:,.0f}",
            f"{cars.precision:.2f}",
            f"{cars.recall:.2f}",
            f"{cars.near_truth:.2f}",
            *errors,
        )
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        body += f"<tr{' class=best' if not place else ''}><td>{escape(result.name)}</td>{row}</tr>"
    head = "".join(f"<th>{name}</th>" for name in heads)
    yield (
        "<h2>Present cars, by store</h2>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        "<p class=note>Precision counts a second claim of one car as wrong. The column near a car is the"
        " share of claims close to any true car. The other stores get the same observations, and keep"
        " everything or the latest.</p>"
    )
