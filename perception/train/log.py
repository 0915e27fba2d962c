"""What a training tells while it runs: rows of ``log.csv``, TensorBoard's events, and a progress bar."""

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
    """Rows of ``log.csv``; rows after the step that a run resumes from are dropped. The same for TensorBoard.

    Args:
        path: of the file, which events go beside; None: rows are dropped, as another process writes them.
        step: that the run goes on from.
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
        """Add a row; losses that are not a number are left out."""
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
    """A bar with the steps, the loss and the time left."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        disable=not show,
    )
