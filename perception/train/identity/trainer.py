"""Training of the embedding head: observations of one object close together, all others apart.

Supervised contrastive learning (Khosla et al., NeurIPS 2020) on features of a trained detector, which stays
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perception.errors import CheckpointError, ConfigError, DataError
from perception.model.embedding import EmbeddingHead
from perception.train.checkpoint import damaged_checkpoint
from perception.train.identity.observations import Observations
from perception.types import FloatArray
from sparse_core.common.files import save_torch
from sparse_core.common.interruption import Interrupted, stop_requests

#: Called with the step, all steps, and the loss.
OnStep = Callable[[int, int, float], None]


@dataclass(frozen=True)
class IdentityConfig:
    """Settings of a training of the embedding head.

    Attributes:
        trains: distinguishes this training from that of a detector.
        towns: number of simulated towns to learn from; first_town: seed of the first.
        held_towns: number of further towns, used for evaluation only.
        steps: optimizer steps.
        objects: objects per step, half of them of one class and scene if enough exist.
        sights: observations per object.
        temperature: of the softmax over the observations of a step.
        dropout: share of the features zeroed in training.
        learning_rate: peak of the one-cycle schedule.
        weight_decay: of AdamW.
        checkpoint_every: steps between checkpoints.
        seed: of everything random.
    """

    trains: Literal["embedding"] = "embedding"
    towns: int = 48
    first_town: int = 7000
    held_towns: int = 12
    steps: int = 2000
    objects: int = 48
    sights: int = 4
    temperature: float = 0.1
    dropout: float = 0.1
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    checkpoint_every: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "temperature", "learning_rate", "checkpoint_every"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)!r}")
        for name in ("towns", "first_town", "held_towns", "weight_decay", "seed"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)!r}")
        for name in ("objects", "sights"):
            if getattr(self, name) < 2:
                raise ConfigError(f"{name} must be at least 2, got {getattr(self, name)!r}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be in [0, 1), got {self.dropout!r}")


def contrastive_loss(vectors: Tensor, objects: Tensor, temperature: float) -> Tensor:
    """Return the supervised contrastive loss, averaged over observations (Khosla et al., eq. 2).

    Args:
        vectors: (N, D) unit vectors.
        objects: (N,) int64; each object has at least two observations.
        temperature: of the softmax.
    """
    itself = torch.eye(len(vectors), dtype=torch.bool, device=vectors.device)
    similarity = (vectors @ vectors.T / temperature).masked_fill(itself, -torch.inf)
    surprise = torch.logsumexp(similarity, dim=1, keepdim=True) - similarity
    same = (objects[:, None] == objects[None]) & ~itself
    return (surprise.masked_fill(~same, 0.0).sum(dim=1) / same.sum(dim=1)).mean()


class IdentityTrainer:
    """A training run in one folder; a new trainer on the same folder resumes it.

    Args:
        config: of the run.
        sights: observations to learn from.
        directory: for the checkpoint; None: no checkpoint is written.
        device: where to train.

    Raises:
        DataError: fewer than two objects with two observations.
        CheckpointError: the checkpoint is damaged or belongs to another run.
    """

    def __init__(
        self,
        config: IdentityConfig,
        sights: Observations,
        directory: Path | None = None,
        *,
        device: str | torch.device = "cpu",
    ) -> None:
        self.config, self.device = config, torch.device(device)
        self.step = 0
        self._groups, self._places = _groups(sights)
        if len(self._groups) < 2:
            raise DataError(
                f"only {len(self._groups)} objects have two observations ({len(sights)} observations in all);"
                " training needs two such objects. Add drives or towns"
            )
        torch.manual_seed(config.seed)
        self.inputs = torch.from_numpy(sights.features).to(self.device)
        self.network = _ScaledHead(self.inputs, config.dropout).to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=config.learning_rate, total_steps=config.steps + 1
        )
        self._path = None if directory is None else directory / "checkpoint.pt"
        self._restore()

    def run(self, on_step: OnStep | None = None, out_of_time: Callable[[], bool] = lambda: False) -> bool:
        """Train until all steps are done, the time is up or a signal arrives; always write a checkpoint.

        Returns:
            True if all steps are done.

        Raises:
            Interrupted: SIGINT or SIGTERM arrived. The step was finished and a checkpoint written.
        """
        self.network.train()
        with stop_requests() as stop:
            while self.step < self.config.steps and not out_of_time() and not stop:
                loss = self._learn()
                self.step += 1
                if on_step is not None:
                    on_step(self.step, self.config.steps, loss)
                if self.step % self.config.checkpoint_every == 0:
                    self._save()
            self._save()
        self.network.eval()
        if stop:
            saved = "not saved, for lack of a directory" if self._path is None else f"saved in {self._path}"
            raise Interrupted(
                f"interrupted at step {self.step} of {self.config.steps}, {saved}. Run the same command again"
                " to resume",
                stop.signal_number,
            )
        return self.step >= self.config.steps

    def head(self) -> EmbeddingHead:
        """Return the current head on the CPU, with the feature scaling folded into its weights."""
        return self.network.folded()

    def _learn(self) -> float:
        rows, objects = self._batch()
        vectors = self.network(self.inputs[rows])
        loss = contrastive_loss(vectors, objects, self.config.temperature)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return float(loss.detach())

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Return rows of observations and their object numbers: half from one place, half from everywhere."""
        config = self.config
        random = np.random.default_rng([config.seed, self.step])
        # Dropout depends on the step alone, so that a resumed run equals an uninterrupted one.
        torch.manual_seed(int(random.integers(2**31)))
        near = self._places[int(random.integers(len(self._places)))]
        first = random.permutation(near)[: config.objects // 2]
        others = np.setdiff1d(np.arange(len(self._groups)), first)
        chosen = np.concatenate([first, random.permutation(others)[: config.objects - len(first)]])
        rows = [
            random.choice(
                self._groups[number], config.sights, replace=len(self._groups[number]) < config.sights
            )
            for number in chosen
        ]
        objects = np.repeat(np.arange(len(chosen)), config.sights)
        return torch.from_numpy(np.concatenate(rows)).to(self.device), torch.from_numpy(objects).to(
            self.device
        )

    def _save(self) -> None:
        if self._path is None:
            return
        state = {
            "config": asdict(self.config),
            "sights": len(self.inputs),
            "step": self.step,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
        }
        save_torch(self._path, state)

    def _restore(self) -> None:
        if self._path is None or not self._path.is_file():
            return
        try:
            state: dict[str, Any] = torch.load(self._path, map_location=self.device, weights_only=True)
            stored, sights = state["config"], state["sights"]
        except Exception as error:
            raise damaged_checkpoint(self._path, error) from error
        wanted = asdict(self.config)
        other = [name for name in wanted if name != "checkpoint_every" and stored.get(name) != wanted[name]]
        if sights != len(self.inputs):
            other.append("number of observations")
        if other:
            raise CheckpointError(
                f"{self._path}: belongs to a run with another {other[0]!r}. Choose another folder or delete"
                " the file"
            )
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.step = int(state["step"])


class _ScaledHead(nn.Module):
    """A head on features scaled to mean 0 and deviation 1, with dropout in training."""

    mean: Tensor
    scale: Tensor

    def __init__(self, features: Tensor, dropout: float) -> None:
        super().__init__()
        self.head = EmbeddingHead()
        self.dropout = dropout
        # The offset keeps rarely used features from becoming large.
        self.register_buffer("mean", features.mean(dim=0))
        self.register_buffer("scale", 1.0 / (features.std(dim=0) + 0.05 * features.std()))

    def forward(self, features: Tensor) -> Tensor:
        scaled = (features - self.mean) * self.scale
        vectors: Tensor = self.head(F.dropout(scaled, self.dropout, self.training))
        return vectors

    def folded(self) -> EmbeddingHead:
        """Return the head for unscaled features."""
        head = EmbeddingHead()
        weight = self.head.out.weight.detach() * self.scale
        head.load_state_dict({"out.weight": weight, "out.bias": self.head.out.bias - weight @ self.mean})
        return head.eval()


@torch.inference_mode()
def vectors_of(network: nn.Module, inputs: Tensor) -> FloatArray:
    """Return (N, 128) float32 embeddings on the host, computed in evaluation mode."""
    vectors: FloatArray = network.eval()(inputs).cpu().numpy()
    return vectors


def _groups(sights: Observations) -> tuple[list[npt.NDArray[np.int64]], list[npt.NDArray[np.int64]]]:
    """Return rows of each object with two or more observations, and object numbers by scene and class."""
    groups: list[npt.NDArray[np.int64]] = []
    places: dict[tuple[str, int], list[int]] = {}
    order = np.argsort(sights.objects, kind="stable")
    _, first = np.unique(sights.objects[order], return_index=True)
    for rows in np.split(order, first[1:]):
        if len(rows) < 2:
            continue
        label = int(np.bincount(sights.labels[rows]).argmax())
        places.setdefault((str(sights.scenes[rows[0]]), label), []).append(len(groups))
        groups.append(rows)
    return groups, [np.array(numbers) for numbers in places.values() if len(numbers) > 1] or [
        np.arange(len(groups))
    ]
