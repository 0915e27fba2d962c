"""Choice of a product's method per row count, measured once and stored on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from sparse_core.kernels.choices import Tuner

Method = Literal["dense", "cuda", "vendor"]


class LinearChoice(NamedTuple):
    """Method of a product: ``"dense"``, ``"cuda"`` (the kernel for few rows) or ``"vendor"`` (cuSPARSELt).

    ``variant`` is the number of the kernel variant or of the library's algorithm. Times are 0 if not
    measured.
    """

    method: Method
    variant: int = 0
    microseconds: float = 0.0
    dense_microseconds: float = 0.0


class LinearCase(NamedTuple):
    """Key of a choice.

    ``storage`` is ``"dense"`` if a dense copy of the weight exists, ``"packed"`` if the dense product unpacks
    it. ``rows`` is a row count of :func:`row_bucket`.
    """

    device: str
    library: str
    dtype: str
    out_dtype: str
    activation: str
    out: int
    columns: int
    storage: str
    rows: int


def _choice(entry: list) -> LinearChoice:
    method, variant, microseconds, dense = entry
    if method not in ("dense", "cuda", "vendor"):
        raise ValueError(f"unknown method {method!r}")
    return LinearChoice(method, int(variant), float(microseconds), float(dense))


def _entry(choice: LinearChoice) -> list[str | int | float]:
    method, variant, microseconds, dense = choice
    return [method, variant, round(microseconds, 2), round(dense, 2)]


#: Without measuring, it takes the choice of the nearest row count, else the dense product.
TUNER: Tuner[LinearCase, LinearChoice] = Tuner(
    "nm-linear", 1, Path(__file__).with_name("measured.json"), parse=_choice, entry=_entry, mode="measure"
)
tuning = TUNER.tuning


def row_bucket(rows: int, step: int = 8) -> int:
    """Return the row count that represents ``rows``: multiples of the step up to 64, then eight per octave.

    Row counts that ``step`` does not divide need padding or a second kernel. So they are separate: one row
    less than the bucket represents them.
    """
    if rows <= 64:
        bucket = -(-rows // step) * step
    else:
        size = max(step, 1 << (rows - 1).bit_length() - 4)
        bucket = -(-rows // size) * size
    return bucket - 1 if rows % step else bucket
