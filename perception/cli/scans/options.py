"""Options that say what scans are: columns, unit, axes, height and intensity."""

from __future__ import annotations

import argparse
import re

from perception.io.columns import parse_columns
from perception.io.transform import ScanTransform

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def add_scan_options(parser: argparse.ArgumentParser) -> None:
    """``--columns``, ``--scale``, ``--axes``, ``--mounting``, ``--sensor-height``, ``--intensity-scale``."""
    group = parser.add_argument_group("what the scans are, where it is not metres, x forward, y left, z up")
    group.add_argument(
        "--columns",
        metavar="NAMES",
        help="of .bin, .npy and text files: x,y,z,intensity,ring (with _ for others), or how many",
    )
    group.add_argument("--scale", type=float, metavar="METRES", help="in a unit: 0.001 for millimetres")
    group.add_argument(
        "--axes",
        metavar="X,Y,Z",
        help="the scans' axes that are forward, left and up: y,-x,z for nuScenes; --axes=-x,... with a minus",
    )
    group.add_argument(
        "--sensor-height", type=float, metavar="M", help="of the scans' origin above the ground, in metres"
    )
    group.add_argument(
        "--mounting",
        metavar="ROLL,PITCH,YAW",
        help="of a sensor that is not level and forward, in degrees: --mounting=0,15,0 looks down",
    )
    group.add_argument(
        "--intensity-scale", type=float, metavar="MAX", help="stored intensity that stands for 1: 255"
    )


def columns_of(options: argparse.Namespace) -> tuple[str, ...] | None:
    """The names of columns that were asked for.

    Raises:
        ValueError: there are no such columns.
    """
    return None if options.columns is None else parse_columns(options.columns)


def transform_of(options: argparse.Namespace) -> ScanTransform:
    """The change of scans that was asked for.

    Raises:
        ValueError: a number or axes that cannot be.
    """
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
    """Warnings that were not said yet: those that differ in their numbers alone count as one."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def new(self, warnings: tuple[str, ...]) -> list[str]:
        """Those of a frame that are new."""
        found = []
        for warning in warnings:
            kind = _NUMBER.sub("#", warning)
            if kind not in self._said:
                self._said.add(kind)
                found.append(warning)
        return found
