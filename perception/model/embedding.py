"""Embedding head: a vector per box from the features of the refinement.

Observations of one object have similar vectors. The head is trained after the detector, which does not change
(:mod:`perception.train.identity`). Its file ``NAME-embedding.safetensors`` is next to ``NAME.safetensors``;
:func:`~perception.checkpoints.weights.load_weights` loads both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from perception.config import DetectorConfig
from perception.errors import CheckpointError
from perception.model.layers import linear_rows
from perception.model.refine import HIDDEN
from perception.types import EMBEDDING_DIM
from sparse_core.common.files import replacing
from sparse_core.common.surgery import shapes_of, state_difference

__all__ = [
    "EMBEDDING_SUFFIX",
    "EmbeddingHead",
    "digest",
    "embedding_path",
    "fitting_config",
    "load_embedding",
    "save_embedding",
]

#: Suffix of the head's file name.
EMBEDDING_SUFFIX = "-embedding"
_WEIGHTS_KEY = "sparsight.embedding.weights"


class EmbeddingHead(nn.Module):
    """One linear layer from the features of the last refinement step to unit vectors.

    A hidden layer brought no significant gain on held-out drives.
    """

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(HIDDEN, EMBEDDING_DIM, dtype=torch.float32)

    def forward(self, features: Tensor) -> Tensor:
        """Compute unit vectors (..., 128) float32.

        Args:
            features: (..., 256) in the dtype of the weights, see
                :class:`~perception.model.refine.RefineOutput`.
        """
        rows = features.reshape(-1, features.shape[-1])
        made = F.normalize(linear_rows(self.out, rows).float(), dim=1)
        return made.view(*features.shape[:-1], EMBEDDING_DIM)


def embedding_path(weights: Path) -> Path:
    """Return the path of the head that belongs to a weights file."""
    return weights.with_name(f"{weights.stem}{EMBEDDING_SUFFIX}{weights.suffix}")


def fitting_config(config: DetectorConfig, names: Iterable[str]) -> DetectorConfig:
    """Return the configuration with ``embedding.enabled`` set if the tensor names include a head."""
    held = any(name.startswith("embedding.") for name in names)
    return replace(config, embedding=replace(config.embedding, enabled=held))


def save_embedding(head: EmbeddingHead, weights: Path) -> Path:
    """Write a head next to its detector's weights, in half precision.

    Args:
        head: head on any device.
        weights: weights file of the detector; its digest is stored, because the head fits no other features.

    Returns:
        The path of the head.

    Raises:
        ValueError: values beyond half precision.
    """
    tensors = {name: value.half().contiguous().cpu() for name, value in head.state_dict().items()}
    for name, value in tensors.items():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"cannot save the head: {name} has values beyond half precision")
    path = embedding_path(weights)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={_WEIGHTS_KEY: digest(weights)})
    return path


def load_embedding(weights: Path) -> EmbeddingHead | None:
    """Load the head of a weights file, float32 on the CPU; None if there is none.

    Raises:
        CheckpointError: a damaged file, or a head of other weights.
    """
    path = embedding_path(weights)
    if not path.is_file():
        return None
    try:
        with safe_open(str(path), framework="pt") as stored:
            trained_on = (stored.metadata() or {})[_WEIGHTS_KEY]
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError) as error:
        raise CheckpointError(f"{path}: not an embedding head, or a damaged file ({error})") from error
    if trained_on != digest(weights):
        raise CheckpointError(
            f"{path}: belongs to other weights than {weights.name}. Train it again with"
            f" perceive train embedding --from {weights}, or delete it."
        )
    head = EmbeddingHead()
    difference = state_difference(shapes_of(head.state_dict()), shapes_of(tensors), owner="an embedding head")
    if difference is not None:
        raise CheckpointError(f"{path}: {difference}")
    if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
        raise CheckpointError(f"{path}: damaged file: NaN or infinite values")
    head.load_state_dict({name: value.float() for name, value in tensors.items()})
    return head.eval()


def digest(weights: Path) -> str:
    """Return the SHA-256 digest of a weights file."""
    return hashlib.sha256(weights.read_bytes()).hexdigest()
