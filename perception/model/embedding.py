"""A vector for each box: a small head on what the refinement knows, kept in a file of its own.

Two sights of one object are to be near. The head is trained after the detector, which stays as it is (see
:mod:`perception.train.identity`). Its file ``NAME-embedding.safetensors`` lies beside that of the
weights that it was trained on, ``NAME.safetensors``;
:func:`~perception.checkpoints.weights.load_weights` takes it along.
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

#: End of the name of a head's file, after the name of the weights.
EMBEDDING_SUFFIX = "-embedding"
_WEIGHTS_KEY = "sparsight.embedding.weights"


class EmbeddingHead(nn.Module):
    """Features of the last refinement step to unit vectors: one linear layer.

    A hidden layer brought nothing that could be told from chance on drives kept apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(HIDDEN, EMBEDDING_DIM, dtype=torch.float32)

    def forward(self, features: Tensor) -> Tensor:
        """Vectors of boxes.

        Args:
            features: (..., 256) in the type of the weights, see
                :class:`~perception.model.refine.RefineOutput`.

        Returns:
            (..., 128) float32 of length 1.
        """
        rows = features.reshape(-1, features.shape[-1])
        made = F.normalize(linear_rows(self.out, rows).float(), dim=1)
        return made.view(*features.shape[:-1], EMBEDDING_DIM)


def embedding_path(weights: Path) -> Path:
    """Where the head of a file of weights is expected."""
    return weights.with_name(f"{weights.stem}{EMBEDDING_SUFFIX}{weights.suffix}")


def fitting_config(config: DetectorConfig, names: Iterable[str]) -> DetectorConfig:
    """The configuration with a head where tensors of these names hold one, and without otherwise."""
    held = any(name.startswith("embedding.") for name in names)
    return replace(config, embedding=replace(config.embedding, enabled=held))


def save_embedding(head: EmbeddingHead, weights: Path) -> Path:
    """Write a head beside the weights that it was trained on, in half precision.

    Args:
        head: of any device and type.
        weights: of the detector; their bytes are remembered, because other features mean other things.

    Returns:
        The file.

    Raises:
        ValueError: numbers that half precision cannot hold.
    """
    tensors = {name: value.half().contiguous().cpu() for name, value in head.state_dict().items()}
    for name, value in tensors.items():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} holds values that half precision cannot; the head cannot be saved")
    path = embedding_path(weights)
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={_WEIGHTS_KEY: digest(weights)})
    return path


def load_embedding(weights: Path) -> EmbeddingHead | None:
    """The head that lies beside a file of weights, float32 on the CPU; None where there is none.

    Raises:
        CheckpointError: a damaged file, or the head of other weights.
    """
    path = embedding_path(weights)
    if not path.is_file():
        return None
    try:
        with safe_open(str(path), framework="pt") as stored:
            trained_on = (stored.metadata() or {})[_WEIGHTS_KEY]
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError) as error:
        raise CheckpointError(f"{path}: no file of an embedding head, or damaged ({error})") from error
    if trained_on != digest(weights):
        raise CheckpointError(
            f"{path}: trained on other weights than {weights.name} is now; train it again"
            f" (perceive train embedding --from {weights}) or delete it"
        )
    head = EmbeddingHead()
    difference = state_difference(shapes_of(head.state_dict()), shapes_of(tensors), owner="an embedding head")
    if difference is not None:
        raise CheckpointError(f"{path}: {difference}")
    if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
        raise CheckpointError(f"{path}: holds NaN or infinite values; the file is damaged")
    head.load_state_dict({name: value.float() for name, value in tensors.items()})
    return head.eval()


def digest(weights: Path) -> str:
    """SHA-256 of a file of weights."""
    return hashlib.sha256(weights.read_bytes()).hexdigest()
