"""Checks for what labels and scans do not contain: headings, a known range of intensity, ground."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perception.data import DataSet
from perception.data.own import OwnDataSet
from perception.doctor.label_facts import LabelFacts
from perception.io.raw import FULL_SCALES
from perception.scans.facts import ScanFacts
from perception.scans.finding import Finding

#: If so many headings are 0 and no other, nobody labelled them.
LEAST_HEADINGS = 10
#: Heights of the fullest layer vary by up to 0.25 m on roads, and by 2.84 m over water.
NO_GROUND_M = 1.0
#: With fewer placed boxes, missing ground shows nothing.
_FEW_BOXES = 10
#: Share of boxes that stand on visible ground if there is any; see ``label_facts``.
_RARELY = 0.05


def check_missing(
    data_set: DataSet, scans: Sequence[ScanFacts], frames: Sequence[LabelFacts], headings: bool | None
) -> list[Finding]:
    """Explain missing headings, intensity of an unknown range, and missing ground.

    Args:
        data_set: the data set.
        scans: measured scans.
        frames: measured labels.
        headings: True if the training learns headings; None if unknown.
    """
    return [
        *_check_headings(data_set, frames, headings),
        *_check_intensity(data_set, scans),
        *_check_ground(scans, frames),
    ]


def _check_headings(data_set: DataSet, frames: Sequence[LabelFacts], headings: bool | None) -> list[Finding]:
    written = np.concatenate([np.zeros(0), *(frame.rotations for frame in frames)])
    if any(frame.in_camera for frame in frames):
        # rotation_y 0 is a heading across the view.
        return []
    if len(written) < LEAST_HEADINGS or written.any():
        return []
    what = f"All {len(written)} headings are 0, so nobody labelled them: boxes lie along the axes"
    if data_set.headings:
        fix = "Set labels.headings: false in dataset.yaml, or label headings."
        if not isinstance(data_set, OwnDataSet):
            fix = (
                "Label headings; or describe the folder with a dataset.yaml that has labels.headings: false."
            )
        return [Finding("warning", "heading", f"{what}, also around objects that do not.", fix)]
    if headings:
        fix = (
            "Set head.headings: false, augment.rotation_rad: 0 and augment.quarter_turns: true in the config;"
            " `perceive init --force` writes them."
        )
        return [Finding("warning", "heading", f"{what}, but the config learns headings.", fix)]
    fix = "Nothing to do. Label headings if you need them."
    what += ". Evaluation compares boxes along the axes, and training learns no heading."
    return [Finding("info", "heading", what, fix)]


def _check_intensity(data_set: DataSet, scans: Sequence[ScanFacts]) -> list[Finding]:
    if not isinstance(data_set, OwnDataSet) or not scans:
        return []
    scale = data_set.description.scans.intensity_scale
    if scale is None or scale in FULL_SCALES:
        return []
    given = [scan.intensity for scan in scans if scan.intensity is not None]
    if not given:
        return []
    low, middle = (float(np.median([row[place] for row in given])) * scale for place in (0, 1))
    what = (
        f"Intensity has no usual range (0..1, 0..255, 0..65535): values from about {low:.4g}, median"
        f" {middle:.4g}, are divided by {scale:g} and cut off above it."
    )
    fix = "Nothing to do, or set scans.intensity_scale in dataset.yaml to the sensor's full scale."
    return [Finding("info", "intensity", what, fix)]


def _check_ground(scans: Sequence[ScanFacts], frames: Sequence[LabelFacts]) -> list[Finding]:
    gaps = np.concatenate([np.zeros(0), *(frame.ground_gap_m for frame in frames)])
    if len(gaps) < _FEW_BOXES or np.isfinite(gaps).mean() > _RARELY:
        return []
    layers = [scan.layer for scan in scans if scan.finite]
    spread = max(layers, default=0.0) - min(layers, default=0.0)
    if spread <= NO_GROUND_M:
        return []
    what = (
        f"There is no flat ground: {np.isfinite(gaps).sum()} of {len(gaps)} boxes stand on visible ground,"
        f" and the height with the most points varies by {spread:.1f} m between scans, as over water. The"
        " sensor height and the heights of boxes were not checked."
    )
    return [Finding("info", "ground", what, "Nothing to do.")]
