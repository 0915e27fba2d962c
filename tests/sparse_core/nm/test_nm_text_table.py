"""Columns line up."""

from __future__ import annotations

import pytest

from sparse_core.nm.text_table import shape_cell, size_cells, text_table


def test_columns_line_up() -> None:
    table = text_table(["name", "n"], [["a", "10"], ["longer", "2"]])
    assert table.split("\n") == ["name     n", "------  --", "a       10", "longer   2"]
    assert text_table(["a", "b"], []) == "a  b\n-  -"


def test_rows_have_as_many_cells_as_the_header() -> None:
    with pytest.raises(ValueError, match="a row has 1 cells and the header 2"):
        text_table(["a", "b"], [["1"]])


def test_sides_are_named_by_letters() -> None:
    table = text_table(["a", "b", "why"], [["10", "x", "long text"], ["2", "y", "no"]], align="rll")
    assert table.split("\n") == [" a  b  why", "--  -  ---------", "10  x  long text", " 2  y  no"]
    for align in ("l", "lc", "lrr"):
        with pytest.raises(ValueError, match="l or r for each of 2 columns"):
            text_table(["a", "b"], [], align=align)


def test_cells() -> None:
    assert shape_cell((16, 8, 3, 3)) == "16x8x3x3"
    assert size_cells(2000, 1125) == ("2,000", "1,125", "43.8%")
    assert size_cells(0, 0) == ("0", "0", "")
