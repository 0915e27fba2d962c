"""A detector that keeps a frame's time or energy within a budget."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import torch

from perception.budget.selection import important_points
from perception.detector import Detector
from perception.model.level import Level, default_levels
from perception.model.thinning import thinned
from perception.scans.tensors import Cloud, as_tensor, raised_m
from perception.types import Detections, PointCloud
from sparse_core.dynamic import JOULES, SECONDS, EnergyMeter, LatencyController, measure_levels
from sparse_core.errors import EnergyUnavailableError

#: A frame counts at most as this many times what was expected of it: a hiccup is no new scene.
_MOST_TIMES = 3.0
#: A frame that took this many times what was expected of it waited for a larger CUDA graph.
_GREW_TIMES = 10.0


@dataclass(frozen=True)
class LevelUse:
    """What became of one level.

    Attributes:
        level: which.
        measured_s: seconds of a frame on the first scan; None before it.
        frames: it ran on.
        mean_s: seconds of these; None without any.
        measured_j, mean_j: the same in joules; None without a budget of energy.
    """

    level: Level
    measured_s: float | None
    frames: int
    mean_s: float | None
    measured_j: float | None = None
    mean_j: float | None = None


class BudgetedDetector:
    """A detector that takes as much of each frame as its time, or its energy, allows.

    >>> detector = BudgetedDetector(Detector.from_pretrained("pointpillars-kitti"), budget_s=0.05)
    >>> detections = detector(points)
    >>> detector.ran, detector.elapsed_s      # the level that ran, and what it took

    All levels are prepared here: networks that share their weights, on a GPU with a CUDA graph each. The
    first scan with a point in range tells what each level takes (see :meth:`measure`); from then on a
    :class:`~sparse_core.dynamic.LatencyController` chooses by what the last frames took, in constant time.
    A budget that no level meets: the fastest runs, and a ``BudgetWarning`` says so once. Not for several
    threads at a time.

    A budget of energy is the same with joules for seconds: what the counters of the device rise by while a
    frame is computed, so with whatever else runs then, and without what is used between frames. Watts are
    joules a frame times frames a second. Counters move in steps: frames are told to the controller together
    once they have lasted ``meter.least_s``.

    Args:
        detector: the whole one; stays as it is.
        budget_s: seconds a frame, from points to boxes on the host.
        budget_j: joules a frame instead.
        meter: of the energy; None: an :class:`~sparse_core.dynamic.EnergyMeter` of the device.
        levels: best first; None: :func:`~perception.budget.default_levels`.
        hysteresis, patience: of the controller.

    Attributes:
        levels: what there is to choose from.
        controller: None before levels are measured.
        ran: name of the level that the last frame ran on; None before the first.
        elapsed_s: seconds of the last frame, choosing included, measuring not.
        meter: None without a budget of energy.
        used_j: joules that the counters rose by during the last frame, in their steps.
        seconds, joules: of each level, measured, by name; empty before that (joules: without such a budget).

    Raises:
        ValueError: no levels, two of one name, one that does not fit the network, a budget that is not
            positive, or not one of time or energy.
        EnergyUnavailableError: joules are asked for and the device has no counter that can be read.
    """

    def __init__(
        self,
        detector: Detector,
        budget_s: float | None = None,
        *,
        budget_j: float | None = None,
        meter: EnergyMeter | None = None,
        levels: Sequence[Level] | None = None,
        hysteresis: float = 0.1,
        patience: int = 5,
    ) -> None:
        self.levels = tuple(default_levels(fast=detector.fast) if levels is None else levels)
        self._by_name = {level.name: level for level in self.levels}
        if len(self._by_name) != len(self.levels):
            raise ValueError(f"levels need different names, got {[level.name for level in self.levels]}")
        self._hysteresis, self._patience = hysteresis, patience
        if (budget_s is None) == (budget_j is None):
            raise ValueError("a budget is of time or of energy: give one of budget_s and budget_j")
        self._quantity = SECONDS if budget_j is None else JOULES
        self._budget = float(budget_s if budget_j is None else budget_j)  # type: ignore[arg-type]
        # What a controller would not take is an error now, and not at the first scan.
        self._control(dict.fromkeys(self._by_name, 1.0), self._budget)
        self.meter = None if budget_j is None else meter or EnergyMeter(detector.device)
        self.config, self.device = detector.config, detector.device
        self._detectors = _prepared(detector, self.levels)
        self.controller: LatencyController | None = None
        self.seconds: dict[str, float] = {}
        self.joules: dict[str, float] = {}
        self._frames = dict.fromkeys(self._by_name, 0)
        self._total_s = dict.fromkeys(self._by_name, 0.0)
        self._total_j = dict.fromkeys(self._by_name, 0.0)
        self._untold = _Untold()
        self.ran: str | None = None
        self.elapsed_s = self.used_j = 0.0

    @property
    def budget_s(self) -> float | None:
        """Seconds a frame; None where the budget is of energy."""
        return self._budget if self._quantity is SECONDS else None

    @property
    def budget_j(self) -> float | None:
        """Joules a frame; None where the budget is of time."""
        return self._budget if self._quantity is JOULES else None

    def set_budget(self, budget: float) -> None:
        """Take another budget from the next frame on.

        Args:
            budget: seconds or joules a frame, as it is a budget of time or of energy.

        Raises:
            ValueError: not positive and finite.
        """
        if self.controller is None:
            self._control(dict.fromkeys(self._by_name, 1.0), budget)
        else:
            self.controller.set_budget(budget)
        self._budget = float(budget)

    def measure(self, cloud: Cloud, *, repeats: int | None = None) -> Mapping[str, float]:
        """What each level takes on a scan, by name, in seconds or joules as the budget is.

        Medians of runs in turn. Compiles and captures first. Joules are measured after the seconds, of as
        many frames at a time as the counters need: on a GPU for a second of each level.

        Args:
            cloud: a typical scan.
            repeats: measured runs of each level; None: 5 on a CPU, 20 on a GPU.

        Raises:
            ValueError: no point of the scan lies in range, so that nothing would be measured.
            EnergyUnavailableError: the counters do not move.
        """
        if not self._holds_something(cloud):
            raise ValueError("levels are measured on a scan with points in range; this one has none")
        on_gpu = self.device.type == "cuda"
        with ExitStack() as stack:
            for detector in self._detectors.values():
                stack.enter_context(detector.watch.muted())
            self.seconds = measure_levels(
                {level.name: partial(self._detect, level, cloud) for level in self.levels},
                repeats=repeats or (20 if on_gpu else 5),
                warm_up=3 if on_gpu else 1,
            )
            if self.meter is not None:
                self.joules = self._measure_energy(self.meter, cloud, repeats or (1 if on_gpu else 3))
        self._untold = _Untold()
        self.controller = self._control(self._costs, self._budget)
        return dict(self._costs)

    def _measure_energy(self, meter: EnergyMeter, cloud: Cloud, repeats: int) -> dict[str, float]:
        frames = {name: math.ceil(meter.least_s / taken) for name, taken in self.seconds.items()}

        def several(level: Level) -> None:
            for _ in range(frames[level.name]):
                self._detect(level, cloud)

        runs = {level.name: partial(several, level) for level in self.levels}
        used = measure_levels(runs, repeats=repeats, warm_up=0, clock=meter)
        if min(used.values()) <= 0:
            raise EnergyUnavailableError(
                f"the energy of {', '.join(meter.sources)} cannot be measured: its counter did not move while"
                f" frames were computed for {meter.least_s:g} s"
            )
        return {name: joules / frames[name] for name, joules in used.items()}

    def __call__(self, cloud: Cloud) -> Detections:
        """Detect objects in one scan, at the level that fits.

        Args:
            cloud: as for :class:`~perception.Detector`. The first one with a point in range is run on every
                level to measure them; scans before it run on the first level.

        Warns:
            BudgetWarning: once, when no level is expected to meet the budget.
        """
        if self.controller is None and self._holds_something(cloud):
            self.measure(cloud)
        before_j = 0.0 if self.meter is None else self.meter()
        begin = time.perf_counter()
        name = self.levels[0].name if self.controller is None else self.controller.choose()
        found = self._detect(self._by_name[name], cloud)
        self.ran, self.elapsed_s = name, time.perf_counter() - begin
        self.used_j = 0.0 if self.meter is None else self.meter() - before_j
        self._frames[name] += 1
        self._total_s[name] += self.elapsed_s
        self._total_j[name] += self.used_j
        if self.controller is not None:
            self._observe(self.controller, name, cloud)
        return found

    def at(self, name: str, cloud: Cloud) -> Detections:
        """Detect objects in one scan at a level by name; the controller is neither asked nor told.

        Raises:
            ValueError: no such level.
        """
        if name not in self._by_name:
            raise ValueError(f"no level {name!r}: there are {list(self._by_name)}")
        return self._detect(self._by_name[name], cloud)

    def stream(self, clouds: Iterable[Cloud]) -> Iterator[Detections]:
        """Detect objects in scans as they arrive, one after the other: each has the whole budget."""
        for cloud in clouds:
            yield self(cloud)

    def profile(self, cloud: Cloud, *, repeats: int = 20) -> dict[str, float]:
        """Milliseconds of each stage at the level that ran last; the choice of pillars first, if any."""
        level = self._by_name[self.ran or self.levels[0].name]
        stages: dict[str, float] = {}
        if level.pillar_share < 1:
            chosen = measure_levels({"": lambda: self._select(level, cloud)}, repeats=repeats)
            stages["selection"] = 1e3 * chosen[""]
        return stages | self._detectors[level.name].profile(self._select(level, cloud), repeats=repeats)

    def uses(self) -> tuple[LevelUse, ...]:
        """What became of each level so far."""
        return tuple(
            LevelUse(
                level,
                self.seconds.get(name),
                frames,
                self._total_s[name] / frames if frames else None,
                self.joules.get(name),
                self._total_j[name] / frames if frames and self.meter is not None else None,
            )
            for level, (name, frames) in zip(self.levels, self._frames.items(), strict=True)
        )

    @property
    def _costs(self) -> dict[str, float]:
        return self.seconds if self._quantity is SECONDS else self.joules

    def _control(self, costs: Mapping[str, float], budget: float) -> LatencyController:
        return LatencyController(
            costs,
            budget,
            hysteresis=self._hysteresis,
            patience=self._patience,
            quantity=self._quantity,
        )

    def _detect(self, level: Level, cloud: Cloud) -> Detections:
        return self._detectors[level.name](self._select(level, cloud))

    def _select(self, level: Level, cloud: Cloud) -> Cloud:
        if level.pillar_share == 1:
            return cloud
        pillars = self._detectors[level.name].config.pillars
        chosen = important_points(as_tensor(cloud), pillars, level.pillar_share)
        if not isinstance(cloud, PointCloud):
            return chosen
        if raised := raised_m(cloud):
            chosen = chosen - torch.tensor([0.0, 0.0, raised, 0.0], dtype=torch.float32)
        return replace(cloud, points=chosen.numpy())

    def _holds_something(self, cloud: Cloud) -> bool:
        return bool(self.config.pillars.grid.contains(*as_tensor(cloud).T[:3]).any())

    def _observe(self, controller: LatencyController, name: str, cloud: Cloud) -> None:
        expected = controller.expected(name)
        # The scene is as much harder in seconds as in joules.
        expected_s = self.seconds[name] * expected / self._costs[name]
        if self._detectors[name].fast and self.elapsed_s > _GREW_TIMES * expected_s:
            # The other levels' graphs grow now, with the same scan, and not when they are first needed.
            for level in self.levels:
                self._detect(level, cloud)
            return
        untold = self._untold
        untold.seconds += self.elapsed_s
        untold.cost += self.elapsed_s if self.meter is None else self.used_j
        untold.expected += expected
        if untold.cost > 0 and (self.meter is None or untold.seconds >= self.meter.least_s):
            controller.observe(name, min(untold.cost / untold.expected, _MOST_TIMES) * expected)
            self._untold = _Untold()


@dataclass
class _Untold:
    """Frames that the controller has not been told of: what they took, and what was expected."""

    seconds: float = 0.0
    cost: float = 0.0
    expected: float = 0.0


def _prepared(detector: Detector, levels: Sequence[Level]) -> dict[str, Detector]:
    """A detector for each level; those that compute the same network are one."""
    made: dict[Hashable, Detector] = {}
    prepared = {}
    for level in levels:
        network = thinned(detector.network, level, detector.config)
        config = network.config
        key = (config.pillars, config.backbone, config.neck, config.refine)
        if config == detector.config:
            made.setdefault(key, detector)
        elif key not in made:
            made[key] = Detector(
                network,
                device=detector.device,
                fast=detector.fast,
                precision=detector.precision,
                overflow=detector.overflow,
            )
            made[key].warned = detector.warned
        prepared[level.name] = made[key]
    return prepared
