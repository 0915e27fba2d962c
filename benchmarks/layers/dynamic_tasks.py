"""Three small tasks for the study of sparse training: two networks on digits, one on characters."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.layers.pruning_models import ConvNet

TaskName = Literal["digits-mlp", "digits-convnet", "text-transformer"]
TASKS: tuple[TaskName, ...] = ("digits-mlp", "digits-convnet", "text-transformer")
#: Without scikit-learn: a file with its arrays ``data`` (N, 64) and ``target`` (N,).
DIGITS_VARIABLE = "SPARSIGHT_DIGITS"
_SPLIT_SEED = 0
_TRAINING, _VALIDATION = 900, 200
CONTEXT = 32
#: Characters that occur less often in the training text become one symbol.
_LEAST_COUNT = 20


class Examples(NamedTuple):
    """Inputs and what is to be predicted: images (N, 1, 8, 8) and labels (N,), or windows (N, L) twice."""

    inputs: Tensor
    targets: Tensor


class Parts(NamedTuple):
    """The data of a task; the same in every run.

    Attributes:
        training, validation, test: examples.
        symbols: classes, or characters told apart.
    """

    training: Examples
    validation: Examples
    test: Examples
    symbols: int


@dataclass(frozen=True)
class SmallTask:
    """Model, data and settings of a task.

    Attributes:
        name: of the task.
        measure: ``"accuracy"``, or ``"bits"`` a character.
        width: of the dense network.
        sparse: pattern of the names of the layers that become sparse.
        batch: examples a step.
        rate: peak learning rate, the same for every row.
        steps: of a training of length one.
    """

    name: TaskName
    measure: Literal["accuracy", "bits"]
    width: int
    sparse: str
    batch: int
    rate: float
    steps: int

    def build(self, symbols: int, width: int | None = None) -> nn.Module:
        """A network with random weights from torch's global generator."""
        chosen = width or self.width
        if self.name == "digits-mlp":
            return nn.Sequential(
                nn.Flatten(),
                nn.Linear(64, chosen),
                nn.ReLU(),
                nn.Linear(chosen, chosen),
                nn.ReLU(),
                nn.Linear(chosen, symbols),
            )
        return ConvNet(chosen) if self.name == "digits-convnet" else CharacterTransformer(symbols, chosen)

    @property
    def widths(self) -> Iterator[int]:
        """Widths that a smaller network may have, falling."""
        step = 4 if self.name == "text-transformer" else 1
        return iter(range(self.width, 0, -step))


SMALL_TASKS: dict[TaskName, SmallTask] = {
    task.name: task
    for task in (
        SmallTask("digits-mlp", "accuracy", 256, "^[13]$", 64, 1e-2, 400),
        SmallTask("digits-convnet", "accuracy", 32, "^(first|second|third)", 64, 1e-2, 250),
        SmallTask("text-transformer", "bits", 64, "^blocks", 16, 1.2e-2, 300),
    )
}


class CausalBlock(nn.Module):
    """Causal attention and a feed-forward network, each with a layer norm before it and a residual path."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.mix = (nn.Linear(width, width) for _ in range(4))
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, L, width) to the same shape."""
        found = self.attention_norm(tokens)
        query, key, value = (
            layer(found).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.mT * query.shape[-1] ** -0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        mixed = scores.masked_fill(later, -math.inf).softmax(dim=-1) @ value
        tokens = tokens + self.mix(mixed.transpose(1, 2).flatten(2))
        hidden = nn.functional.gelu(self.expand(self.feed_forward_norm(tokens)))
        return cast(Tensor, tokens + self.contract(hidden))


class CharacterTransformer(nn.Module):
    """Predicts the next of ``symbols`` characters at every position of a window.

    Args:
        symbols: characters told apart.
        width: of a token, a multiple of four.
        depth: blocks.
    """

    def __init__(self, symbols: int, width: int, depth: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, width)
        self.position = nn.Parameter(0.02 * torch.randn(CONTEXT, width))
        self.blocks = nn.Sequential(*(CausalBlock(width, 4) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, symbols)

    def forward(self, windows: Tensor) -> Tensor:
        """(N, L) int64 to logits (N, L, symbols)."""
        tokens = self.embedding(windows) + self.position[: windows.shape[1]]
        return cast(Tensor, self.head(self.norm(self.blocks(tokens))))


@lru_cache(maxsize=1)
def load_digits() -> Parts:
    """The 1,797 digits that come with scikit-learn: 900 to train, 200 to try settings on, 697 to test.

    They are read from the file that ``SPARSIGHT_DIGITS`` names, if it is set.

    Raises:
        RuntimeError: neither scikit-learn nor the file.
    """
    file = os.environ.get(DIGITS_VARIABLE)
    if file:
        try:
            with np.load(file) as arrays:
                data, target = arrays["data"], arrays["target"]
        except (OSError, KeyError, ValueError) as error:
            raise RuntimeError(
                f"{file}: no file with the arrays data and target of the digits ({error})"
            ) from error
    else:
        try:
            found = importlib.import_module("sklearn.datasets").load_digits()
        except ImportError as error:
            raise RuntimeError(
                "the digits come with scikit-learn: pip install scikit-learn, or name a file with --digits"
            ) from error
        data, target = found.data, found.target
    images = torch.tensor(data, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(target, dtype=torch.int64)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(_SPLIT_SEED))
    parts = order.split([_TRAINING, _VALIDATION, len(images) - _TRAINING - _VALIDATION])
    training, validation, test = (Examples(images[part], labels[part]) for part in parts)
    return Parts(training, validation, test, symbols=10)


def help_text() -> str:
    """Python's own help topics (``pydoc_data.topics``), which every installation of Python has."""
    topics = importlib.import_module("pydoc_data.topics").topics
    return "\n".join(topics[name] for name in sorted(topics))


@lru_cache(maxsize=1)
def load_text(file: str | None = None) -> Parts:
    """Windows of characters; the last tenth of the text is the test, the tenth before it the validation.

    Args:
        file: text; Python's help topics where there is none.
    """
    text = Path(file).read_text(encoding="utf-8") if file else help_text()
    points = torch.tensor([ord(letter) for letter in text])
    cuts = (len(points) * 8 // 10, len(points) * 9 // 10)
    known, counts = points[: cuts[0]].unique(return_counts=True)
    known = known[counts >= _LEAST_COUNT]
    at = torch.searchsorted(known, points).clamp(max=len(known) - 1)
    codes = torch.where(known[at] == points, at, len(known))
    training, validation, test = (_windows(part) for part in codes.tensor_split(cuts))
    return Parts(training, validation, test, symbols=len(known) + 1)


def _windows(codes: Tensor) -> Examples:
    count = (len(codes) - 1) // CONTEXT
    return Examples(
        codes[: count * CONTEXT].view(count, CONTEXT), codes[1 : count * CONTEXT + 1].view(count, CONTEXT)
    )


def load_parts(task: TaskName, text_file: str | None = None) -> Parts:
    """The data of a task."""
    return load_text(text_file) if task == "text-transformer" else load_digits()


def draw_batch(task: SmallTask, training: Examples, generator: torch.Generator) -> Examples:
    """Examples drawn with replacement; windows of a text begin anywhere."""
    if task.measure == "accuracy":
        rows = torch.randint(len(training.targets), (task.batch,), generator=generator)
        return Examples(training.inputs[rows], training.targets[rows])
    codes, following = training.inputs.flatten(), training.targets.flatten()
    first = torch.randint(len(codes) - CONTEXT, (task.batch, 1), generator=generator)
    places = first + torch.arange(CONTEXT)
    return Examples(codes[places], following[places])


def loss_of(model: nn.Module, examples: Examples) -> Tensor:
    """Mean cross-entropy in nats."""
    logits = model(examples.inputs)
    return nn.functional.cross_entropy(logits.flatten(0, -2), examples.targets.flatten())


@torch.no_grad()
def evaluate(model: nn.Module, task: SmallTask, examples: Examples) -> dict[str, float]:
    """``accuracy`` (share of right first guesses) and ``loss``; for a text ``bits`` a character too."""
    model.eval()
    logits = torch.cat([model(part) for part in examples.inputs.split(512)]).flatten(0, -2)
    targets = examples.targets.flatten()
    loss = float(nn.functional.cross_entropy(logits.double(), targets))
    found = {"accuracy": float((logits.argmax(dim=1) == targets).double().mean()), "loss": loss}
    return found | ({"bits": loss / math.log(2)} if task.measure == "bits" else {})
