"""Crop images of detected objects, as ``perceive detect --crops`` writes them, and their embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from memory.encode import ImageTextEncoder


class Crops:
    """Reader of the ``crops`` field of detection lines.

    Args:
        folder: base of relative file names.
        encoder: computes the embeddings; without it no image is opened.
    """

    def __init__(self, folder: Path, encoder: ImageTextEncoder | None = None) -> None:
        self._folder, self._encoder = folder, encoder

    def paths(self, record: Mapping[str, Any], count: int) -> list[Path | None]:
        """Return the image path of each box, or ``None``.

        Raises:
            ValueError: the field is not a list of one file name or null per box.
        """
        names = record.get("crops")
        if names is None:
            return [None] * count
        if not isinstance(names, list) or len(names) != count:
            raise ValueError(
                f"crops must be a list of {count} names or nulls, one per box, got {names!r:.80}"
            )
        for row, name in enumerate(names):
            if name is not None and (not isinstance(name, str) or not name):
                raise ValueError(f"crops[{row}] must be the name of a file or null, got {name!r}")
        return [None if name is None else self._folder / name for name in names]

    def vectors(self, paths: Sequence[Path | None]) -> list[dict[str, NDArray[np.float32]]]:
        """Return the embedding of each image under the encoder's name; empty without image or encoder.

        Raises:
            ValueError: a file is missing or not an image.
        """
        found: list[dict[str, NDArray[np.float32]]] = [{} for _ in paths]
        seen = [(row, path) for row, path in enumerate(paths) if path is not None]
        if self._encoder is None or not seen:
            return found
        missing = next((path for _, path in seen if not path.is_file()), None)
        if missing is not None:
            raise ValueError(f"{missing}: no such image. Name the folder of the images with --crops FOLDER")
        try:
            vectors = self._encoder.encode_images([path for _, path in seen])
        except ValueError as error:
            raise ValueError(
                f"{error}. Run detect again with --crops --overwrite, or skip the line with --skip-bad"
            ) from error
        for (row, _), vector in zip(seen, vectors, strict=True):
            found[row] = {self._encoder.name: vector}
        return found
