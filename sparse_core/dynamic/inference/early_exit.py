"""A network in stages with a classifier head each: confident rows leave early.

After Teerapittayanon et al., "BranchyNet" (2016), with calibrated confidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sparse_core.common.table import Report, Table, cell
from sparse_core.dynamic.inference.calibration import confidence_of, fit_temperature, threshold_for_accuracy
from sparse_core.dynamic.ranking import check_batch


class ExitResult(NamedTuple):
    """Answers of an early-exit network.

    Attributes:
        logits: (N, classes), divided by the temperature of the exit that each row took.
        exits: (N,) int64, number of that exit.
        confidence: (N,) calibrated.
    """

    logits: Tensor
    exits: Tensor
    confidence: Tensor


@dataclass(frozen=True)
class ExitReport(Report):
    """Result of :meth:`EarlyExit.calibrate`; one entry per exit.

    Attributes:
        temperatures: temperature of each exit.
        thresholds: confidence at which rows leave; infinite if the accuracy cannot be reached, 0 at the last.
        taken: share of the held-out rows that leave here.
        accuracy: accuracy of those rows; NaN if none leaves.
    """

    temperatures: tuple[float, ...]
    thresholds: tuple[float, ...]
    taken: tuple[float, ...]
    accuracy: tuple[float, ...]

    def tables(self) -> list[Table | str]:
        """Return one row per exit."""
        columns = zip(self.temperatures, self.thresholds, self.taken, self.accuracy, strict=True)
        rows = [(at, *map(cell, entries, (".3f", ".4f", ".1%", ".1%"))) for at, entries in enumerate(columns)]
        return [Table(("exit", "temperature", "threshold", "rows", "accuracy"), rows)]


class EarlyExit(nn.Module):
    """A sequence of stages with a head after each.

    In training the result is the logits of every head. In evaluation, rows leave at the first head whose
    calibrated confidence reaches its threshold; the rest continue as a smaller batch. Reading the size of
    that batch waits for the device once per stage.

    Args:
        stages: modules from (N, ...) to (N, ...).
        heads: one per stage, from its result to (N, classes).

    Attributes:
        temperatures, thresholds: (exits,) float64 buffers; 1 and infinity (no early exit) before
            :meth:`calibrate`.

    Raises:
        ValueError: no stages, or another number of heads.
    """

    temperatures: Tensor
    thresholds: Tensor

    def __init__(self, stages: Sequence[nn.Module], heads: Sequence[nn.Module]) -> None:
        super().__init__()
        if not stages or len(stages) != len(heads):
            raise ValueError(f"needs as many heads as stages, got {len(heads)} and {len(stages)}")
        self.stages, self.heads = nn.ModuleList(stages), nn.ModuleList(heads)
        self.register_buffer("temperatures", torch.ones(len(heads), dtype=torch.float64))
        thresholds = torch.full((len(heads),), float("inf"), dtype=torch.float64)
        thresholds[-1] = 0.0
        self.register_buffer("thresholds", thresholds)

    def all_logits(self, x: Tensor) -> list[Tensor]:
        """Return the uncalibrated logits (N, classes) of each head."""
        found = []
        for stage, head in zip(self.stages, self.heads, strict=True):
            x = stage(x)
            found.append(head(x))
        return found

    def forward(self, x: Tensor) -> list[Tensor] | ExitResult:
        """Return the logits of all heads in training, an :class:`ExitResult` in evaluation.

        Raises:
            ValueError: an empty batch.
        """
        check_batch(x)
        return self.all_logits(x) if self.training else self._leave(x)

    def _leave(self, x: Tensor) -> ExitResult:
        rows = torch.arange(len(x), device=x.device)
        parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        for number, (stage, head) in enumerate(zip(self.stages, self.heads, strict=True)):
            x = stage(x)
            logits = head(x)
            logits = logits / self.temperatures[number].to(logits.dtype)
            confidence = confidence_of(logits)
            sure = confidence.double() >= self.thresholds[number]
            if number == len(self.stages) - 1:
                sure = torch.ones_like(sure)
            leaving, staying = sure.nonzero().squeeze(1), (~sure).nonzero().squeeze(1)
            exits = torch.full_like(leaving, number)
            parts.append((rows[leaving], logits[leaving], exits, confidence[leaving]))
            if not len(staying):
                break
            rows, x = rows[staying], x[staying]
        order = torch.argsort(torch.cat([part[0] for part in parts]))
        logits, exits, confidence = (torch.cat([part[at] for part in parts])[order] for at in (1, 2, 3))
        return ExitResult(logits, exits, confidence)

    @torch.no_grad()
    def calibrate(self, batches: Iterable[tuple[Tensor, Tensor]], *, accuracy: float) -> ExitReport:
        """Set temperatures and thresholds on held-out data.

        Each exit is fitted to the rows that reach it. Its threshold is the lowest confidence at and above
        which these rows reach the target accuracy.

        Args:
            batches: inputs and labels (N,) that were not trained on.
            accuracy: target accuracy of the rows that leave early.

        Raises:
            ValueError: no data, or ``accuracy`` out of range.
        """
        training = self.training
        self.eval()
        try:
            seen = [(self.all_logits(x), labels) for x, labels in batches]
        finally:
            self.train(training)
        if not seen:
            raise ValueError("no batches to calibrate on")
        labels = torch.cat([part for _, part in seen])
        here = torch.ones_like(labels, dtype=torch.bool)
        taken, accurate = [], []
        for number in range(len(self.heads)):
            logits = torch.cat([found[number] for found, _ in seen])
            right = logits.argmax(1) == labels
            last = number == len(self.heads) - 1
            if bool(here.any()):
                self.temperatures[number] = fit_temperature(logits[here], labels[here])
            confidence = confidence_of(logits / self.temperatures[number].to(logits.dtype)).double()
            if not last:
                reached = bool(here.any())
                self.thresholds[number] = (
                    threshold_for_accuracy(confidence[here], right[here], accuracy)
                    if reached
                    else float("inf")
                )
            leaves = here if last else here & (confidence >= self.thresholds[number])
            taken.append(float(leaves.double().mean()))
            accurate.append(float(right[leaves].double().mean()) if bool(leaves.any()) else float("nan"))
            here = here & ~leaves
        return ExitReport(
            tuple(self.temperatures.tolist()), tuple(self.thresholds.tolist()), tuple(taken), tuple(accurate)
        )
