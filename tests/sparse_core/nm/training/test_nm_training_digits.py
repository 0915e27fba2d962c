"""The pieces together: a small network on handwritten digits, dense, one-shot, SR-STE and distilled."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from sparse_core.nm.masks import check_nm
from sparse_core.nm.pattern import NMPattern
from sparse_core.nm.pruning.selection import magnitude_masks
from sparse_core.nm.training import DistillationLoss, MaskRefresher, attach_masks, warmup_cosine

#: So sparse that one-shot pruning loses a lot.
PATTERN = NMPattern(2, 8)


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images and labels, then held-out ones; (N, 64) float32 in [0, 1]."""
    data = load_digits()
    images = torch.tensor(data.data, dtype=torch.float32) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    return images[:1200], labels[:1200], images[1200:], labels[1200:]


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).float().mean())


def fit(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    steps: int,
    *,
    before: Callable[[], object] = lambda: None,
    distil: DistillationLoss | None = None,
) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    rate = warmup_cosine(optimizer, 10, steps)
    generator = torch.Generator().manual_seed(5)
    model.train()
    for _ in range(steps):
        before()
        batch = torch.randint(len(images), (128,), generator=generator)
        optimizer.zero_grad()
        logits = model(images[batch])
        loss = nn.functional.cross_entropy(logits, labels[batch])
        if distil is not None:
            loss = distil(logits, images[batch], loss)
        loss.backward()
        optimizer.step()
        rate.step()


@pytest.fixture(scope="module")
def dense(digits: tuple[Tensor, Tensor, Tensor, Tensor], one_thread: None) -> nn.Module:
    """A trained dense network."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    fit(model, *digits[:2], 200)
    return model


@pytest.fixture(scope="module")
def one_shot(dense: nn.Module, digits: tuple[Tensor, Tensor, Tensor, Tensor]) -> float:
    """Accuracy after magnitude pruning without training."""
    model = copy.deepcopy(dense)
    attach_masks(model, magnitude_masks(model, PATTERN)).remove()
    return accuracy(model, *digits[2:])


def sparse_training(
    dense: nn.Module,
    digits: tuple[Tensor, Tensor, Tensor, Tensor],
    *,
    distil: bool = False,
) -> float:
    """Accuracy of the dense network after sparse training; checks that the result is sparse."""
    model = copy.deepcopy(dense)
    handle = attach_masks(model, magnitude_masks(model, PATTERN), estimator="sr-ste")
    refresher = MaskRefresher(handle, PATTERN, every=5, freeze_after=150)
    teacher = copy.deepcopy(dense)
    loss = DistillationLoss(teacher, model, features=["2"]) if distil else None
    fit(model, *digits[:2], 300, before=refresher.step, distil=loss)
    assert handle.frozen
    handle.remove()
    for layer in (model[0], model[2], model[4]):  # type: ignore[index]
        check_nm(layer.weight, PATTERN.n, PATTERN.m)
        assert type(layer) is nn.Linear
    return accuracy(model, *digits[2:])


def test_sr_ste_recovers_what_one_shot_pruning_loses(
    dense: nn.Module, one_shot: float, digits: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    before = accuracy(dense, *digits[2:])
    trained = sparse_training(dense, digits)
    assert before > 0.93
    assert one_shot < before - 0.2
    assert trained > before - 0.03


def test_distillation_recovers_it_too(
    dense: nn.Module, one_shot: float, digits: tuple[Tensor, Tensor, Tensor, Tensor]
) -> None:
    assert sparse_training(dense, digits, distil=True) > accuracy(dense, *digits[2:]) - 0.03
    assert not dense[0]._forward_hooks  # type: ignore[index]
