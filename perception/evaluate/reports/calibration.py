"""Tables and reliability diagrams of score calibration and thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from perception.evaluate.calibration import BINS, FALSE_FROM, Reliability
from perception.evaluate.reports.figure import new_figure, save_figure
from perception.evaluate.thresholds import ScoreChoice
from sparse_core.common.table import Table, cell

_PANEL_WIDTH_PX, _HEIGHT_PX = 380, 440
#: Behind numbers, so that the dashed line does not cross them.
_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}


def calibration_table(reliability: Mapping[str, Reliability], frames: int) -> Table:
    """Return calibration errors and false positives by class, before and after a fit."""
    rows = [
        (
            name,
            found.boxes,
            found.right,
            cell(found.error, ".3f"),
            cell(found.error_fitted, ".3f"),
            cell(found.false_per_frame, ".2f"),
            cell(found.false_fitted, ".2f"),
            "–" if found.fitted is None else f"{found.fitted.scale:.3f}, {found.fitted.bias:+.3f}",
        )
        for name, found in reliability.items()
    ]
    false = f"false >= {FALSE_FROM}\nper frame"
    heads = ["class", "boxes", "right", "ECE", "ECE\nfitted", false, f"{false}, fitted", "scale, bias"]
    return Table(
        heads,
        rows,
        title=f"Calibration of scores on {frames} frames",
        right=heads[1:],
        note="fitted: cross-validation over five blocks of frames. – : fewer than 10 right or wrong boxes.",
    )


def plot_reliability(reliability: Mapping[str, Reliability], path: str | Path) -> Path:
    """Plot the share of right boxes over their score, one panel per class, as PNG.

    Raises:
        DataError: the file cannot be written.
    """
    count = max(1, len(reliability))
    figure = new_figure(max(600, count * _PANEL_WIDTH_PX), _HEIGHT_PX)
    panels = figure.subplots(1, count, squeeze=False, sharey=True)[0]
    for panel, (name, found) in zip(panels, reliability.items(), strict=False):
        places = (np.arange(BINS) + 0.5) / BINS
        share = np.nan_to_num(found.bins[:, 2])
        panel.bar(places, share, width=0.9 / BINS, color="#0072B2")
        panel.plot([0, 1], [0, 1], "--", color="black", linewidth=1)
        for place, number, height in zip(places, found.bins[:, 0], share, strict=True):
            if number:
                panel.text(place, height + 0.01, f"{int(number)}", ha="center", fontsize=7, bbox=_WHITE)
        panel.set_title(f"{name}\nECE {found.error:.3f}", fontsize=10)
        panel.set_xlabel("score")
        panel.set_xlim(0, 1)
        panel.set_ylim(0, 1.08)
    panels[0].set_ylabel("share of right boxes")
    figure.suptitle("Reliability of scores (numbers: boxes per bin; dashed: perfect)", fontsize=12)
    return save_figure(figure, path)


def format_choices(choices: Mapping[str, ScoreChoice]) -> Table:
    """Return a table of thresholds by class, with their results on the frames they were chosen on."""
    rows = [
        (
            name,
            cell(choice.threshold, ".2f"),
            choice.found,
            choice.false,
            choice.missed,
            cell(choice.f_measure, ".3f"),
        )
        for name, choice in choices.items()
    ]
    heads = ("class", "threshold", "found", "false", "missed", "F2")
    return Table(
        heads, rows, title="Score thresholds with the greatest F2 (3D IoU above 0.5, of small classes 0.3)"
    )
