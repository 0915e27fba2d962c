"""A detector that keeps each frame within a time or energy budget."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from perception.budget.selection import important_points
from perception.detector import Detector
from perception.model.level import Level, default_levels
from perception.model.thinning import thinned
from perception.scans.tensors import Cloud, as_measured, as_tensor
from perception.types import Detections, PointCloud
from sparse_core.dynamic import JOULES, SECONDS, EnergyMeter, LatencyController, measure_levels
from sparse_core.errors import EnergyUnavailableError

#: Largest ratio of measured to expected cost that the controller sees, so that a hiccup changes little.
_LARGEST_RATIO = 3.0
#: Ratio of measured to expected time above which a frame has waited for a larger CUDA graph.
_GROWTH_RATIO = 10.0


@dataclass(frozen=True)
class LevelUse:
    """Statistics of one level.

    Attributes:
        level: level of sparsity.
        measured_s: seconds per frame, measured on the first scan; None before it.
        frames: frames that ran on this level.
        mean_s: mean seconds of these frames; None without frames.
        measured_j, mean_j: the same in joules; None without an energy budget.
    """

    level: Level
    measured_s: float | None
    frames: int
    mean_s: float | None
    measured_j: float | None = None
    mean_j: float | None = None


class BudgetedDetector:
    """A detector that chooses the best level of sparsity that its budget allows, frame by frame.

    >>> detector = BudgetedDetector(Detector.from_pretrained("pointpillars-kitti"), budget_s=0.05)
    >>> detections = detector(points)
    >>> detector.ran, detector.elapsed_s      # the level that ran, and its seconds

    The constructor prepares a network for each level; the networks share weights. On the first scan with a
    point in range the detector measures all levels (:meth:`measure`). Then a
    :class:`~sparse_core.dynamic.LatencyController` chooses by the cost of the last frames. If no level meets
    the budget, the fastest runs and a ``BudgetWarning`` is emitted once. Not thread-safe.

    An energy budget counts joules in place of seconds: the rise of the device's counters during a frame,
    other programs included. The controller gets frames in groups of at least ``meter.least_s`` seconds,
    because counters advance in steps.

    Args:
        detector: detector at full quality; not changed.
        budget_s: seconds per frame, from points to boxes on the host.
        budget_j: joules per frame instead.
        meter: energy meter; None: an :class:`~sparse_core.dynamic.EnergyMeter` of the device.
        levels: levels, best first; None: :func:`~perception.budget.default_levels`.
        hysteresis, patience: see :class:`~sparse_core.dynamic.LatencyController`.

    Attributes:
        levels: all levels.
        controller: None before levels are measured.
        ran: name of the level of the last frame; None before the first.
        elapsed_s: seconds of the last frame, without :meth:`measure`.
        meter: None without an energy budget.
        used_j: joules of the last frame, in steps of the counter.
        seconds, joules: measured cost of each level by name; empty before :meth:`measure`.

    Raises:
        ValueError: no levels, duplicate names, a level that does not fit the network, or not exactly one
            positive budget.
        EnergyUnavailableError: the device has no readable energy counter.
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
            raise ValueError(f"levels must have different names, got {[level.name for level in self.levels]}")
        self._hysteresis, self._patience = hysteresis, patience
        if (budget_s is None) == (budget_j is None):
            raise ValueError("pass exactly one of budget_s and budget_j")
        self._quantity = SECONDS if budget_j is None else JOULES
        self._budget = float(budget_s if budget_j is None else budget_j)  # type: ignore[arg-type]
        # Make a controller now, so that a bad argument fails before the first scan.
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
        self._pending = _PendingFrames()
        self.ran: str | None = None
        self.elapsed_s = self.used_j = 0.0

    @property
    def budget_s(self) -> float | None:
        """Seconds per frame; None for an energy budget."""
        return self._budget if self._quantity is SECONDS else None

    @property
    def budget_j(self) -> float | None:
        """Joules per frame; None for a time budget."""
        return self._budget if self._quantity is JOULES else None

    def set_budget(self, budget: float) -> None:
        """Change the budget from the next frame on.

        Args:
            budget: seconds or joules per frame, as in the constructor.

        Raises:
            ValueError: not positive and finite.
        """
        if self.controller is None:
            self._control(dict.fromkeys(self._by_name, 1.0), budget)
        else:
            self.controller.set_budget(budget)
        self._budget = float(budget)

    def measure(self, cloud: Cloud, *, repeats: int | None = None) -> Mapping[str, float]:
        """Measure all levels on a scan: median seconds or joules by name.

        Runs of the levels are interleaved, after compilation and graph capture. For joules, each run repeats
        frames for at least ``meter.least_s`` seconds.

        Args:
            cloud: a typical scan.
            repeats: measured runs of each level; None: 5 on a CPU, 20 on a GPU.

        Raises:
            ValueError: the scan has no point in range.
            EnergyUnavailableError: the energy counters do not advance.
        """
        if not self._has_points(cloud):
            raise ValueError("this scan has no point in range. Measure levels on a typical scan.")
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
        self._pending = _PendingFrames()
        self.controller = self._control(self._costs, self._budget)
        return dict(self._costs)

    def _measure_energy(self, meter: EnergyMeter, cloud: Cloud, repeats: int) -> dict[str, float]:
        frames = {name: math.ceil(meter.least_s / taken) for name, taken in self.seconds.items()}

        def run_frames(level: Level) -> None:
            for _ in range(frames[level.name]):
                self._detect(level, cloud)

        runs = {level.name: partial(run_frames, level) for level in self.levels}
        used = measure_levels(runs, repeats=repeats, warm_up=0, clock=meter)
        if min(used.values()) <= 0:
            raise EnergyUnavailableError(
                f"the energy counter of {', '.join(meter.sources)} did not advance during {meter.least_s:g} s"
                " of frames. Use budget_s instead."
            )
        return {name: joules / frames[name] for name, joules in used.items()}

    def __call__(self, cloud: Cloud) -> Detections:
        """Detect objects in one scan at the level that fits the budget.

        Args:
            cloud: scan as for :class:`~perception.Detector`. The first scan with a point in range measures
                all levels; earlier scans run on the first level.

        Warns:
            BudgetWarning: no level is expected to meet the budget (once).
        """
        if self.controller is None and self._has_points(cloud):
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
        """Detect objects in one scan at a given level, without the controller.

        Raises:
            ValueError: unknown level.
        """
        if name not in self._by_name:
            raise ValueError(f"unknown level {name!r}; levels are {', '.join(self._by_name)}")
        return self._detect(self._by_name[name], cloud)

    def stream(self, clouds: Iterable[Cloud]) -> Iterator[Detections]:
        """Detect objects in scans as they arrive; each scan has the whole budget."""
        for cloud in clouds:
            yield self(cloud)

    def profile(self, cloud: Cloud, *, repeats: int = 20) -> dict[str, float]:
        """Return median milliseconds of each stage at the last level, selection of pillars included."""
        level = self._by_name[self.ran or self.levels[0].name]
        stages: dict[str, float] = {}
        if level.pillar_share < 1:
            chosen = measure_levels({"": lambda: self._select(level, cloud)}, repeats=repeats)
            stages["selection"] = 1e3 * chosen[""]
        return stages | self._detectors[level.name].profile(self._select(level, cloud), repeats=repeats)

    def uses(self) -> tuple[LevelUse, ...]:
        """Return the statistics of each level."""
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
        seen = as_tensor(cloud, pillars)
        chosen = as_measured(important_points(seen, pillars, level.pillar_share), cloud, pillars.shrink)
        if not isinstance(cloud, PointCloud):
            return chosen
        points, ages = chosen[:, :4].numpy(), chosen[:, 4].numpy() if pillars.sweeps > 1 else None
        return replace(cloud, points=points, ages_s=ages)

    def _has_points(self, cloud: Cloud) -> bool:
        pillars = self.config.pillars
        return bool(pillars.grid.contains(*as_tensor(cloud, pillars).T[:3]).any())

    def _observe(self, controller: LatencyController, name: str, cloud: Cloud) -> None:
        expected = controller.expected(name)
        # Assume that a harder scene costs proportionally more seconds and joules.
        expected_s = self.seconds[name] * expected / self._costs[name]
        if self._detectors[name].fast and self.elapsed_s > _GROWTH_RATIO * expected_s:
            # Grow the graphs of all levels now, so that switching levels later does not wait.
            for level in self.levels:
                self._detect(level, cloud)
            return
        pending = self._pending
        pending.seconds += self.elapsed_s
        pending.cost += self.elapsed_s if self.meter is None else self.used_j
        pending.expected += expected
        if pending.cost > 0 and (self.meter is None or pending.seconds >= self.meter.least_s):
            controller.observe(name, min(pending.cost / pending.expected, _LARGEST_RATIO) * expected)
            self._pending = _PendingFrames()


@dataclass
class _PendingFrames:
    """Measured and expected cost of frames that the controller has not seen yet."""

    seconds: float = 0.0
    cost: float = 0.0
    expected: float = 0.0


def _prepared(detector: Detector, levels: Sequence[Level]) -> dict[str, Detector]:
    """Make a detector for each level; levels with the same network share one."""
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
