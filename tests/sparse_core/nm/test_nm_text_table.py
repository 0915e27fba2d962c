"""Columns line up."""

from __future__ import annotations

import pytest

from sparse_core.nm.text_table import text_table


def test_columns_line_up() -> None:
    table = text_table(["name", "n"], [["a", "10"], ["longer", "2"]])
    assert table.split("\n") == ["name     n", "------  --", "a       10", "longer   2"]
    assert text_table(["a", "b"], []) == "a  b\n-  -"


def test_rows_have_as_many_cells_as_the_header() -> None:
    with pytest.raises(ValueError, match="a row has 1 cells and the header 2"):
        text_table(["a", "b"], [["1"]])
