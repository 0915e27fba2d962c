"""Table of the questions in plain words."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.publish.text import Column, Table

_QUESTIONS = Table(
    "answers-cpu",
    rows=lambda values: values["cases"],
    columns=[
        Column("set", lambda row: row["set"]),
        Column("questions", lambda row: row["questions"], "d"),
        Column("answered right", lambda row: row["answered"], "d"),
        Column("rightly refused or nothing known", lambda row: row["rightly_refused"], "d"),
        Column("refused, though the store knows", lambda row: row["refused"], "d"),
        Column("wrong", lambda row: row["mistaken"], "d"),
    ],
)

BLOCKS: dict[str, Callable[[], str]] = {"questions": _QUESTIONS}
