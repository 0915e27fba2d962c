"""Two small networks on scikit-learn's handwritten digits, and a plain loop that trains them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from sparse_core.nm.training import DistillationLoss, warmup_cosine

ModelName = Literal["transformer", "convnet"]
BATCH = 64
_SPLIT_SEED = 0
_TRAINING, _VALIDATION = 900, 200


class Digits(NamedTuple):
    """Images (N, 1, 8, 8) float32 in [0, 1] and labels (N,) int64."""

    images: Tensor
    labels: Tensor

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All images in order, ``size`` at a time."""
        return zip(self.images.split(size), self.labels.split(size), strict=True)


class Split(NamedTuple):
    """The three parts of the data; the same in every run."""

    training: Digits
    validation: Digits
    test: Digits


def load_split(device: torch.device) -> Split:
    """The 1,797 digits that come with scikit-learn: 900 to train, 200 to try settings on, 697 to test.

    Raises:
        RuntimeError: scikit-learn is not installed.
    """
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError as error:
        raise RuntimeError("the digits come with scikit-learn: pip install scikit-learn") from error
    data = datasets.load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(_SPLIT_SEED))
    parts = order.split([_TRAINING, _VALIDATION, len(images) - _TRAINING - _VALIDATION])
    return Split(*(Digits(images[part].to(device), labels[part].to(device)) for part in parts))


class TransformerBlock(nn.Module):
    """Attention and a feed-forward network, each with a layer norm before it and a residual path."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.attention_out = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, tokens, width) to the same shape."""
        found = self.attention_norm(tokens)
        query, key, value = (
            layer(found).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        # Written out, because torch's fused attention cannot be differentiated twice, as exact Hessians need.
        weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(dim=-1)
        mixed = weights @ value
        tokens = tokens + self.attention_out(mixed.transpose(1, 2).flatten(2))
        hidden = nn.functional.gelu(self.expand(self.feed_forward_norm(tokens)))
        return cast(Tensor, tokens + self.contract(hidden))


class VisionTransformer(nn.Module):
    """A vision Transformer (Dosovitskiy et al. 2021) on the 16 patches of 2 x 2 pixels of a digit.

    Args:
        width: of a token.
        depth: blocks.
        heads: of attention.
        hidden: width inside a feed-forward network.
    """

    def __init__(self, width: int = 32, depth: int = 2, heads: int = 4, hidden: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, kernel_size=2, stride=2)
        self.position = nn.Parameter(0.02 * torch.randn(16, width))
        self.blocks = nn.ModuleList([TransformerBlock(width, heads, hidden) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """(N, 1, 8, 8) to logits (N, 10)."""
        tokens = self.stem(images).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            tokens = block(tokens)
        return cast(Tensor, self.head(self.norm(tokens).mean(dim=1)))


class ConvNet(nn.Module):
    """Four 3 x 3 convolutions with batch norms, one of them with a stride, and a linear head.

    Args:
        width: channels of every convolution.
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem = _convolution(1, width)
        self.first = _convolution(width, width)
        self.second = _convolution(width, width, stride=2)
        self.third = _convolution(width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """(N, 1, 8, 8) to logits (N, 10)."""
        maps = self.third(self.second(self.first(self.stem(images))))
        return cast(Tensor, self.head(maps.mean(dim=(2, 3))))


def _convolution(channels: int, filters: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, filters, kernel_size=3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(filters),
        nn.ReLU(),
    )


def build(name: ModelName) -> nn.Module:
    """A network with random weights from torch's global generator."""
    return VisionTransformer() if name == "transformer" else ConvNet()


def pruned_layer(name: str, module: nn.Module) -> bool:
    """All layers but the first, which reads single pixels and is too narrow for groups of eight."""
    return not name.startswith("stem")


def outputs_to_match(name: ModelName) -> tuple[str, ...]:
    """Modules whose outputs a student compares with its teacher's."""
    return ("blocks.0", "blocks.1") if name == "transformer" else ("first", "second", "third")


def fit(
    model: nn.Module,
    digits: Digits,
    *,
    steps: int,
    peak_rate: float,
    seed: int,
    before_step: Callable[[], object] = lambda: None,
    distillation: DistillationLoss | None = None,
) -> None:
    """Train in place: AdamW, warm-up and cosine, batches drawn with replacement from a seed.

    Args:
        model: what is trained; left in evaluation mode.
        digits: training images.
        steps: batches.
        peak_rate: largest learning rate.
        seed: of the batches, so that all that are trained from one model see the same ones.
        before_step: called before each batch; a refresher of masks.
        distillation: changes the loss.
    """
    optimizer = torch.optim.AdamW(model.parameters(), peak_rate, weight_decay=1e-2)
    rate = warmup_cosine(optimizer, min(20, steps // 10), steps)
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(steps):
        before_step()
        batch = torch.randint(len(digits.labels), (BATCH,), generator=generator).to(digits.labels.device)
        images = digits.images[batch]
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, digits.labels[batch])
        if distillation is not None:
            loss = distillation(logits, images, loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
    model.eval()


def accuracy(model: nn.Module, digits: Digits) -> float:
    """Share of the images whose label gets the largest logit."""
    model.eval()
    with torch.no_grad():
        return float((model(digits.images).argmax(dim=1) == digits.labels).double().mean())
