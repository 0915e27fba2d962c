"""``dataset.yaml``: description of the scans and labels of an own folder."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perception.config import load_config
from perception.errors import ConfigError, DataError
from perception.io.columns import parse_columns
from perception.io.transform import ScanTransform

#: File that identifies an own folder.
DESCRIPTION_NAME = "dataset.yaml"


@dataclass(frozen=True)
class ScanPart:
    """The scans, and their conversion to metres, x forward, y left, z up.

    Attributes:
        path: folder of the scans, relative to ``dataset.yaml``.
        columns: columns of ``.bin`` and ``.npy`` files; None recognises them
            (:func:`~perception.io.load_point_cloud`).
        scale: metres per unit of the scans.
        axes: the scans' axes that point forward, left and up.
        intensity_scale: full scale of intensity; None recognises it.
        sensor_height_m: height of the scans' origin above the ground; None means about 1.73 m.

    Raises:
        ConfigError: columns, axes or numbers are invalid.
    """

    path: str = "."
    columns: tuple[str, ...] | None = None
    scale: float = 1.0
    axes: str = "x,y,z"
    intensity_scale: float | None = None
    sensor_height_m: float | None = None

    def __post_init__(self) -> None:
        try:
            if self.columns is not None:
                parse_columns(self.columns)
            _ = self.transform
        except ValueError as error:
            raise ConfigError(f"scans: {error}") from error

    @property
    def transform(self) -> ScanTransform:
        """Conversion of the scans for a detector, which also applies to labels."""
        return ScanTransform(self.scale, self.axes, self.sensor_height_m, self.intensity_scale)


@dataclass(frozen=True)
class LabelPart:
    """The labels, in the unit and axes of the scans.

    Attributes:
        path: folder or file, relative to ``dataset.yaml``.
        format: name in ``perception.data.own.FORMATS``.
        angles: unit of headings.
        turn_deg: angle to add to headings, counter-clockwise seen from above.
        z: reference point of a box's z: its centre or its bottom.
        headings: False if all headings are 0 because nobody labelled them: boxes lie along the axes.

    Raises:
        ConfigError: ``turn_deg`` is not finite.
    """

    path: str = "labels"
    format: str = "json"
    angles: Literal["radians", "degrees"] = "radians"
    turn_deg: float = 0.0
    z: Literal["centre", "bottom"] = "centre"
    headings: bool = True

    def __post_init__(self) -> None:
        if not math.isfinite(self.turn_deg):
            raise ConfigError(f"labels.turn_deg must be a finite number, got {self.turn_deg!r}")


@dataclass(frozen=True)
class Description:
    """Description of an own folder.

    Attributes:
        scans: the scans.
        labels: the labels; None without labels.
        classes: class by name in the labels; null drops such boxes. Other names stay unchanged. If empty, all
            names are classes.
        splits: folder of lists ``<split>.txt``, one frame per line; None without splits.
    """

    scans: ScanPart = field(default_factory=ScanPart)
    labels: LabelPart | None = None
    classes: dict[str, str | None] = field(default_factory=dict)
    splits: str | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """Classes in the order of the file, without repetitions."""
        return tuple(dict.fromkeys(name for name in self.classes.values() if name is not None))


def read_description(folder: Path) -> Description:
    """Read the description of a folder; raise ``DataError`` if it is missing or a field is invalid."""
    try:
        return load_config(Description, folder / DESCRIPTION_NAME)
    except ConfigError as error:
        raise DataError(f"{error}. Run `perceive init {folder}` to write this file.") from error
