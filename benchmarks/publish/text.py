"""Render blocks of Markdown, declared in `benchmarks.publish.blocks`, from result files."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.lib.results import RESULTS

#: Values of a result file, or of a case in it.
Values = dict[str, Any]
#: Keys on the way to a value: in a tuple, or between slashes.
Path = str | tuple[Any, ...]
#: Format of a value: a format specification, a template with braces, or a function.
Form = str | Callable[[Any], str]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        head: heading.
        value: where it is in a row, or a function of the row.
        form: how it is written.
        missing: what stands where there is no value.
    """

    head: str
    value: Path | Callable[[Any], Any]
    form: Form = str
    missing: str = ""

    def cell(self, row: Any) -> str:
        """Text of the cell in a row."""
        value = self.value(row) if callable(self.value) else at(row, self.value)
        return self.missing if value is None else written(value, self.form)


@dataclass(frozen=True)
class Table:
    """A table from one result file.

    Attributes:
        file: name of the result file.
        rows: where they are, or a function of the values.
        columns: of the table, or a function of the values.
        more: further rows, ready to print.
        around: the text with the table in it.
    """

    file: str
    rows: Path | Callable[[Values], Iterable[Any]]
    columns: Sequence[Column] | Callable[[Values], Sequence[Column]]
    more: Callable[[Values], Iterable[Sequence[str]]] | None = None
    around: Callable[[Values, str], str] | None = None

    def __call__(self) -> str:
        """The block; empty where the result file, or every row, is missing."""
        values = load_result(self.file)
        text = "" if values is None else self.of(values)
        return text and text + historical([self.file])

    def of(self, values: Values) -> str:
        """The block of a result that is given; empty without rows."""
        rows = self.rows(values) if callable(self.rows) else at(values, self.rows)
        if not rows:
            return ""
        columns = self.columns(values) if callable(self.columns) else self.columns
        cells = [[column.cell(row) for column in columns] for row in rows]
        table = markdown_table(
            [column.head for column in columns], [*cells, *(self.more(values) if self.more else ())]
        )
        return self.around(values, table) if self.around else table


@dataclass(frozen=True)
class Text:
    """A sentence, or rows of several files.

    Attributes:
        files: names of the result files.
        make: the text from their values; None if the file is missing.
        noted: add a note on historical result files.
    """

    files: tuple[str, ...]
    make: Callable[..., str]
    noted: bool = True

    def __call__(self) -> str:
        """Return the block; empty where the first result file is missing."""
        values = [load_result(name) for name in self.files]
        if values[0] is None:
            return ""
        return self.make(*values) + (historical(self.files) if self.noted else "")

    def of(self, values: Values) -> str:
        """The block of one result that is given, without those of other files."""
        return self.make(values, *(None for _ in self.files[1:]))


Block = Table | Text


def historical(files: Iterable[str]) -> str:
    """Return a note on those result files that were not measured on a committed tree; empty if all were."""
    days = {
        name: values["environment"]["time"][:10]
        for name in files
        if "environment" in (values := load_result(name) or {})
        and values["environment"]["code"]["dirty"] is not False
    }
    if not days:
        return ""
    listed_files = listed(f"`{name}` ({day})" for name, day in days.items())
    return f"\n\n*Historical, measured on a tree with uncommitted changes: {listed_files}.*"


def load_result(name: str) -> Values | None:
    """Values of a result file; None where there is none."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def at(value: Any, path: Path) -> Any:
    """Return the value at the end of a path; None where it ends early."""
    for key in path.split("/") if isinstance(path, str) else path:
        if value is None:
            return None
        value = value.get(key) if isinstance(value, dict) else value[int(key)]
    return value


def written(value: Any, form: Form) -> str:
    """A value as a form says."""
    if callable(form):
        return form(value)
    return form.format(value) if "{" in form else format(value, form)


def pivot(
    cases: Iterable[Any], row: Callable[[Any], Hashable], column: Callable[[Any], Hashable]
) -> list[tuple[Any, dict[Any, Any]]]:
    """Keys of rows in the order of the cases, each with its cases by the key of their column."""
    found: dict[Any, dict[Any, Any]] = {}
    for case in cases:
        found.setdefault(row(case), {})[column(case)] = case
    return list(found.items())


def distinct(cases: Iterable[Values], *keys: str) -> list[Any]:
    """Values of one key, or tuples of several, in the order of the cases."""
    return list(
        dict.fromkeys(case[keys[0]] if len(keys) == 1 else tuple(case[key] for key in keys) for case in cases)
    )


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def milliseconds(value: float) -> str:
    """Three significant digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:#.3g}".rstrip(".")


def microseconds(value: float) -> str:
    """One decimal, none from a hundred on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def times(value: float) -> str:
    """A ratio: two decimals, one from ten on."""
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def power(value: float) -> str:
    """Powers of ten as people write them: 1e-6."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def percent(share: float) -> str:
    """A share in per cent."""
    return f"{100 * share:.0f} %"


def count(value: int) -> str:
    """A count in thousands or millions."""
    return f"{value // 10**6}M" if value >= 10**6 else f"{value // 1000}k"


def millions(value: int) -> str:
    """A count in millions, in words."""
    return f"{round(value / 1e6):,} million"


def megabytes(value: int) -> str:
    """Bytes as whole megabytes."""
    return f"{value / 1e6:,.0f}"


def spread(digits: int, factor: float = 1.0) -> Callable[[Values], str]:
    """A form for mean and standard deviation."""
    return lambda found: f"{factor * found['mean']:.{digits}f} ± {factor * found['std']:.{digits}f}"


def listed(parts: Iterable[str]) -> str:
    """One, two and three."""
    parts = list(parts)
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
