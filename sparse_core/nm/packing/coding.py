"""Storage format of kept values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from sparse_core.nm.packing.codebook import MOST_ENTRIES, code_bits

ValueKind = Literal["float64", "float32", "float16", "bfloat16", "int8", "int4", "codebook"]
FLOATS: dict[str, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
INTEGER_BITS: dict[str, int] = {"int8": 8, "int4": 4}


@dataclass(frozen=True)
class Coding:
    """Storage format of kept values.

    Args:
        kind: a floating-point type, ``"int8"``, ``"int4"`` or ``"codebook"``.
        group_size: for int8 and int4: kept values of a row that share a scale; ``None``: one scale per row.
        clip: for int8 and int4: search the scale with the least squared error.
        half_scales: for int8 and int4: scales in float16 instead of float32.
        entries: for a codebook: number of different values, including zero if it occurs; 2 to 256.

    Raises:
        ValueError: an unknown kind, or sizes out of range.
    """

    kind: ValueKind = "int8"
    group_size: int | None = None
    clip: bool = False
    half_scales: bool = False
    entries: int = 16

    def __post_init__(self) -> None:
        if self.kind not in get_args(ValueKind):
            raise ValueError(f"kind must be one of {', '.join(get_args(ValueKind))}, got {self.kind!r}")
        if self.group_size is not None and self.group_size < 1:
            raise ValueError(f"group_size must be at least 1 or None, got {self.group_size}")
        if not 1 <= self.entries <= MOST_ENTRIES:
            raise ValueError(f"a codebook has 1 to {MOST_ENTRIES} entries, got entries={self.entries}")

    @classmethod
    def parse(cls, text: str) -> Coding:
        """Parse ``"float16"``, ``"int8"``, ``"int4"``, ``"int4/64"`` or ``"codebook16"``.

        With ``/64`` each 64 kept values of a row share a scale, which is searched for and stored in float16.

        Raises:
            ValueError: none of these.
        """
        kind, _, size = text.partition("/")
        try:
            if text in get_args(ValueKind):
                return cls(text)  # type: ignore[arg-type]
            if kind in INTEGER_BITS and size:
                return cls(kind, group_size=int(size), clip=True, half_scales=True)  # type: ignore[arg-type]
            if text.startswith("codebook"):
                return cls("codebook", entries=int(text.removeprefix("codebook")))
        except ValueError as error:
            raise ValueError(f"{text!r} is not a coding: {error}") from error
        raise ValueError(
            f"{text!r} is not a coding: use float64, float32, float16, bfloat16, int8, int4, int4/64"
            " (a scale for each 64 values) or codebook16"
        )

    @property
    def bits(self) -> int:
        """Bits per kept value, without scales and codebook."""
        if self.kind == "codebook":
            return code_bits(self.entries)
        return INTEGER_BITS.get(self.kind) or FLOATS[self.kind].itemsize * 8

    def __str__(self) -> str:
        if self.kind == "codebook":
            return f"codebook{self.entries}"
        return self.kind if self.group_size is None else f"{self.kind}/{self.group_size}"


def as_coding(coding: Coding | str) -> Coding:
    """Return the coding itself, or parse its text."""
    return coding if isinstance(coding, Coding) else Coding.parse(coding)
