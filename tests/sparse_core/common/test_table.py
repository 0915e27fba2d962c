"""Tables line up, and results become JSON."""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest
import torch
from rich.console import Console

from sparse_core.common.table import Report, Table, cell, left_out, plain, share_saved
from sparse_core.nm import Block, NMPattern


class Pair(NamedTuple):
    name: str
    share: float


@dataclass(frozen=True)
class Entry:
    name: str
    pattern: NMPattern | Block
    shape: tuple[int, ...]
    derived: ClassVar = ("size",)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Found(Report):
    entries: list[Entry]
    by_name: dict[str, Pair]
    loss_ms: float
    masks: dict[str, torch.Tensor] = field(repr=False, default_factory=dict)
    derived: ClassVar = ("count",)

    @property
    def count(self) -> int:
        return len(self.entries)


def test_columns_line_up() -> None:
    table = Table(["name", "n"], [["a", 10], ["longer", 2]])
    assert str(table).split("\n") == ["name     n", "------  --", "a       10", "longer   2"]
    assert str(Table(["a", "b"], [])) == "a  b\n-  -"


def test_rows_have_as_many_cells_as_the_header() -> None:
    with pytest.raises(ValueError, match="a row has 1 cells and the header 2"):
        Table(["a", "b"], [["1"]])


def test_text_is_to_the_left_and_numbers_to_the_right() -> None:
    table = Table(["a", "b", "why"], [[10, "x", "long text"], [None, "y", ""], [2, "z", "no"]], title="what")
    assert str(table).split("\n") == [
        "what",
        " a  b  why",
        "--  -  ---------",
        "10  x  long text",
        " –  y",
        " 2  z  no",
    ]
    assert str(Table(["a", "n"], [["x", "1 of 2"], ["y", "5"]], right=["n"])).split("\n")[3] == "y       5"


def test_cells() -> None:
    assert cell((16, 8, 3, 3)) == "16x8x3x3"
    assert (cell(12345), cell(0.123456), cell(0.5, ".1%")) == ("12,345", "0.1235", "50.0%")
    assert (cell(None), cell(math.nan), cell(True), cell([0.5, "x"])) == ("–", "–", "True", "0.5, x")
    assert cell(NMPattern(2, 4)) == "2:4"
    assert share_saved(2000, 1125) == "43.8%"
    assert share_saved(0, 0) == ""


def test_rows_of_objects_and_totals() -> None:
    entries = [Entry("a", NMPattern(2, 4), (2, 3)), Entry("b", Block(16, 0.5), (4,))]
    columns = {"layer": lambda entry: entry.name.upper(), "pattern": "pattern", "size": "size:.1f"}
    lines = str(Table.of(entries, columns, totals=[{"layer": "total", "size": 10}])).split("\n")
    assert lines[0] == "layer  pattern                    size"
    assert [line.split()[-1] for line in lines[2:]] == ["6.0", "4.0", "10.0"]
    assert lines[-1].split() == ["total", "10.0"]


def test_left_out_lists_reasons() -> None:
    assert str(left_out({})) == ""
    assert str(left_out({"": "too small"})).split("\n")[0::3] == ["left out:", "(model)  too small"]


def test_a_report_is_json_and_text() -> None:
    report = Found(
        [Entry("a", NMPattern(2, 4), (2, 3))], {"x": Pair("x", math.inf)}, 0.25, {"a": torch.ones(2)}
    )
    assert json.loads(json.dumps(report.to_json(), allow_nan=False)) == {
        "entries": [{"name": "a", "pattern": "2:4", "shape": [2, 3], "size": 6}],
        "by_name": {"x": {"name": "x", "share": None}},
        "loss_ms": 0.25,
        "count": 1,
    }
    assert "loss ms" in str(report)
    assert str(report).splitlines()[-1].split() == ["count", "1"]


def test_plain_values() -> None:
    assert plain({1: (torch.tensor([1, 2]), Path("a"), {3}, torch.float16)}) == {
        "1": [[1, 2], "a", [3], "torch.float16"]
    }


def test_the_same_table_for_a_terminal() -> None:
    table = Table(["name", "n"], [["[red]a", 1000], ["b", None]], title="sizes [MB]", note="all", ends=[0])
    assert str(table).split("\n")[::5] == ["sizes [MB]", "all"]
    out = io.StringIO()
    Console(file=out, width=60).print(table)
    for text in ("sizes [MB]", "[red]a", "1,000", "–", "all"):
        assert text in out.getvalue()
