"""How a store behaves; kept beside it and changed by hand or by ``MemoryStore.open(..., config=...)``."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory.errors import StoreReadOnlyError
from memory.importance import ImportanceWeights
from memory.index.kinds import check_store_kind
from memory.merging import MergeOptions
from memory.observe.reservoir import LONGEST_S, ReservoirConfig
from memory.search.tiers import TierOptions
from memory.types import check_integer, check_numbers
from memory.upkeep.forgetting import Policy
from sparse_core.common.files import write_file

FILE_NAME = "config.json"
#: What a file holds whose content was lost.
_NOTHING = "\0 \r\n\t"


@dataclass(frozen=True)
class StoreConfig:
    """Settings of a store.

    Attributes:
        importance: weights of what makes a memory important.
        reservoir: what :meth:`MemoryStore.observe` keeps of a place and time.
        merging: when two memories are the same thing.
        forgetting: what is forgotten first when a map holds more than its capacity.
        capacity: most memories of a map; ``None`` for no limit.
        index: what finds similar vectors where there are many: the name of one of
            :data:`memory.index.kinds.STORE_KINDS`; ``recall indexes`` prints what each does and needs.
        index_from: number of vectors above which there is an index; up to it, all are compared.
        tiers: which vectors stay out of the index, and how the others move there.
        half_life_s: seconds in which the recency part of a score halves.
        undo_keep_s: :meth:`MemoryStore.consolidate` ends the undoing of operations that are older, by the
            computer's clock, and not of its session; ``None``: never.
        undo_keep_operations: the last so many can be undone however old they are.
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
        """As JSON holds it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> StoreConfig:
        """What :meth:`to_json` gave.

        Raises:
            ValueError: an unknown field, or one with a bad value; names it.
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
                raise ValueError(f"unknown setting {name!r}; there are {', '.join(sorted(known))}")
            try:
                values[name] = parts[name](**_tuples(value)) if name in parts else value
            except (OverflowError, TypeError, ValueError) as error:
                raise ValueError(f"setting {name!r}: {error}") from error
        try:
            return cls(**values)
        except OverflowError as error:
            raise ValueError(f"a setting is out of the range of numbers: {error}") from error

    def to_text(self) -> str:
        """What the file of a store's folder holds, and its database."""
        return json.dumps(self.to_json(), indent=2) + "\n"

    @classmethod
    def of_text(cls, text: str) -> StoreConfig:
        """What :meth:`to_text` gave.

        Raises:
            ValueError: no JSON, or a setting with a bad value.
        """
        try:
            return cls.from_json(json.loads(text))
        except RecursionError as error:
            raise ValueError("settings are nested too deeply") from error
        except TypeError as error:
            raise ValueError(str(error)) from error

    def save(self, folder: Path) -> None:
        """Write the file of a store's folder."""
        write_file(folder / FILE_NAME, self.to_text())

    @classmethod
    def load(cls, folder: Path, known: str | None = None) -> StoreConfig:
        """The settings of a store's folder.

        Args:
            folder: of the store.
            known: text of the settings that the database has, which count where there is no file, or an empty
                one as earlier releases left it when the power failed; without them those are the usual ones.

        Raises:
            ValueError: the file is not right; names it.
            StoreReadOnlyError: it cannot be read.
        """
        path = folder / FILE_NAME
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: {error}") from error
        except OSError as error:
            raise StoreReadOnlyError(f"{path} cannot be read: {error.strerror}") from error
        if not text.strip(_NOTHING):
            return cls() if known is None else cls.of_text(known)
        try:
            return cls.of_text(text)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def is_empty(folder: Path) -> bool:
    """Whether the file of a store's folder is there and holds nothing."""
    path = folder / FILE_NAME
    return path.exists() and not path.read_bytes().strip(_NOTHING.encode())


def _tuples(value: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where the settings have tuples."""
    if not isinstance(value, dict):
        raise TypeError(f"must be an object, got {type(value).__name__}")
    return {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in value.items()}
