"""Tables and the figure of an evaluation, whatever its protocol."""

from __future__ import annotations

from pathlib import Path

from perception.evaluate.boxes.result import BoxesResult
from perception.evaluate.judge import Result
from perception.evaluate.kitti.result import KittiResult
from perception.evaluate.nuscenes.result import NuScenesResult
from perception.evaluate.reports.result import (
    boxes_tables,
    format_table,
    nuscenes_tables,
    plot_boxes,
    plot_nuscenes,
    plot_precision_recall,
)
from sparse_core.common.table import Table


def result_tables(result: Result) -> list[Table]:
    """What is printed of a result.

    Raises:
        TypeError: it is of no protocol.
    """
    if isinstance(result, KittiResult):
        return [format_table(result)]
    if isinstance(result, NuScenesResult):
        return nuscenes_tables(result)
    if isinstance(result, BoxesResult):
        return boxes_tables(result)
    raise TypeError(f"expected a result of a protocol, got {type(result).__name__}")


def plot_result(result: Result, path: str | Path) -> Path:
    """Precision-recall curves as a PNG file.

    Raises:
        DataError: the file cannot be written.
        TypeError: the result is of no protocol.
    """
    if isinstance(result, KittiResult):
        return plot_precision_recall(result, path)
    if isinstance(result, NuScenesResult):
        return plot_nuscenes(result, path)
    if isinstance(result, BoxesResult):
        return plot_boxes(result, path)
    raise TypeError(f"expected a result of a protocol, got {type(result).__name__}")
