"""Choices measured once per case and GPU: an implementation, an algorithm or tile sizes.

A choice affects only the time, never results that an op promises: an op documents if its alternatives round
differently. A captured graph keeps the choice of its capture.
"""

from __future__ import annotations

import fcntl
import json
import os
import statistics
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Generic, Literal, TypeVar

import torch

from sparse_core.common.files import cache_folder, replacing

Mode = Literal["measure", "table"]
Case = TypeVar("Case", bound="tuple[str | int, ...]")
Choice = TypeVar("Choice")
Way = TypeVar("Way", bound=Hashable)

_HEAD_START_CYCLES = 200_000


@dataclass(frozen=True)
class TuningSettings:
    """Settings of the measurement.

    Attributes:
        mode: ``"measure"`` times the alternatives at the first call of a new case, which takes from tens of
            milliseconds to a minute if kernels must be compiled. ``"table"`` uses earlier measurements, else
            a guess.
        folder: where measurements are stored; by default ``sparsight`` in ``$XDG_CACHE_HOME`` or
            ``~/.cache``.
    """

    mode: Mode
    folder: Path | None = None


class Tuner(Generic[Case, Choice]):
    """The measured choices of one op: shipped ones, then those of this machine, then those of this process.

    A case is a ``NamedTuple`` of strings and integers with the name of the GPU. Choices are stored in a file
    for all processes of a user. A file that is missing, damaged or of another version is measured again, and
    a read-only folder is skipped; neither is an error.

    Args:
        name: name of the cache file.
        version: version of cases and choices; other files are ignored.
        shipped: file with the choices in the package.
        parse: makes a choice from its list in a file; may raise ``ValueError``, ``TypeError`` or
            ``OverflowError``.
        entry: makes that list from a choice.
        mode: mode outside of :meth:`tuning`.
    """

    def __init__(
        self,
        name: str,
        version: int,
        shipped: Path,
        *,
        parse: Callable[[list], Choice],
        entry: Callable[[Choice], Sequence[object]],
        mode: Mode,
    ) -> None:
        self.name, self.version, self.shipped = name, version, shipped
        self.settings = TuningSettings(mode)
        self._parse, self._entry = parse, entry
        self._known: dict[str, Choice] | None = None

    @contextmanager
    def tuning(self, mode: Mode = "measure", *, folder: Path | str | None = None) -> Iterator[TuningSettings]:
        """Change mode and folder within a ``with`` block, see :class:`TuningSettings`."""
        if mode not in ("measure", "table"):
            raise ValueError(f"mode must be 'measure' or 'table', got {mode!r}")
        before = self.settings
        self.settings = TuningSettings(mode, None if folder is None else Path(folder))
        self._known = None
        try:
            yield self.settings
        finally:
            self.settings = before
            self._known = None

    @property
    def file(self) -> Path:
        """Cache file of this machine."""
        return (self.settings.folder or cache_folder()) / f"{self.name}-{self.version}.json"

    def choose(
        self,
        case: Case,
        *,
        usable: Callable[[Choice], bool],
        fallback: Callable[[], Choice],
        measure: Callable[[], Choice] | None,
    ) -> Choice:
        """Return the known choice, or measure and store one.

        Args:
            case: key of the choice.
            usable: returns True if a known choice, possibly of another release, can run.
            fallback: guess if nothing is known and nothing may be measured: in mode ``"table"``, and during
                the capture of a CUDA graph.
            measure: times the alternatives; ``None`` to forbid it now.
        """
        known = self.lookup(case)
        if known is not None and usable(known):
            return known
        capturing = torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
        if measure is None or self.settings.mode == "table" or capturing:
            return fallback()
        measured = measure()
        self.remember(case, measured)
        return measured

    def lookup(self, case: Case) -> Choice | None:
        """Return the stored choice of a case; ``None`` if there is none."""
        return self._table().get(key_of(case))

    def nearest(self, case: Case) -> Choice | None:
        """Return the choice with the nearest last number and an otherwise equal case."""
        table = self._table()
        prefix = key_of((*case[:-1], ""))
        counts = [key[len(prefix) :] for key in list(table) if key.startswith(prefix)]
        found = [int(count) for count in counts if count.isdecimal()]
        if not found:
            return None
        return table.get(f"{prefix}{min(found, key=lambda count: abs(count - int(case[-1])))}")

    def remember(self, case: Case, choice: Choice) -> None:
        """Store a measurement, also on disk."""
        self._table()[key_of(case)] = choice
        path = self.file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path.parent):
                self.write(path, {**self.read(path), key_of(case): choice})
        except OSError:
            return

    def read(self, path: Path) -> dict[str, Choice]:
        """Return the choices of a file by :func:`key_of` their case; none if it is unreadable."""
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            if stored["version"] != self.version:
                return {}
            return {key: self._parse(entry) for key, entry in stored["choices"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return {}

    def write(self, path: Path, choices: Mapping[str, Choice]) -> None:
        """Write choices to a file, one per line so that diffs are readable."""
        lines = [
            f"  {json.dumps(key)}: {json.dumps(list(self._entry(choice)))}"
            for key, choice in sorted(choices.items())
        ]
        text = f'{{"version": {self.version}, "choices": {{\n' + ",\n".join(lines) + "\n}}\n"
        with replacing(path, private=True) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def _table(self) -> dict[str, Choice]:
        if self._known is None:
            self._known = {**self.read(self.shipped), **self.read(self.file)}
        return self._known


def key_of(case: tuple[str | int, ...]) -> str:
    """Return the key of a case in the file."""
    return "|".join(str(part).removeprefix("torch.") for part in case)


@cache
def device_name(index: int) -> str:
    """Return the name of a GPU."""
    return torch.cuda.get_device_name(index)


def replay_times(
    graphs: Mapping[Way, torch.cuda.CUDAGraph], device: torch.device, *, rounds: int, calls: int
) -> dict[Way, float]:
    """Return the median microseconds per call of graphs of ``calls`` calls; replays are interleaved."""
    samples: dict[Way, list[float]] = {way: [] for way in graphs}
    for _ in range(rounds):
        events = {}
        for way, graph in graphs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(_HEAD_START_CYCLES)  # hides the launch
            start.record()
            graph.replay()
            end.record()
            events[way] = (start, end)
        torch.cuda.synchronize(device)
        for way, (start, end) in events.items():
            samples[way].append(start.elapsed_time(end) * 1e3 / calls)
    return {way: statistics.median(times) for way, times in samples.items()}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other writers, in this process and others; each adds to what the others wrote."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
