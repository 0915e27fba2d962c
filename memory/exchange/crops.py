"""Pictures of detected objects, as ``perceive detect --crops`` names them, and their vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from memory.encode import ImageTextEncoder


class Crops:
    """Reads the field ``crops`` of the lines of a file.

    Args:
        folder: that the names are relative to.
        encoder: of images and texts; without it the pictures are named and not opened.
    """

    def __init__(self, folder: Path, encoder: ImageTextEncoder | None = None) -> None:
        self._folder, self._encoder = folder, encoder

    def paths(self, record: Mapping[str, Any], count: int) -> list[Path | None]:
        """The picture of each box; ``None`` where it has none.

        Raises:
            ValueError: the field is no list of a name or null for each box.
        """
        said = record.get("crops")
        if said is None:
            return [None] * count
        if not isinstance(said, list) or len(said) != count:
            raise ValueError(f"crops must be a list of {count} names or nulls, one a box, got {said!r:.80}")
        for row, name in enumerate(said):
            if name is not None and (not isinstance(name, str) or not name):
                raise ValueError(f"crops[{row}] must be the name of a file or null, got {name!r}")
        return [None if name is None else self._folder / name for name in said]

    def vectors(self, paths: Sequence[Path | None]) -> list[dict[str, NDArray[np.float32]]]:
        """The vector of each picture by the name of the encoder; empty without picture or encoder.

        Raises:
            ValueError: a file is missing or no picture; names it and what to do.
        """
        found: list[dict[str, NDArray[np.float32]]] = [{} for _ in paths]
        seen = [(row, path) for row, path in enumerate(paths) if path is not None]
        if self._encoder is None or not seen:
            return found
        missing = next((path for _, path in seen if not path.is_file()), None)
        if missing is not None:
            raise ValueError(f"{missing}: no such picture; --crops FOLDER says what its name is relative to")
        try:
            vectors = self._encoder.encode_images([path for _, path in seen])
        except ValueError as error:
            raise ValueError(
                f"{error}; detect again with --crops --overwrite, or leave the line out with --skip-bad"
            ) from error
        for (row, _), vector in zip(seen, vectors, strict=True):
            found[row] = {self._encoder.name: vector}
        return found
