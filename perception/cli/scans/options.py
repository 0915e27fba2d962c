"""Options for scans in other columns, units or axes."""

from __future__ import annotations

import argparse
import re

from perception.io.columns import parse_columns
from perception.io.transform import ScanTransform

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def add_scan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that describe the scans."""
    group = parser.add_argument_group("scans that are not in metres with x forward, y left, z up")
    group.add_argument(
        "--columns",
        metavar="NAMES",
        help="columns of .bin, .npy and text files, such as x,y,z,intensity,_ (_ skips one), or their number",
    )
    group.add_argument("--scale", type=float, metavar="METRES", help="metres per unit: 0.001 for millimetres")
    group.add_argument(
        "--axes",
        metavar="X,Y,Z",
        help="axes that point forward, left and up, such as y,-x,z for nuScenes; write --axes=-x,... with =",
    )
    group.add_argument(
        "--sensor-height",
        type=float,
        metavar="M",
        help="height of the scans' origin above the ground, in metres",
    )
    group.add_argument(
        "--mounting",
        metavar="ROLL,PITCH,YAW",
        help="mounting angles in degrees: --mounting=0,15,0 for a sensor that looks 15 degrees down",
    )
    group.add_argument(
        "--intensity-scale", type=float, metavar="MAX", help="full scale of intensity, such as 255"
    )


def columns_of(options: argparse.Namespace) -> tuple[str, ...] | None:
    """Parse ``--columns``; raise ``ValueError`` for invalid names."""
    return None if options.columns is None else parse_columns(options.columns)


def transform_of(options: argparse.Namespace) -> ScanTransform:
    """Return the transform of the options; raise ``ValueError`` for an invalid one."""
    return ScanTransform(
        1.0 if options.scale is None else options.scale,
        options.axes,
        options.sensor_height,
        options.intensity_scale,
        None if options.mounting is None else _parse_angles(options.mounting),
    )


def _parse_angles(text: str) -> tuple[float, float, float]:
    try:
        roll, pitch, yaw = map(float, text.split(","))
    except ValueError as error:
        raise ValueError(f"--mounting must be ROLL,PITCH,YAW in degrees, got {text[:80]!r}") from error
    return roll, pitch, yaw


class WarningFilter:
    """Filter of repeated warnings; warnings that differ only in numbers count as repeated."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def new(self, warnings: tuple[str, ...]) -> list[str]:
        """Return the warnings that are new."""
        found = []
        for warning in warnings:
            kind = _NUMBER.sub("#", warning)
            if kind not in self._seen:
                self._seen.add(kind)
                found.append(warning)
        return found
