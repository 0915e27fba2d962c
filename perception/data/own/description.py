"""``dataset.yaml``: what lies in a folder of one's own data, and how its numbers are meant."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perception.config import load_config
from perception.errors import ConfigError, DataError
from perception.io.columns import parse_columns
from perception.io.transform import ScanTransform

#: The file that makes a folder one of this kind.
DESCRIPTION_NAME = "dataset.yaml"


@dataclass(frozen=True)
class ScanPart:
    """Where the scans are, and what is to be done to have metres, x forward, y left, z up.

    Attributes:
        path: folder of the scans, from the folder of ``dataset.yaml``.
        columns: of ``.bin`` and ``.npy`` files; None: recognised (:func:`~perception.io.load_point_cloud`).
        scale: metres in a unit of the scans.
        axes: the scans' axes that are forward, left and up.
        intensity_scale: the stored intensity that stands for 1; None: recognised.
        sensor_height_m: height of the scans' origin above the ground; None: about 1.73 m.

    Raises:
        ConfigError: no such columns, axes or numbers.
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
        """What makes of a scan one that a detector reads; the labels go with it."""
        return ScanTransform(self.scale, self.axes, self.sensor_height_m, self.intensity_scale)


@dataclass(frozen=True)
class LabelPart:
    """Where the labels are and how their numbers are meant, in the unit and axes of the scans.

    Attributes:
        path: folder or file, from the folder of ``dataset.yaml``.
        format: a name among ``perception.data.own.FORMATS``.
        angles: unit of headings.
        turn_deg: added to every heading, counter-clockwise seen from above: 90 where a tool's heading is 90
            degrees to the right of ours.
        z: whether the height of a box is that of its centre or of its bottom.

    Raises:
        ConfigError: ``turn_deg`` is not finite.
    """

    path: str = "labels"
    format: str = "json"
    angles: Literal["radians", "degrees"] = "radians"
    turn_deg: float = 0.0
    z: Literal["centre", "bottom"] = "centre"

    def __post_init__(self) -> None:
        if not math.isfinite(self.turn_deg):
            raise ConfigError(f"labels.turn_deg must be a finite number, got {self.turn_deg!r}")


@dataclass(frozen=True)
class Description:
    """A folder of one's own data.

    Attributes:
        scans: where they are and what they are.
        labels: the same of labels; None: there are none.
        classes: name in the labels to class; null leaves such boxes out. Names that are not listed stay as
            they are. Empty: all names are classes.
        splits: folder of lists ``<split>.txt``, one frame a line; None: there are none.
    """

    scans: ScanPart = field(default_factory=ScanPart)
    labels: LabelPart | None = None
    classes: dict[str, str | None] = field(default_factory=dict)
    splits: str | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, each once, in the order of the file."""
        return tuple(dict.fromkeys(name for name in self.classes.values() if name is not None))


def read_description(folder: Path) -> Description:
    """The description of a folder.

    Raises:
        DataError: there is none, or a field is unknown or wrong; the message names file and field.
    """
    try:
        return load_config(Description, folder / DESCRIPTION_NAME)
    except ConfigError as error:
        raise DataError(f"{error}; `perceive init {folder}` writes this file") from error
