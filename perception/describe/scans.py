"""Unit, axes, intensity and sensor height, measured on sampled scans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from perception.describe.columns import find_columns
from perception.describe.evidence import Evidence
from perception.doctor.check_missing import NO_GROUND_M
from perception.doctor.check_scans import FEW_POINTS
from perception.errors import DataError
from perception.io.point_cloud import read_raw_cloud, transform_of_name
from perception.io.raw import RawCloud, apply_transform, common_intensity_scale
from perception.io.transform import TRAINED_SENSOR_HEIGHT_M, ScanTransform
from perception.scans.facts import ScanFacts, measure_scan
from perception.scans.finding import Finding
from perception.scans.geometry import check_geometry

#: The ground is measured again within this distance of the fullest layer, which is coarse.
_GROUND_M = 0.25
_LEAST_HEIGHT_M = 0.1
_SMALL_UNITS = (0.001, 0.01)


@dataclass(frozen=True)
class MeasuredScans:
    """Measurements of scans.

    Attributes:
        evidence: origin of the fields of ``scans``, except the path.
        columns: columns of the files.
        transform: conversion to metres, x forward, y left, z up, with the sensor height.
        problems: findings that no transform fixes.
        unreadable: errors of unreadable scans.
    """

    evidence: tuple[Evidence, ...]
    columns: tuple[str, ...] | None
    transform: ScanTransform
    problems: tuple[Finding, ...]
    unreadable: tuple[str, ...]


def measure_scans(paths: Sequence[Path]) -> MeasuredScans:
    """Measure scans of one folder; raise ``DataError`` if most are unreadable, or all nearly empty."""
    columns = find_columns(paths)
    names = None if columns.value is None else tuple(columns.value)
    clouds, unreadable = _read(paths, names)
    filled = [cloud for cloud in clouds if np.isfinite(cloud.xyz).all(axis=1).sum() >= FEW_POINTS]
    if not filled:
        raise DataError(
            unreadable[0]
            if unreadable
            else f"{paths[0].parent}: fewer than {FEW_POINTS} points per scan. Name a folder of whole scans."
        )
    if 2 * len(unreadable) > len(paths):
        raise DataError(
            f"{len(unreadable)} of {len(paths)} sampled scans are unreadable. Fix the first: {unreadable[0]}"
        )
    known = ScanTransform(axes=transform_of_name(paths[0], ScanTransform())[0].axes)
    axes = known.axes is not None
    facts = [_facts(apply_transform(cloud, known)) for cloud in filled]
    geometry, transform = _correct(facts, known)
    height = _height([apply_transform(cloud, transform) for cloud in filled])
    for scale in _SMALL_UNITS if transform.scale in _SMALL_UNITS else ():
        # In small places millimetres and centimetres look alike; the sensor height decides.
        other = replace(transform, scale=scale)
        seen = _height([apply_transform(cloud, other) for cloud in filled])
        if _oddness(seen) < _oddness(height):
            transform, height = other, seen
    intensity = _intensity(facts)
    found = ScanTransform(
        transform.scale,
        transform.axes or "x,y,z",
        None if height.value is None else float(height.value),
        intensity.value,
    )
    extent = median([float(np.abs([item.low, item.high]).max()) for item in facts])
    return MeasuredScans(
        (
            columns,
            _unit(geometry, found.scale, extent),
            _axes(geometry, found.axes or "", facts, by_name=axes),
            intensity,
            height,
        ),
        names,
        found,
        tuple(finding for finding in geometry if finding.transform is None),
        tuple(unreadable),
    )


def _correct(facts: Sequence[ScanFacts], known: ScanTransform) -> tuple[list[Finding], ScanTransform]:
    """Return findings about unit and axes, and the known transform with all corrections."""
    geometry = [item for item in check_geometry(facts) if item.check != "ground"]
    transform = known
    for finding in geometry:
        if finding.transform is not None:
            transform = transform.then(finding.transform)
    return geometry, transform


def _oddness(height: Evidence) -> float:
    """Return how unusual a sensor height is; infinite without one."""
    return abs(math.log(height.value / TRAINED_SENSOR_HEIGHT_M)) if height.value else math.inf


def _read(paths: Sequence[Path], columns: tuple[str, ...] | None) -> tuple[list[RawCloud], list[str]]:
    clouds, unreadable = [], []
    for path in paths:
        try:
            clouds.append(read_raw_cloud(path, columns=columns))
        except DataError as error:
            unreadable.append(str(error))
    return clouds, unreadable


def _facts(cloud: RawCloud) -> ScanFacts:
    return measure_scan("", cloud, count_repeated=False)


def _unit(findings: Sequence[Finding], scale: float, extent: float) -> Evidence:
    if any(finding.check == "units" for finding in findings):
        unit = {0.3048: "feet", 0.01: "centimetres", 0.001: "millimetres"}.get(scale, "another unit")
        how = f"points reach {extent:.0f} units, too far for metres; {unit} give a usual range"
        return Evidence("scans.scale", scale, how, "likely")
    how = f"points reach {extent:.0f} units from the sensor, a usual range in metres"
    return Evidence("scans.scale", scale, how, "likely")


def _axes(findings: Sequence[Finding], axes: str, facts: Sequence[ScanFacts], *, by_name: bool) -> Evidence:
    reasons = [finding.message for finding in findings if finding.check == "axes"]
    if by_name:
        reasons = [".pcd.bin is nuScenes' suffix, whose x points right and y forward", *reasons]
    if reasons:
        return Evidence("scans.axes", axes, " ".join(reasons), "likely")
    around = median([item.concentration for item in facts]) < 0.6
    if around:
        how = "points are flat along z, so z is up; they lie all around, so x is assumed forward"
        return Evidence("scans.axes", axes, how, "assumed")
    return Evidence("scans.axes", axes, "points are flat along z and lie towards +x", "measured")


def _intensity(facts: Sequence[ScanFacts]) -> Evidence:
    field = "scans.intensity_scale"
    given = [item.intensity for item in facts if item.intensity is not None]
    if not given:
        return Evidence(field, None, "the scans have no intensity, so the detector sees zeros", "measured")
    low, high = min(row[0] for row in given), max(row[2] for row in given)
    spans = f"values from {low:.4g} to {high:.4g} in {len(given)} scans"
    stored = [item.sample.intensity for item in facts if item.sample.intensity is not None]
    scale, known = common_intensity_scale(stored)
    if known:
        return Evidence(field, scale, spans, "measured")
    how = f"{spans}, an unknown full scale; one in a hundred is above {scale:g}"
    return Evidence(field, scale, how, "assumed")


def _height(clouds: Sequence[RawCloud]) -> Evidence:
    """Measure the sensor height: the distance to the layer with the most points."""
    heights, field = [], "scans.sensor_height_m"
    for cloud in clouds:
        finite = cloud.xyz[np.isfinite(cloud.xyz).all(axis=1)]
        # Indoors the ceiling may be the fullest layer of all.
        below = finite[finite[:, 2] < -_LEAST_HEIGHT_M]
        if len(below) >= FEW_POINTS:
            layer = _facts(RawCloud(below, None)).layer
            z = below[:, 2].astype(np.float64)
            heights.append(-float(np.median(z[np.abs(z - layer) < _GROUND_M])))
    if 2 * len(heights) <= len(clouds):
        how = "too few points below the sensor; assumed 1.73 m, as in the training data of the weights"
        return Evidence(field, None, how, "assumed")
    height = round(median(heights), 2)
    spread = max(heights) - min(heights)
    if spread > NO_GROUND_M:
        how = (
            f"the layer with the most points varies by {spread:.2f} m between {len(heights)} scans, so it is"
            " not ground; assumed 1.73 m, as in the training data of the weights"
        )
        return Evidence(field, None, how, "assumed")
    how = f"most points of {len(heights)} scans lie {height:.2f} m below the sensor (spread {spread:.2f} m)"
    return Evidence(field, height, how, "measured" if spread < 0.3 else "likely")
