"""The table and the figure of an evaluation."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from random_kitti import random_frames
from rich.console import Console

from perception.errors import DataError
from perception.evaluate.comparison import Interval, MeasureComparison, RunComparison
from perception.evaluate.kitti import KittiResult, evaluate_kitti
from perception.evaluate.reports import comparison
from perception.evaluate.reports.result import plot_result, result_tables
from perception.evaluate.resampling import Measure


def text_of(result: KittiResult) -> str:
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(*result_tables(result))
    return capture.get()


@pytest.fixture(scope="module")
def result() -> KittiResult:
    return evaluate_kitti(*random_frames(3, 20, neat=True))


def test_table_has_every_number(result: KittiResult) -> None:
    text = text_of(result)
    for name in result.classes:
        assert name in text
        for metric in ("2d", "bev", "3d", "aos"):
            for difficulty in ("easy", "moderate", "hard"):
                for points in (11, 40):
                    assert f" {result.ap(name, metric, difficulty, points):.2f} " in text
    assert "fewer than 41 labels" in text


def test_table_without_orientation() -> None:
    text = text_of(evaluate_kitti(*random_frames(3, 20, orientation=False)))
    assert all("–" in line for line in text.splitlines() if "AOS" in line)
    assert "nan" not in text


@pytest.mark.parametrize(
    "classes", [["Car"], ["Car", "Pedestrian", "Cyclist"], ["Car", "Van", "Tram", "Cyclist"]]
)
def test_figure(tmp_path: Path, classes: list[str]) -> None:
    result = evaluate_kitti(*random_frames(3, 20), classes=classes)
    path = plot_result(result, tmp_path / "new" / "curves.png")
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    assert width >= 1200
    assert height >= 400


def test_figure_that_cannot_be_written(tmp_path: Path, result: KittiResult) -> None:
    with pytest.raises(DataError, match="cannot write the figure"):
        plot_result(result, tmp_path)


def test_no_text_of_a_comparison_is_clipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of runs can be long paths."""
    drawn: list[Any] = []
    monkeypatch.setattr(comparison, "save_figure", lambda figure, path: drawn.append(figure) or path)
    interval = Interval(1.0, -2.0, 4.0)
    row = MeasureComparison(Measure("construction_vehicle", "recall", "51-200 points"), *[interval] * 3)
    names = (f"/data/{'long/' * 40}run-a.json", "b.json")
    comparison.plot_comparison(RunComparison((row,), 40, 200, 0, names), tmp_path / "comparison.png")
    (figure,) = drawn
    figure.canvas.draw()
    (axes,) = figure.axes
    texts = [*figure.texts, axes.xaxis.label, *axes.get_yticklabels()]
    assert any("long/run-a.json" in text.get_text() for text in texts)
    width, height = figure.canvas.get_width_height()
    for text in texts:
        box = text.get_window_extent()
        assert 0 <= box.x0 <= box.x1 <= width, text.get_text()
        assert 0 <= box.y0 <= box.y1 <= height, text.get_text()
