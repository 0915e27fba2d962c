"""Choose among prepared sparsity levels by measured latency, so that a frame stays within its budget."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any


class BudgetWarning(UserWarning):
    """No prepared level meets the latency budget; the fastest one runs."""


class LatencyController:
    """Picks the first level, best quality first, that fits the budget.

    All levels are prepared beforehand; a switch is another answer of :meth:`choose` and allocates nothing.
    A frame costs the same few operations however long it runs: one pass over the levels. What a scene costs
    is a factor shared by all levels (observed over expected seconds, smoothed), so that levels that have not
    run for long are judged by today's scene too.

    A slower level is taken only when it is expected to stay below ``budget * (1 - hysteresis)``, for
    ``patience`` frames in a row; a faster one as soon as the present one is expected over the budget.

    Args:
        seconds: expected seconds a frame of each level, best quality first; see :func:`measure_levels`.
        budget_s: seconds a frame.
        hysteresis: share of the budget that must be free before a slower level is taken, 0 to below 1.
        patience: frames in a row that it must have been free.
        smoothing: weight of a new observation, above 0, at most 1.

    Attributes:
        level: name of the present level.
        switches: how often it has changed.

    Raises:
        ValueError: no levels, or numbers out of range.
    """

    def __init__(
        self,
        seconds: Mapping[str, float],
        budget_s: float,
        *,
        hysteresis: float = 0.1,
        patience: int = 5,
        smoothing: float = 0.3,
    ) -> None:
        if not seconds:
            raise ValueError("needs at least one level with its expected seconds a frame")
        for name, expected in seconds.items():
            _check_seconds(expected, f"seconds of level {name!r}")
        if not 0 <= hysteresis < 1 or patience < 1 or not 0 < smoothing <= 1:
            raise ValueError(
                "hysteresis must be 0 to below 1, patience at least 1 and smoothing above 0, at most 1,"
                f" got {hysteresis}, {patience}, {smoothing}"
            )
        self.names = tuple(seconds)
        self._place = {name: at for at, name in enumerate(self.names)}
        self._base = [float(seconds[name]) for name in self.names]
        self.hysteresis, self.patience, self.smoothing = hysteresis, patience, smoothing
        self._scene, self._free_frames, self._told = 1.0, 0, False
        self.switches = 0
        self.set_budget(budget_s)
        self._at = self._first_below(self.budget_s)

    @property
    def level(self) -> str:
        """Name of the present level."""
        return self.names[self._at]

    def set_budget(self, budget_s: float) -> None:
        """Take another budget from the next frame on.

        Raises:
            ValueError: not positive and finite.
        """
        _check_seconds(budget_s, "budget_s")
        self.budget_s = float(budget_s)
        self._told = False

    def expected(self, level: str) -> float:
        """Seconds that a frame of the level is expected to take in the present scene.

        Raises:
            ValueError: no such level.
        """
        return self._base[self._find(level)] * self._scene

    def choose(self) -> str:
        """Name of the level for the next frame.

        Warns:
            BudgetWarning: once, when no level is expected to meet the budget; again only after one did.
        """
        wanted = self._first_below(self.budget_s)
        fits = self._base[wanted] * self._scene <= self.budget_s
        if not fits and not self._told:
            warnings.warn(
                f"no level meets {self.budget_s * 1e3:.3g} ms: the fastest, {self.names[wanted]!r}, runs"
                f" and is expected to take {self._base[wanted] * self._scene * 1e3:.3g} ms",
                BudgetWarning,
                stacklevel=2,
            )
        self._told = not fits
        if self._base[self._at] * self._scene > self.budget_s:
            self._go(wanted)
            return self.level
        better = self._first_below(self.budget_s * (1 - self.hysteresis))
        if better < self._at:
            self._free_frames += 1
            if self._free_frames >= self.patience:
                self._go(better)
        else:
            self._free_frames = 0
        return self.level

    def observe(self, level: str, seconds: float) -> None:
        """Tell what a frame took.

        Args:
            level: the one that ran.
            seconds: measured.

        Raises:
            ValueError: no such level, or seconds that are not positive and finite.
        """
        _check_seconds(seconds, "seconds")
        factor = seconds / self._base[self._find(level)]
        self._scene += self.smoothing * (factor - self._scene)

    def _first_below(self, limit: float) -> int:
        for at, base in enumerate(self._base):
            if base * self._scene <= limit:
                return at
        return min(range(len(self._base)), key=self._base.__getitem__)

    def _go(self, at: int) -> None:
        self.switches += at != self._at
        self._at, self._free_frames = at, 0

    def _find(self, level: str) -> int:
        if level not in self._place:
            raise ValueError(f"no level {level!r}: there are {list(self.names)}")
        return self._place[level]


def measure_levels(
    levels: Mapping[str, Callable[[], Any]],
    *,
    repeats: int = 20,
    warm_up: int = 3,
    synchronize: Callable[[], None] | None = None,
) -> dict[str, float]:
    """Median seconds of each level; they take turns, so that what else the machine does meets all.

    Args:
        levels: runs one frame of each level, best quality first.
        repeats: measured frames a level.
        warm_up: frames before that.
        synchronize: waits for the device, such as ``torch.cuda.synchronize``.

    Raises:
        ValueError: no levels or no repeats.
    """
    if not levels or repeats < 1 or warm_up < 0:
        raise ValueError(f"needs levels and repeats, got {len(levels)} levels, {repeats} and {warm_up} turns")
    samples: dict[str, list[float]] = {name: [] for name in levels}
    for turn in range(warm_up + repeats):
        for name, run in levels.items():
            if synchronize:
                synchronize()
            begin = time.perf_counter()
            run()
            if synchronize:
                synchronize()
            if turn >= warm_up:
                samples[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) for name, taken in samples.items()}


def _check_seconds(seconds: float, name: str) -> None:
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"{name} must be positive and finite, got {seconds}")
