"""Which way a product is done at which row count, measured once and kept on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from sparse_core.kernels.choices import Tuner

Method = Literal["dense", "cuda", "vendor"]


class LinearChoice(NamedTuple):
    """How a product is done.

    Attributes:
        method: ``"dense"``, ``"cuda"`` (the kernel for few rows) or ``"vendor"`` (cuSPARSELt).
        variant: which kernel variant or which algorithm of the library; 0 for dense.
        microseconds: of the chosen way when it was measured, or 0.
        dense_microseconds: of the dense product in the same measurement, or 0.
    """

    method: Method
    variant: int = 0
    microseconds: float = 0.0
    dense_microseconds: float = 0.0


class LinearCase(NamedTuple):
    """What a choice depends on.

    Attributes:
        device: name of the GPU.
        library: version of cuSPARSELt, or ``"none"``.
        dtype, out_dtype: as ``str(dtype)``.
        activation: ``"none"``, ``"relu"`` or ``"gelu"``.
        out, columns: of the weight.
        storage: ``"dense"`` where a dense copy of the weight is at hand, ``"packed"`` where the dense product
            has to unpack it first.
        rows: a row count of :func:`row_bucket`.
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


#: Takes the product at the nearest row count, or the dense one, where nothing may be measured.
TUNER: Tuner[LinearCase, LinearChoice] = Tuner(
    "nm-linear", 1, Path(__file__).with_name("measured.json"), parse=_choice, entry=_entry, mode="measure"
)
tuning = TUNER.tuning


def row_bucket(rows: int, step: int = 8) -> int:
    """Return the row count that stands for ``rows``: multiples of the step to 64, then eight an octave.

    Args:
        rows: at least 1.
        step: row counts that it does not divide need padding or a second kernel, so they are kept apart: one
            row less than the bucket stands for them.
    """
    if rows <= 64:
        bucket = -(-rows // step) * step
    else:
        size = max(step, 1 << (rows - 1).bit_length() - 4)
        bucket = -(-rows // size) * size
    return bucket - 1 if rows % step else bucket
