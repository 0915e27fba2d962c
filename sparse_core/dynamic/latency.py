"""Select among prepared sparsity levels by their cost, so that a frame stays within its budget."""

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
    """A quantity that a budget limits, with its wording.

    Attributes:
        name: name of the unit, in the plural.
        symbol: symbol of the unit in argument names.
        least: word for the level that needs the least.
        shown_as: unit in messages.
        shown: number of ``shown_as`` units in one unit.
    """

    name: str
    symbol: str
    least: str
    shown_as: str
    shown: float

    def told(self, amount: float) -> str:
        """Return an amount with its unit."""
        return f"{amount * self.shown:.3g} {self.shown_as}"


SECONDS = Quantity("seconds", "s", "fastest", "ms", 1e3)
JOULES = Quantity("joules", "j", "most frugal", "J", 1.0)


class BudgetWarning(UserWarning):
    """No prepared level meets the budget; the cheapest one runs."""


class LatencyController:
    """Selects the first level, best quality first, that fits the budget.

    All levels are prepared in advance; a switch changes the result of :meth:`choose` and allocates nothing.
    One factor per scene (observed over expected seconds, smoothed) scales all levels, so that levels that
    have not run for a while are judged by the current scene too. With ``quantity=JOULES`` all seconds here
    are joules.

    A slower level is taken only after it is expected to stay below ``budget * (1 - hysteresis)`` for
    ``patience`` consecutive frames. A faster one is taken as soon as the current one is expected to exceed
    the budget.

    Args:
        seconds: expected seconds per frame of each level, best quality first; see :func:`measure_levels`.
        budget_s: seconds per frame.
        hysteresis: share of the budget that must be free before a slower level is taken, 0 to below 1.
        patience: consecutive frames for which it must be free.
        smoothing: weight of a new observation, above 0, at most 1.
        quantity: unit of ``seconds``, ``budget_s`` and observations; changes only messages.

    Attributes:
        level: name of the current level.
        switches: number of level changes so far.

    Raises:
        TypeError: ``seconds`` is no dictionary.
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
        if not isinstance(seconds, Mapping):
            raise TypeError(
                f"expected a dictionary of level names and {quantity.name}, got {type(seconds).__name__}"
            )
        if not seconds:
            raise ValueError(f"needs at least one level with its expected {quantity.name} per frame")
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
        self._scene, self._free_frames, self._warned = 1.0, 0, False
        self.switches = 0
        self.set_budget(budget_s)
        self._at = self._first_below(self.budget_s)

    @property
    def level(self) -> str:
        """Name of the current level."""
        return self.names[self._at]

    def set_budget(self, budget_s: float) -> None:
        """Change the budget from the next frame on.

        Raises:
            ValueError: the budget is not positive and finite.
        """
        _check(budget_s, f"budget_{self.quantity.symbol}")
        self.budget_s = float(budget_s)
        self._warned = False

    def expected(self, level: str) -> float:
        """Return the expected seconds per frame of a level in the current scene.

        Raises:
            ValueError: no such level.
        """
        return self._base[self._find(level)] * self._scene

    def choose(self) -> str:
        """Return the name of the level for the next frame.

        Warns:
            BudgetWarning: no level is expected to meet the budget; repeated only after one did.
        """
        wanted = self._first_below(self.budget_s)
        fits = self._base[wanted] * self._scene <= self.budget_s
        if not fits and not self._warned:
            quantity = self.quantity
            warnings.warn(
                f"no level meets {quantity.told(self.budget_s)}: the {quantity.least},"
                f" {self.names[wanted]!r}, runs and is expected to take"
                f" {quantity.told(self._base[wanted] * self._scene)}",
                BudgetWarning,
                stacklevel=2,
            )
        self._warned = not fits
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
        """Record the measured cost of a frame.

        Args:
            level: the level that ran.
            seconds: its measured cost.

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
    """Return the median cost of each level; measurements of the levels are interleaved.

    Args:
        levels: functions that run one frame of each level, best quality first.
        repeats: measured frames per level.
        warm_up: unmeasured frames before them.
        synchronize: waits for the device, for example ``torch.cuda.synchronize``.
        clock: a rising reading, for example an :class:`EnergyMeter`; seconds by default.

    Raises:
        ValueError: no levels or no repeats.
    """
    if not levels or repeats < 1 or warm_up < 0:
        raise ValueError(f"needs levels and repeats, got {len(levels)} levels, {repeats=}, {warm_up=}")
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
