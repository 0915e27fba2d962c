"""A frame, step by step: what every way of running the detector does, whatever computes the steps.

Each step takes what the one before made and nothing else; see docs/decisions/0020-one-program.md.
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
        """What ``step(given)`` returns; ``name`` is the stage's in profiles."""
        ...


def run_step(name: str, step: Callable[[GivenT], MadeT], given: GivenT) -> MadeT:
    """Run a step and nothing else."""
    return step(given)


class Steps(ABC, Generic[ScansT, LocatedT, LevelsT, MapT, PeaksT, BoxesT, FoundT]):
    """The steps of a frame, or of a batch of them, for one network on one device."""

    #: What is computed; a copy of the steps may be given other thresholds.
    config: DetectorConfig
    #: Whether several threads may run frames at a time.
    threaded = False

    @abstractmethod
    def locate(self, scans: ScansT) -> LocatedT:
        """Points by pillar."""

    @abstractmethod
    def encode(self, located: LocatedT) -> LevelsT:
        """Features of the pillars: the level that the backbone starts from."""

    @property
    @abstractmethod
    def levels(self) -> Sequence[tuple[str, Callable[[LevelsT], LevelsT]]]:
        """The backbone: its stages by name."""

    @abstractmethod
    def neck(self, levels: LevelsT) -> MapT:
        """The bird's-eye map that head and refinement read."""

    @abstractmethod
    def head(self, features: MapT) -> PeaksT:
        """Boxes at the peaks of the heat map."""

    @abstractmethod
    def propose(self, peaks: PeaksT) -> BoxesT:
        """Distinct boxes among them."""

    @property
    @abstractmethod
    def refinements(self) -> Sequence[Callable[[BoxesT], BoxesT]]:
        """Steps that correct boxes by the points in them."""

    @abstractmethod
    def suppress(self, boxes: BoxesT) -> FoundT:
        """What is reported."""

    def nothing(self, located: LocatedT) -> FoundT | None:
        """What frames without a pillar give; None where there is one, or where the host cannot know."""
        return None


def run_frame(
    steps: Steps[ScansT, LocatedT, LevelsT, MapT, PeaksT, BoxesT, FoundT],
    scans: ScansT,
    on_stage: StageRunner = run_step,
) -> FoundT:
    """Detect objects: each step through ``on_stage``."""
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
