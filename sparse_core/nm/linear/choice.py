"""Which way a product is done at which row count, measured once and kept on disk."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from sparse_core.choices import cache_folder, read_choices, write_choices

if TYPE_CHECKING:
    from collections.abc import Iterator

Method = Literal["dense", "cuda", "vendor"]
Mode = Literal["measure", "table"]
VERSION = 1
_SHIPPED = Path(__file__).with_name("measured.json")


class Choice(NamedTuple):
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


class Case(NamedTuple):
    """What a choice depends on.

    Attributes:
        device: name of the GPU.
        library: version of cuSPARSELt, or ``"none"``.
        dtype, out_dtype: as ``str(dtype)``.
        activation: ``"none"``, ``"relu"`` or ``"gelu"``.
        out, columns: of the weight.
        rows: a row count of :func:`row_bucket`.
        storage: ``"dense"`` where a dense copy of the weight is at hand, ``"packed"`` where the dense product
            has to unpack it first.
    """

    device: str
    library: str
    dtype: str
    out_dtype: str
    activation: str
    out: int
    columns: int
    rows: int
    storage: str = "dense"

    def key(self) -> str:
        """The name in the file; the row count comes last."""
        parts = (*self[:-2], self.storage, self.rows)
        return "|".join(str(part).removeprefix("torch.") for part in parts)


@dataclass
class Settings:
    """How choices are made.

    Attributes:
        mode: ``"measure"`` times the alternatives at the first call with a new shape and row count, which
            takes tens of milliseconds; ``"table"`` relies on what was measured before, and takes the dense
            product elsewhere.
        folder: where measurements are kept; ``None``: ``sparsight`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
    """

    mode: Mode = "measure"
    folder: Path | None = None


_settings = Settings()


@contextmanager
def tuning(mode: Mode = "measure", *, folder: Path | str | None = None) -> Iterator[Settings]:
    """Choose how choices are made, within a ``with`` block.

    Args:
        mode: see :class:`Settings`.
        folder: see :class:`Settings`.

    Raises:
        ValueError: an unknown mode.
    """
    if mode not in ("measure", "table"):
        raise ValueError(f"mode must be 'measure' or 'table', got {mode!r}")
    global _settings
    before = _settings
    _settings = Settings(mode, None if folder is None else Path(folder))
    _table.cache_clear()
    try:
        yield _settings
    finally:
        _settings = before
        _table.cache_clear()


def settings() -> Settings:
    """What is in force."""
    return _settings


def row_bucket(rows: int, step: int = 8) -> int:
    """The row count that stands for ``rows``: multiples of the step to 64, then eight an octave.

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


def lookup(case: Case) -> Choice | None:
    """The choice measured for a case, on this machine or shipped; ``None`` when there is none."""
    return _table().get(case.key())


def nearest(case: Case) -> Choice | None:
    """The choice at the closest row count that was measured for the same weight."""
    table = _table()
    prefix = case._replace(rows=0).key().removesuffix("0")
    counts = [key[len(prefix) :] for key in list(table) if key.startswith(prefix)]
    found = [int(count) for count in counts if count.isdecimal()]
    if not found:
        return None
    return table.get(f"{prefix}{min(found, key=lambda count: abs(count - case.rows))}")


def remember(case: Case, choice: Choice) -> None:
    """Keep a measurement, also on disk; a folder that cannot be written to is passed over."""
    _table()[case.key()] = choice
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        entries = _read(path)
        entries[case.key()] = choice
        write_table(path, entries)
    except OSError:
        return


def folder() -> Path:
    """Where measurements are kept."""
    return cache_folder() if _settings.folder is None else _settings.folder


def _file() -> Path:
    return folder() / f"nm-linear-{VERSION}.json"


@cache
def _table() -> dict[str, Choice]:
    return {**_read(_SHIPPED), **_read(_file())}


def _read(path: Path) -> dict[str, Choice]:
    return read_choices(path, VERSION, _choice)


def _choice(entry: list) -> Choice:
    method, variant, microseconds, dense = entry
    if method not in ("dense", "cuda", "vendor"):
        raise ValueError(f"unknown method {method!r}")
    return Choice(method, int(variant), float(microseconds), float(dense))


def write_table(path: Path, entries: dict[str, Choice]) -> None:
    """Write choices as the file that is shipped or kept."""
    lines = {
        key: [method, variant, round(microseconds, 2), round(dense, 2)]
        for key, (method, variant, microseconds, dense) in entries.items()
    }
    write_choices(path, VERSION, lines)
