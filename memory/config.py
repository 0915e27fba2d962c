"""How a store behaves; kept beside it and changed by hand or by ``MemoryStore.open(..., config=...)``."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memory.forgetting import Policy
from memory.importance import ImportanceWeights
from memory.merging import MergeOptions
from memory.reservoir import ReservoirConfig
from sparse_core.files import replacing

FILE_NAME = "config.json"


@dataclass(frozen=True)
class StoreConfig:
    """Settings of a store.

    Attributes:
        importance: weights of what makes a memory important.
        reservoir: what :meth:`MemoryStore.observe` keeps of a place and time.
        merging: when two memories are the same thing.
        forgetting: what is forgotten first when a map holds more than its capacity.
        capacity: most memories of a map; ``None`` for no limit.
        index_from: number of vectors from which they are hashed instead of all compared.
        half_life_s: seconds in which the recency part of a score halves.
    """

    importance: ImportanceWeights = field(default_factory=ImportanceWeights)
    reservoir: ReservoirConfig = field(default_factory=ReservoirConfig)
    merging: MergeOptions = field(default_factory=MergeOptions)
    forgetting: Policy = field(default_factory=Policy)
    capacity: int | None = None
    index_from: int = 20_000
    half_life_s: float = 7 * 24 * 3600.0

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
        }
        known = {entry.name for entry in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for name, value in found.items():
            if name not in known:
                raise ValueError(f"unknown setting {name!r}; there are {', '.join(sorted(known))}")
            try:
                values[name] = parts[name](**_tuples(value)) if name in parts else value
            except TypeError as error:
                raise ValueError(f"setting {name!r}: {error}") from error
        return cls(**values)

    def save(self, folder: Path) -> None:
        """Write the file of a store's folder."""
        with replacing(folder / FILE_NAME) as temporary:
            temporary.write_text(json.dumps(self.to_json(), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> StoreConfig:
        """The settings of a store's folder, the usual ones where there is no file.

        Raises:
            ValueError: the file is not right; names it.
        """
        path = folder / FILE_NAME
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls()
        try:
            return cls.from_json(json.loads(text))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def _tuples(value: dict[str, Any]) -> dict[str, Any]:
    """JSON has lists where the settings have tuples."""
    return {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in value.items()}
