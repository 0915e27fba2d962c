"""Images and texts in one vector space without downloads, by class names of an image classifier."""

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
    """Encoder of images and texts that needs no download.

    An image vector is the mean of the sentence vectors of its class names (all-MiniLM-L6-v2), weighted by
    their probabilities (EfficientNet-Lite0). A text is encoded as a sentence. It knows the 1,000 classes of
    ImageNet: cars and lorries, but no colours and no people. docs/benchmarks/memory.md has measurements.

    Args:
        device: device of the networks.

    Attributes:
        name: ``"class-names"``.
        dim: vector length, 384.

    Raises:
        ImportError: a package is missing.
    """

    name = "class-names"

    def __init__(self, *, device: torch.device | str = "cpu") -> None:
        self._images, self._texts = ImageEncoder(device=device), TextEncoder(device=device)
        self.dim = self._texts.dim
        self._names = self._texts.encode(_names())

    def encode_images(self, images: Iterable[Image], *, batch_size: int = 16) -> NDArray[np.float32]:
        """Return (images, 384) float32 unit vectors; arguments are those of
        :meth:`memory.encode.ImageEncoder.encode`.
        """
        vectors = self._images.probabilities(images, batch_size=batch_size) @ self._names
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)

    def encode_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (texts, 384) float32 unit vectors."""
        return self._texts.encode(texts)


@cache
def _names() -> tuple[str, ...]:
    """Return the first name of each ImageNet class (Russakovsky et al. 2015) in the classifier's order."""
    text = (Path(__file__).parent / "weights" / "imagenet_classes.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())
