"""Which tiles a convolution of which size takes: measured once, kept on disk, or a good guess."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from sparse_core.choices import cache_folder, device_name, read_choices, write_choices
from sparse_core.conv.convolution.plan import ConvolutionConfig, Shape, default_config, fits

__all__ = [
    "VERSION",
    "Case",
    "Choice",
    "TuningSettings",
    "case_of",
    "chosen_config",
    "convolution_tuning",
    "lookup",
    "remember",
    "row_bucket",
    "settings",
    "write_table",
]

Mode = Literal["measure", "table"]
VERSION = 1
_SHIPPED = Path(__file__).with_name("measured.json")


class Choice(NamedTuple):
    """A measured choice.

    Attributes:
        config: the fastest tiles.
        microseconds: of a launch in a CUDA graph when it was measured.
    """

    config: ConvolutionConfig
    microseconds: float


class Case(NamedTuple):
    """What a choice depends on.

    Attributes:
        device: name of the GPU.
        dtype: of the features, as ``str(dtype)``.
        channels_in, channels_out, taps: of the weight.
        rows: output rows, rounded by :func:`row_bucket`.
    """

    device: str
    dtype: str
    channels_in: int
    channels_out: int
    taps: int
    rows: int

    def key(self) -> str:
        """The name in the file."""
        return "|".join(str(part).removeprefix("torch.") for part in self)


@dataclass
class TuningSettings:
    """How choices are made.

    Attributes:
        mode: ``"table"`` takes what was measured before and a guess elsewhere; ``"measure"`` times the
            alternatives at the first call with a new size, which takes up to a minute of compiling.
        folder: where measurements are kept; ``None``: ``sparsight`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
    """

    mode: Mode = "table"
    folder: Path | None = None


_settings = TuningSettings()


@contextmanager
def convolution_tuning(
    mode: Mode = "measure", *, folder: Path | str | None = None
) -> Iterator[TuningSettings]:
    """Choose how tiles are chosen, within a ``with`` block; outside of one it is ``"table"``.

    Args:
        mode: see :class:`TuningSettings`.
        folder: see :class:`TuningSettings`.

    Raises:
        ValueError: an unknown mode.
    """
    if mode not in ("measure", "table"):
        raise ValueError(f"mode must be 'measure' or 'table', got {mode!r}")
    global _settings
    before = _settings
    _settings = TuningSettings(mode, None if folder is None else Path(folder))
    _table.cache_clear()
    try:
        yield _settings
    finally:
        _settings = before
        _table.cache_clear()


def settings() -> TuningSettings:
    """What is in force."""
    return _settings


def row_bucket(rows: int) -> int:
    """The row count that stands for ``rows``: the next power of two, at least 128."""
    return max(128, 1 << max(0, rows - 1).bit_length())


def case_of(shape: Shape, device: torch.device) -> Case:
    """What the choice for a convolution depends on."""
    name = device_name(torch.cuda.current_device() if device.index is None else device.index)
    bucket = row_bucket(shape.rows)
    return Case(name, str(shape.dtype), shape.channels_in, shape.channels_out, shape.taps, bucket)


def chosen_config(shape: Shape, device: torch.device) -> ConvolutionConfig:
    """Tiles for a convolution: measured for its size on this GPU, or the default.

    Measures only where the settings say so, and never while a CUDA graph is being captured.
    """
    if device.type != "cuda":
        return default_config(shape)
    case = case_of(shape, device)
    known = lookup(case)
    if known is not None and fits(known.config, shape):
        return known.config
    if _settings.mode == "table" or torch.cuda.is_current_stream_capturing():
        return default_config(shape)
    from sparse_core.conv.convolution.measure import measure

    choice = measure(shape, device)
    remember(case, choice)
    return choice.config


def lookup(case: Case) -> Choice | None:
    """The choice measured for a case, on this machine or shipped; ``None`` when there is none."""
    return _table().get(case.key())


def remember(case: Case, choice: Choice) -> None:
    """Keep a measurement, also on disk; a folder that cannot be written to is passed over."""
    _table()[case.key()] = choice
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(path, {**_read(path), case.key(): choice})
    except OSError:
        return


def write_table(path: Path, entries: dict[str, Choice]) -> None:
    """Write choices as the file that is shipped or kept."""
    lines = {
        key: [*astuple(config), round(microseconds, 2)] for key, (config, microseconds) in entries.items()
    }
    write_choices(path, VERSION, lines)


def _file() -> Path:
    folder = cache_folder() if _settings.folder is None else _settings.folder
    return folder / f"convolution-{VERSION}.json"


@cache
def _table() -> dict[str, Choice]:
    return {**_read(_SHIPPED), **_read(_file())}


def _read(path: Path) -> dict[str, Choice]:
    return read_choices(path, VERSION, _choice)


def _choice(entry: list) -> Choice:
    variant, block_rows, block_out, block_in, warps, stages, microseconds = entry
    config = ConvolutionConfig(
        variant, int(block_rows), int(block_out), int(block_in), int(warps), int(stages)
    )
    return Choice(config, float(microseconds))
