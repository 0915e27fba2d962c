"""Points packed in the bytes of a message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perception.errors import DataError
from perception.io.raw import RawCloud, as_float32, intensity_names, pick_intensity


class PackedField(NamedTuple):
    """A field of a point.

    Attributes:
        name: name in the message.
        dtype: type with byte order, or None if unknown.
        offset: first byte within a point.
        numbers: count of numbers; only fields of one number are read.
    """

    name: str
    dtype: np.dtype[Any] | None
    offset: int
    numbers: int = 1


@dataclass(frozen=True, eq=False)
class PackedCloud:
    """Points of a message.

    Attributes:
        fields: fields of a point.
        width, height: points per row, and rows.
        point_step, row_step: bytes per point and per row, including padding.
        data: (bytes,) uint8.
    """

    fields: Sequence[PackedField]
    width: int
    height: int
    point_step: int
    row_step: int
    data: npt.NDArray[np.uint8]

    def to_raw(self, place: str) -> RawCloud:
        """Return x, y, z and intensity; rows with NaN stay.

        Raises:
            DataError: a field is missing, of an unknown type or outside its point, or bytes are missing.
        """
        named = {field.name.lower(): field for field in reversed(self.fields)}
        missing = [name for name in ("x", "y", "z") if name not in named]
        if missing:
            raise DataError(
                f"{place}: no field {', '.join(missing)}; fields:"
                f" {', '.join(field.name for field in self.fields) or 'none'}. Choose another topic."
            )
        if not self.width * self.height:
            return RawCloud(np.zeros((0, 3), np.float32), None)
        self._check_size(place)
        xyz = np.stack([as_float32(self._column(place, named[name])) for name in ("x", "y", "z")], axis=1)
        single = [name for name, field in named.items() if field.numbers <= 1]
        bright = {name: self._column(place, named[name]) for name in intensity_names(single)}
        return RawCloud(xyz, pick_intensity(bright))

    def _check_size(self, place: str) -> None:
        if self.height > 1 and self.row_step < self.width * self.point_step:
            raise DataError(
                f"{place}: row_step is {self.row_step}, less than width {self.width} x point_step"
                f" {self.point_step}. Correct the driver that wrote it."
            )
        needed = self._row_step * (self.height - 1) + self.width * self.point_step
        if len(self.data) < needed:
            raise DataError(
                f"{place}: truncated, {needed - len(self.data)} of {needed} bytes of points are missing."
                " Record it again."
            )

    @property
    def _row_step(self) -> int:
        # Drivers often leave row_step at 0 for a single row.
        return self.row_step if self.height > 1 else self.width * self.point_step

    def _column(self, place: str, field: PackedField) -> npt.NDArray[Any]:
        """Return the (N,) values of a field."""
        if field.dtype is None or field.numbers > 1:
            raise DataError(
                f"{place}: field {field.name} has an unknown datatype or {field.numbers} numbers; expected"
                " one number of 1, 2, 4 or 8 bytes. Correct the driver that wrote it."
            )
        if field.offset < 0 or field.offset + field.dtype.itemsize > self.point_step:
            raise DataError(
                f"{place}: field {field.name} at byte {field.offset} exceeds point_step {self.point_step}."
                " Correct the driver that wrote it."
            )
        values: npt.NDArray[Any] = np.ndarray(
            (self.height, self.width),
            field.dtype,
            self.data.data,
            field.offset,
            (self._row_step, self.point_step),
        )
        # Copy once, to the byte order of the machine.
        return values.astype(field.dtype.newbyteorder("="), order="C").reshape(-1)
