"""Evaluation while training: which weights of a run were best."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import NamedTuple

from sparse_core.common.files import replacing

_FIELDS = ("step", "mean_ap")


class Evaluated(NamedTuple):
    """Weights of a step, evaluated on the validation frames.

    Attributes:
        step: after which the weights were evaluated.
        mean_ap: mean AP of the classes, in the scale of the data set's protocol; NaN if undefined.
    """

    step: int
    mean_ap: float


class BestWeights:
    """The best weights of a run, in ``best.safetensors``, and all scores, in ``validation.csv``.

    Args:
        directory: of the run.
        step: from which the run resumes; scores of later steps are dropped.
    """

    def __init__(self, directory: Path, step: int) -> None:
        self.path, self._table = directory / "best.safetensors", directory / "validation.csv"
        self.evaluated = [row for row in _read(self._table) if row.step <= step]

    @property
    def best(self) -> Evaluated | None:
        """The first of the highest scores; None if no score is defined."""
        known = [row for row in self.evaluated if not math.isnan(row.mean_ap)]
        return max(known, key=lambda row: row.mean_ap) if known else None

    def known(self, step: int) -> bool:
        """Return True if a step has a score."""
        return any(row.step == step for row in self.evaluated)

    def add(self, row: Evaluated, weights: Path) -> bool:
        """Keep a score, and its weights if they are the best so far.

        The weights come before the score, so that a crash between the two only repeats the evaluation.

        Args:
            row: the score.
            weights: file of the evaluated weights; it is moved or deleted.

        Returns:
            True if the weights were kept.
        """
        self.evaluated.append(row)
        kept = self.best == row
        if kept:
            weights.replace(self.path)
        else:
            weights.unlink()
        with replacing(self._table) as temporary, temporary.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(_FIELDS)
            writer.writerows(self.evaluated)
        return kept


def _read(path: Path) -> list[Evaluated]:
    if not path.is_file():
        return []
    with path.open(newline="") as stream:
        return [Evaluated(int(row["step"]), float(row["mean_ap"])) for row in csv.DictReader(stream)]
