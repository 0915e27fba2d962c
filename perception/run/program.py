"""The program of a frame: the sequence of steps that every way of running the detector shares.

Each step takes only the output of the previous step; see docs/decisions/0020-one-program.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from perception.config import DetectorConfig

GivenT = TypeVar("GivenT")
MadeT = TypeVar("MadeT")
ScansT = TypeVar("ScansT")
LocatedT = TypeVar("LocatedT")
LevelsT = TypeVar("LevelsT")
MapT = TypeVar("MapT")
PeaksT = TypeVar("PeaksT")
BoxesT = TypeVar("BoxesT")
FoundT = TypeVar("FoundT")


class StageRunner(Protocol):
    """Runs a step, and may measure or capture it."""

    def __call__(self, name: str, step: Callable[[GivenT], MadeT], given: GivenT, /) -> MadeT:
        """Return ``step(given)``; ``name`` is the name of the stage in profiles."""
        ...


def run_step(name: str, step: Callable[[GivenT], MadeT], given: GivenT) -> MadeT:
    """Run a step."""
    return step(given)


class Steps(ABC, Generic[ScansT, LocatedT, LevelsT, MapT, PeaksT, BoxesT, FoundT]):
    """The steps of a frame or batch, for one network on one device."""

    #: Configuration; a copy of the steps may have other thresholds.
    config: DetectorConfig
    #: True if threads may run frames in parallel.
    threaded = False

    @abstractmethod
    def locate(self, scans: ScansT) -> LocatedT:
        """Assign points to pillars."""

    @abstractmethod
    def encode(self, located: LocatedT) -> LevelsT:
        """Compute the features of the pillars, the input of the backbone."""

    @property
    @abstractmethod
    def levels(self) -> Sequence[tuple[str, Callable[[LevelsT], LevelsT]]]:
        """Stages of the backbone by name."""

    @abstractmethod
    def neck(self, levels: LevelsT) -> MapT:
        """Compute the bird's-eye map that head and refinement read."""

    @abstractmethod
    def head(self, features: MapT) -> PeaksT:
        """Read boxes at the peaks of the heat map."""

    @abstractmethod
    def propose(self, peaks: PeaksT) -> BoxesT:
        """Remove duplicate boxes."""

    @property
    @abstractmethod
    def refinements(self) -> Sequence[Callable[[BoxesT], BoxesT]]:
        """Steps that correct boxes by their points."""

    @abstractmethod
    def suppress(self, boxes: BoxesT) -> FoundT:
        """Suppress overlapping boxes."""

    def nothing(self, located: LocatedT) -> FoundT | None:
        """Return the result for frames without pillars; None if there are pillars or the host cannot know."""
        return None


def run_frame(
    steps: Steps[ScansT, LocatedT, LevelsT, MapT, PeaksT, BoxesT, FoundT],
    scans: ScansT,
    on_stage: StageRunner = run_step,
) -> FoundT:
    """Run all steps of a frame, each through ``on_stage``."""
    located = on_stage("pillars", steps.locate, scans)
    if (nothing := steps.nothing(located)) is not None:
        return nothing
    levels = on_stage("encoder", steps.encode, located)
    for name, level in steps.levels:
        levels = on_stage(name, level, levels)
    features = on_stage("neck", steps.neck, levels)
    peaks = on_stage("head", steps.head, features)
    boxes = on_stage("proposals", steps.propose, peaks)
    for number, refine in enumerate(steps.refinements, start=1):
        boxes = on_stage(f"refine {number}", refine, boxes)
    return on_stage("NMS", steps.suppress, boxes)
