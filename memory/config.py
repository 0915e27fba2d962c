"""Settings of a store, kept in its ``config.json``."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from memory.errors import StoreReadOnlyError
from memory.index.kinds import check_store_kind
from memory.merging import MergeOptions
from memory.types import check_choice, check_integer, check_numbers
from memory.wording.words import DAY_S
from sparse_core.common.files import write_file

FILE_NAME = "config.json"
#: Characters of a file whose content was lost.
_NOTHING = "\0 \r\n\t"

#: Parts of importance that are averaged; a mark is added on top.
PARTS = ("novelty", "reward", "uncertainty", "rarity")
#: Seconds that fit into 63 bits of nanoseconds.
LONGEST_S = 9e9
PolicyName = Literal["lru", "frequency", "decay", "value_freshness"]
POLICIES: tuple[PolicyName, ...] = get_args(PolicyName)


@dataclass(frozen=True, kw_only=True)
class ImportanceWeights:
    """Weights of importance.

    The importance is the weighted mean of four parts. A mark then reduces the gap to 1 by the factor
    ``1 - mark``.

    Attributes:
        novelty: weight of the distance to known memories of this place.
        reward: weight of the outcome, good or bad.
        uncertainty: weight of the uncertainty of the detector.
        rarity: weight of rare classes.
        mark: from 0 to 1; at 1 a marked memory has importance 1.
        reward_scale: absolute reward at which the reward part is 1 - 1 / e.

    Raises:
        ValueError: a weight is negative or not finite, all four are zero, or ``mark`` is above 1.
    """

    novelty: float = 0.5
    reward: float = 0.2
    uncertainty: float = 0.1
    rarity: float = 0.2
    mark: float = 1.0
    reward_scale: float = 1.0

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"{entry.name} must be a number, got {type(value).__name__}")
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"{entry.name} must be finite and not negative, got {value}")
        if sum(getattr(self, name) for name in PARTS) <= 0.0:
            raise ValueError(f"at least one of {', '.join(PARTS)} must be above 0")
        if self.mark > 1.0:
            raise ValueError(f"mark must be from 0 to 1, got {self.mark}")
        if self.reward_scale == 0.0:
            raise ValueError("reward_scale must be above 0")


@dataclass(frozen=True, kw_only=True)
class ReservoirConfig:
    """Number of observations that are kept per place and time window.

    Attributes:
        share: share of the observations that is kept, from 0 to 1.
        least: minimum per object.
        most: maximum per place and window, or ``None``. Unique and marked observations are kept in addition.
        cell_m: side of the square grid cells that define places, in metres. Observations closer than this in
            x and y can be of the same object, also across cells.
        window_s: length of a time window in seconds.
        unique_below: an observation is unique if its cosine similarity to all nearby unique observations of
            its kind and label is below this.
        event_gap_s: pause in seconds after which an event of the same label and place is a new one.

    Raises:
        ValueError: a number is out of range.
    """

    share: float = 0.01
    least: int = 1
    most: int | None = 16
    cell_m: float = 2.0
    window_s: float = 3600.0
    unique_below: float = 0.7
    event_gap_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share must be from 0 to 1, got {self.share}")
        if self.least < 0 or (self.most is not None and self.most < self.least):
            raise ValueError(f"0 <= least <= most must hold, got least {self.least} and most {self.most}")
        for name in ("cell_m", "window_s", "event_gap_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ValueError(f"{name} must be finite and above 0, got {value}")
            if name != "cell_m" and value > LONGEST_S:
                raise ValueError(f"{name} must be at most {LONGEST_S:g}, got {value}")
        if not -1.0 <= self.unique_below <= 1.0:
            raise ValueError(f"unique_below must be from -1 to 1, got {self.unique_below}")

    @property
    def window_ns(self) -> int:
        """Window length in nanoseconds, at least 1."""
        return max(1, round(self.window_s * 1e9))

    def room(self, seen: int, things: int = 1) -> int:
        """Return how many of ``seen`` observations of ``things`` objects are kept."""
        # Add a rounding margin: 0.29 of 100 must be 29, not 28.999.
        wanted = max(self.least * things, math.floor(self.share * seen * (1.0 + 1e-12)))
        return wanted if self.most is None else min(self.most, wanted)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Forgetting policy: which memories are forgotten first.

    Attributes:
        name: ``"lru"`` (least recently used), ``"frequency"`` (least often used), ``"decay"`` (most decayed)
            or ``"value_freshness"`` (lowest importance times decay).
        half_life_s: half-life of the decay in seconds.
        least: also forget memories with a lower keep-value; for ``"decay"`` and ``"value_freshness"``.

    Raises:
        ValueError: unknown name, or a number out of range.
    """

    name: PolicyName = "value_freshness"
    half_life_s: float = 30 * DAY_S
    least: float | None = None

    def __post_init__(self) -> None:
        check_choice("name", self.name, POLICIES)
        if not (math.isfinite(self.half_life_s) and self.half_life_s > 0.0):
            raise ValueError(f"half_life_s must be finite and above 0, got {self.half_life_s}")
        if self.least is not None:
            if self.name in ("lru", "frequency"):
                raise ValueError(f"least does not work with {self.name}. Use decay or value_freshness")
            if not (math.isfinite(self.least) and self.least >= 0.0):
                raise ValueError(f"least must be finite and not negative, got {self.least}")


@dataclass(frozen=True)
class TierOptions:
    """Search tiers: the newest vectors are compared exactly, older ones are in an index.

    Attributes:
        recent: number of newest vectors per encoder that are compared exactly.
        budget: average share of one CPU core for moving vectors to the index, above 0 to 1.
        portion: number of vectors moved at once; a query waits for one portion at most.
        background: move in a background thread. Otherwise only ``MemoryStore.settle`` and ``close`` move.
    """

    recent: int = 1024
    budget: float = 0.2
    portion: int = 512
    background: bool = True

    def __post_init__(self) -> None:
        """Raise ``ValueError`` or ``TypeError`` for a value that means nothing."""
        for name, least in (("recent", 0), ("portion", 1)):
            value = check_integer(name, getattr(self, name))
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        budget = check_numbers("budget", (self.budget,), 1)[0]
        if not 0.0 < budget <= 1.0:
            raise ValueError(f"budget must be above 0 and at most 1, got {self.budget}")
        if not isinstance(self.background, bool):
            raise TypeError(f"background must be true or false, got {type(self.background).__name__}")


@dataclass(frozen=True)
class StoreConfig:
    """Settings of a store.

    Attributes:
        importance: weights of importance.
        reservoir: number of observations that :meth:`MemoryStore.observe` keeps per place and time.
        merging: when two memories are of the same object.
        forgetting: which memories are forgotten first when a map exceeds its capacity.
        capacity: maximum memories of a map; ``None`` for no limit.
        index: vector index, one of :data:`memory.index.kinds.STORE_KINDS`. ``recall indexes`` describes them.
        index_from: number of vectors above which the index is used; up to it, all are compared.
        tiers: which vectors stay outside the index, and how others move into it.
        half_life_s: half-life of the recency score in seconds.
        undo_keep_s: age in seconds at which :meth:`MemoryStore.consolidate` drops undo data, by the system
            clock; operations of this session are kept. ``None``: never.
        undo_keep_operations: number of latest operations that always stay undoable.
    """

    importance: ImportanceWeights = field(default_factory=ImportanceWeights)
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    merging: MergeOptions = field(default_factory=MergeOptions)
    forgetting: Policy = field(default_factory=Policy)
    capacity: int | None = None
    index: str = "lsh"
    index_from: int = 20_000
    tiers: TierOptions = field(default_factory=TierOptions)
    half_life_s: float = 7 * 24 * 3600.0
    undo_keep_s: float | None = 30 * 24 * 3600.0
    undo_keep_operations: int = 100

    def __post_init__(self) -> None:
        """Raise ``ValueError`` or ``TypeError`` for a value that means nothing."""
        check_store_kind(self.index)
        for name in ("index_from", "capacity"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        half_life = check_numbers("half_life_s", (self.half_life_s,), 1)[0]
        if half_life <= 0.0:
            raise ValueError(f"half_life_s must be above 0, got {half_life}")
        if self.undo_keep_s is not None:
            kept = check_numbers("undo_keep_s", (self.undo_keep_s,), 1)[0]
            if not 0.0 <= kept <= LONGEST_S:
                raise ValueError(f"undo_keep_s must be from 0 to {LONGEST_S:g}, got {self.undo_keep_s}")
        if check_integer("undo_keep_operations", self.undo_keep_operations) < 0:
            raise ValueError(f"undo_keep_operations must not be negative, got {self.undo_keep_operations}")
        if self.index_from < 1:
            raise ValueError(f"index_from must be at least 1, got {self.index_from}")
        if self.capacity is not None and self.capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {self.capacity}")

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> StoreConfig:
        """Create settings from the values of :meth:`to_json`.

        Raises:
            ValueError: a setting is unknown or has an invalid value.
        """
        parts: dict[str, Any] = {
            "importance": ImportanceWeights,
            "reservoir": ReservoirConfig,
            "merging": MergeOptions,
            "forgetting": Policy,
            "tiers": TierOptions,
        }
        if not isinstance(found, dict):
            raise ValueError(f"settings must be an object, got {type(found).__name__}")
        known = {entry.name for entry in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for name, value in found.items():
            if name not in known:
                raise ValueError(f"unknown setting {name!r}. Known settings: {', '.join(sorted(known))}")
            try:
                values[name] = parts[name](**_tuples(value)) if name in parts else value
            except (OverflowError, TypeError, ValueError) as error:
                raise ValueError(f"setting {name!r}: {error}") from error
        try:
            return cls(**values)
        except OverflowError as error:
            raise ValueError(f"a setting is out of range: {error}") from error

    def to_text(self) -> str:
        """Return the text of ``config.json``."""
        return json.dumps(self.to_json(), indent=2) + "\n"

    @classmethod
    def of_text(cls, text: str) -> StoreConfig:
        """Create settings from the text of :meth:`to_text`.

        Raises:
            ValueError: invalid JSON or an invalid setting.
        """
        try:
            return cls.from_json(json.loads(text))
        except json.JSONDecodeError as error:
            raise ValueError(f"not valid JSON ({error})") from error
        except RecursionError as error:
            raise ValueError("settings are nested too deeply") from error
        except TypeError as error:
            raise ValueError(str(error)) from error

    def save(self, folder: Path) -> None:
        """Write ``config.json`` into a store folder."""
        write_file(folder / FILE_NAME, self.to_text())

    @classmethod
    def load(cls, folder: Path, known: str | None = None) -> StoreConfig:
        """Load the settings of a store folder.

        Args:
            folder: store folder.
            known: settings text of the database, used if the file is missing or empty. Earlier releases could
                leave it empty after a power failure. Without ``known``, defaults are used.

        Raises:
            ValueError: the file is invalid.
            StoreReadOnlyError: the file cannot be read.
        """
        path = folder / FILE_NAME
        try:
            text = path.read_text(encoding="utf-8")
            if text.strip(_NOTHING):
                return cls.of_text(text)
        except FileNotFoundError:
            pass
        except ValueError as error:
            raise ValueError(
                f"{path}: {error}. Correct the file, or restore the last valid settings with"
                " recall check --repair"
            ) from error
        except OSError as error:
            raise StoreReadOnlyError(f"{path} cannot be read: {error.strerror}") from error
        return cls() if known is None else cls.of_text(known)


def is_empty(folder: Path) -> bool:
    """True if ``config.json`` exists and is empty."""
    path = folder / FILE_NAME
    return path.exists() and not path.read_bytes().strip(_NOTHING.encode())


def _tuples(value: dict[str, Any]) -> dict[str, Any]:
    """Return the values with lists replaced by tuples."""
    if not isinstance(value, dict):
        raise TypeError(f"must be an object, got {type(value).__name__}")
    return {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in value.items()}
