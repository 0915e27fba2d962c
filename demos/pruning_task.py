"""Tasks of demos/prune_model.py: a network that learns the digits, or the user's own model."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from sparse_core.common.files import save_torch
from sparse_core.nm import DistillationLoss, warmup_cosine
from sparse_core.nm.forward_pass import call_model

WIDTH, STEPS, SAVE_EVERY = 256, 300, 100


class Task(NamedTuple):
    """A model to prune. A batch is an argument, a tuple of arguments or a dictionary of keyword arguments."""

    model: nn.Module
    batches: list[Any]
    evaluate: Callable[[nn.Module], float]
    labels: list[Tensor]

    def loss(self, model: nn.Module, step: int, distil: DistillationLoss | None = None) -> Tensor:
        """Return the cross-entropy of the batch of this step, or the distillation loss."""
        batch, labels = self.batches[step % len(self.batches)], self.labels[step % len(self.batches)]
        logits = logits_of(model, batch)
        hard = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        return hard if distil is None else distil(logits, batch, hard)


def logits_of(model: nn.Module, batch: Any) -> Tensor:
    """Return the model's logits of a batch."""
    logits = call_model(model, batch)
    if not isinstance(logits, Tensor):
        raise ValueError(f"the model must return a tensor of logits, got {type(logits).__name__}")
    return logits


def digits_task(device: str, checkpoint: Path | None, console: Console) -> Task:
    """Return a network of three Linear layers, trained on three quarters of the 8x8 digits."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ValueError(
            "the digits need scikit-learn; run pip install 'sparsight[prune]', or pass your own --model"
        ) from None
    data = load_digits()
    order = torch.randperm(len(data.data), generator=torch.Generator().manual_seed(0))
    images = (torch.tensor(data.data, dtype=torch.float32) / 16)[order].to(device)
    labels, cut = torch.tensor(data.target)[order].to(device), len(images) * 3 // 4

    def evaluate(model: nn.Module) -> float:
        answers = model(images[cut:].to(next(model.parameters()))).argmax(1)
        return float((answers == labels[cut:]).float().mean())

    torch.manual_seed(0)
    layers = (nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    model = nn.Sequential(*layers).to(device)
    task = Task(model, [*images[:cut].split(128)], evaluate, [*labels[:cut].split(128)])
    fit(model, partial(task.loss, model), STEPS, 1e-3, console, checkpoint)
    return task


def own_task(where: str, device: str) -> Task:
    """Return the task of the function in ``file.py:function``, on the device."""
    file, _, function = where.rpartition(":")
    if not Path(file).is_file():
        raise ValueError(f"--model {where}: no such file; pass file.py:function")
    sys.path.insert(0, str(Path(file).resolve().parent))
    make = runpy.run_path(file).get(function)
    if not callable(make):
        raise ValueError(f"--model {where}: the file has no function {function!r}; check the name")
    given = make()
    if not isinstance(given, tuple) or len(given) not in (3, 4) or not isinstance(given[0], nn.Module):
        raise ValueError(f"--model {where}: return (model, batches, evaluate), optionally with labels")
    model, batches, evaluate, *rest = given
    model.to(device).eval()
    batches, labels = (
        tree_map_only(Tensor, lambda x: x.to(device), list(part)) for part in (batches, *rest, [])[:2]
    )
    if not batches or (rest and len(labels) != len(batches)):
        raise ValueError(
            f"--model {where}: {len(batches)} batches, {len(labels)} labels; return as many labels as batches"
        )
    with torch.no_grad():
        return Task(model, batches, evaluate, labels or [logits_of(model, x).argmax(-1) for x in batches])


def fit(
    model: nn.Module,
    loss: Callable[[int], Tensor],
    steps: int,
    learning_rate: float,
    console: Console,
    checkpoint: Path | None = None,
) -> None:
    """Train for ``steps``, resuming from a checkpoint if it exists."""
    optimiser, first = torch.optim.Adam(model.parameters(), lr=learning_rate), 0
    schedule = warmup_cosine(optimiser, steps // 10, steps)
    parts: dict[str, Any] = {"model": model, "optimiser": optimiser, "schedule": schedule}
    if checkpoint is not None and checkpoint.is_file():
        try:
            state = torch.load(checkpoint, map_location=next(model.parameters()).device, weights_only=True)
            for name, part in parts.items():
                part.load_state_dict(state[name])
            first = state["step"]
        except Exception as error:
            raise ValueError(f"{checkpoint}: damaged, or not of this demo. Delete it") from error
        console.print(f"{checkpoint}: resuming after step {first} of {steps}")
    model.train()
    with Progress(console=console, transient=True) as progress:
        for step in progress.track(range(first, steps), description="training"):
            optimiser.zero_grad()
            loss(step).backward()
            optimiser.step()
            schedule.step()
            if checkpoint is not None and ((step + 1) % SAVE_EVERY == 0 or step + 1 == steps):
                state = {name: part.state_dict() for name, part in parts.items()} | {"step": step + 1}
                checkpoint.parent.mkdir(parents=True, exist_ok=True)
                save_torch(checkpoint, state)
    model.eval()
