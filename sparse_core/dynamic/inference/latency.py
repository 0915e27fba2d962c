"""Choose among prepared sparsity levels by what they cost, so that a frame stays within its budget."""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Quantity:
    """What a budget is of, and how it is worded.

    Attributes:
        name: of the unit, in the plural.
        symbol: of it in names of arguments.
        least: the word for the level that needs the least.
        shown_as: unit of messages.
        shown: how many of these are one.
    """

    name: str
    symbol: str
    least: str
    shown_as: str
    shown: float

    def told(self, amount: float) -> str:
        """An amount in words."""
        return f"{amount * self.shown:.3g} {self.shown_as}"


SECONDS = Quantity("seconds", "s", "fastest", "ms", 1e3)
JOULES = Quantity("joules", "j", "most frugal", "J", 1.0)


class BudgetWarning(UserWarning):
    """No prepared level meets the budget; the one that needs least runs."""


class LatencyController:
    """Picks the first level, best quality first, that fits the budget.

    All levels are prepared beforehand; a switch is another answer of :meth:`choose` and allocates nothing.
    A frame costs the same few operations however long it runs: one pass over the levels. What a scene costs
    is a factor shared by all levels (observed over expected seconds, smoothed), so that levels that have not
    run for long are judged by today's scene too.

    What is measured may be something else than time: with ``quantity=JOULES`` all seconds here are joules.

    A slower level is taken only when it is expected to stay below ``budget * (1 - hysteresis)``, for
    ``patience`` frames in a row; a faster one as soon as the present one is expected over the budget.

    Args:
        seconds: expected seconds a frame of each level, best quality first; see :func:`measure_levels`.
        budget_s: seconds a frame.
        hysteresis: share of the budget that must be free before a slower level is taken, 0 to below 1.
        patience: frames in a row that it must have been free.
        smoothing: weight of a new observation, above 0, at most 1.
        quantity: what ``seconds``, ``budget_s`` and observations are; it changes messages only.

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
        quantity: Quantity = SECONDS,
    ) -> None:
        if not seconds:
            raise ValueError(f"needs at least one level with its expected {quantity.name} a frame")
        for name, expected in seconds.items():
            _check(expected, f"{quantity.name} of level {name!r}")
        if not 0 <= hysteresis < 1 or patience < 1 or not 0 < smoothing <= 1:
            raise ValueError(
                "hysteresis must be 0 to below 1, patience at least 1 and smoothing above 0, at most 1,"
                f" got {hysteresis}, {patience}, {smoothing}"
            )
        self.quantity = quantity
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
        _check(budget_s, f"budget_{self.quantity.symbol}")
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
            quantity = self.quantity
            warnings.warn(
                f"no level meets {quantity.told(self.budget_s)}: the {quantity.least},"
                f" {self.names[wanted]!r}, runs and is expected to take"
                f" {quantity.told(self._base[wanted] * self._scene)}",
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
        _check(seconds, self.quantity.name)
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
    clock: Callable[[], float] | None = None,
) -> dict[str, float]:
    """Median seconds of each level, or of what a clock counts.

    They take turns, so that what else the machine does meets all.

    Args:
        levels: runs one frame of each level, best quality first.
        repeats: measured frames a level.
        warm_up: frames before that.
        synchronize: waits for the device, such as ``torch.cuda.synchronize``.
        clock: a reading that rises, such as an :class:`EnergyMeter`; None: seconds.

    Raises:
        ValueError: no levels or no repeats.
    """
    if not levels or repeats < 1 or warm_up < 0:
        raise ValueError(f"needs levels and repeats, got {len(levels)} levels, {repeats} and {warm_up} turns")
    read = time.perf_counter if clock is None else clock
    samples: dict[str, list[float]] = {name: [] for name in levels}
    for turn in range(warm_up + repeats):
        for name, run in levels.items():
            if synchronize:
                synchronize()
            begin = read()
            run()
            if synchronize:
                synchronize()
            if turn >= warm_up:
                samples[name].append(read() - begin)
    return {name: statistics.median(taken) for name, taken in samples.items()}


def _check(amount: float, name: str) -> None:
    if not (math.isfinite(amount) and amount > 0):
        raise ValueError(f"{name} must be positive and finite, got {amount}")
