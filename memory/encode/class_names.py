"""Images and texts in one space without any download: what an image classifier sees, as sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from memory.encode.image import Image, ImageEncoder
from memory.encode.text import TextEncoder


class ClassNameEncoder:
    """A stand-in where no model of images and texts can be had.

    An image is the mean of its classes' names as sentences (all-MiniLM-L6-v2), each weighed by its
    probability (EfficientNet-Lite0); a text is a sentence. It knows what the 1,000 classes of ImageNet know:
    cars, lorries and trailers, no colours and no people as such. docs/benchmarks/memory.md has its figures.

    Args:
        device: where the networks run.

    Attributes:
        name: ``"class-names"``.
        dim: of the vectors, 384.

    Raises:
        ImportError: a package is missing; names the extra.
    """

    name = "class-names"

    def __init__(self, *, device: torch.device | str = "cpu") -> None:
        self._images, self._texts = ImageEncoder(device=device), TextEncoder(device=device)
        self.dim = self._texts.dim
        self._names = self._texts.encode(_names())

    def encode_images(self, images: Iterable[Image], *, batch_size: int = 16) -> NDArray[np.float32]:
        """Vectors of images.

        Args:
            images, batch_size: as for :meth:`memory.encode.ImageEncoder.encode`.

        Returns:
            (images, 384) float32 unit vectors.
        """
        vectors = self._images.probabilities(images, batch_size=batch_size) @ self._names
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts.

        Args:
            texts: as for :meth:`memory.encode.TextEncoder.encode`.

        Returns:
            (texts, 384) float32 unit vectors.
        """
        return self._texts.encode(texts)


@cache
def _names() -> tuple[str, ...]:
    """The first name of each class of ImageNet (Russakovsky et al. 2015), in the classifier's order."""
    text = (Path(__file__).parent / "weights" / "imagenet_classes.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())
