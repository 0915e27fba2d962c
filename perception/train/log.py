"""Log of a training: rows of ``log.csv``, TensorBoard events, and a progress bar."""

from __future__ import annotations

import csv
import math
from contextlib import AbstractContextManager
from pathlib import Path

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from perception.train.events import EventFile
from perception.train.losses import LOSS_WEIGHTS
from sparse_core.common.files import GrowingFile, replacing

_LOSSES = ("total", *LOSS_WEIGHTS)
_NO_SCALARS = ("step", "seconds")
_LOG_FIELDS = ("step", *_LOSSES, "gradient_norm", "learning_rate", "seconds")


class TrainingLog(AbstractContextManager["TrainingLog"]):
    """``log.csv`` and TensorBoard events; a resumed run drops rows of later steps.

    Args:
        path: of the file, next to which events go; None: write nothing, because another process does.
        step: from which the run resumes.
    """

    def __init__(self, path: Path | None, step: int) -> None:
        self.stream: GrowingFile | None = None
        if path is None:
            return
        kept = []
        if path.is_file() and step > 0:
            with path.open(newline="") as stream:
                kept = [row for row in csv.DictReader(stream) if int(row["step"]) <= step]
        with replacing(path) as temporary, temporary.open("w", newline="") as earlier:
            rows = csv.DictWriter(earlier, _LOG_FIELDS)
            rows.writeheader()
            rows.writerows(kept)
        self.stream = GrowingFile(path, keep=path.stat().st_size)
        self.writer = csv.DictWriter(self.stream, _LOG_FIELDS)
        self.events = EventFile(path.parent, step)

    def write(self, row: dict[str, float]) -> None:
        """Add a row; NaN losses are skipped."""
        if self.stream is None:
            return
        self.writer.writerow(
            {
                name: value if name == "step" else f"{value:.6g}"
                for name, value in row.items()
                if not math.isnan(value)
            }
        )
        tags = {name: f"loss/{name}" if name in _LOSSES else name for name in row if name not in _NO_SCALARS}
        self.events.write(int(row["step"]), {tag: row[name] for name, tag in tags.items()})

    def __exit__(self, *exception: object) -> None:
        if self.stream is not None:
            self.stream.close()
            self.events.close()


def training_progress(show: bool) -> Progress:
    """Return a progress bar with steps, loss and remaining time."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        disable=not show,
    )
