"""The rows of the pruning study: every way from one dense network to a sparse one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from benchmarks.layers.pruning_models import (
    BATCH,
    Digits,
    ModelName,
    fit,
    outputs_to_match,
    pruned_layer,
)
from sparse_core.nm.pattern import Block, NMPattern, Pattern
from sparse_core.nm.permutation import permute_model
from sparse_core.nm.pruning import prune
from sparse_core.nm.pruning.allocation import CANDIDATES, allocate
from sparse_core.nm.pruning.api import PruneReport
from sparse_core.nm.pruning.scores import GradientScore
from sparse_core.nm.pruning.sensitivity import SensitivityReport, layer_sensitivity
from sparse_core.nm.training import (
    DistillationLoss,
    MaskRefresher,
    ProgressiveSchedule,
    attach_masks,
)
from sparse_core.nm.training.estimators import Estimator

Group = Literal["dense", "one-shot", "trained on"]
Patterns = Pattern | Mapping[str, Pattern | None]
BASELINE = "magnitude"
REFRESH_EVERY = 5
#: Groups of a convolution lie along its channels, which is what a permutation can order.
LAYOUT: Literal["channels_last"] = "channels_last"


class Task(NamedTuple):
    """One network from one seed; plain values, so that a process can be given it.

    Attributes:
        model: which network.
        seed: of its weights and batches.
        patterns: n:m, as text.
        device: torch's name for it.
        dense_steps: batches of the dense training.
        dense_rate: its peak learning rate.
        steps: further batches of every row that is trained on.
        rate: their peak learning rate.
        part: images that accuracy is measured on.
    """

    model: ModelName
    seed: int
    patterns: tuple[str, ...]
    device: str
    dense_steps: int
    dense_rate: float
    steps: int
    rate: float
    part: Literal["test", "validation"]


class Pruned(NamedTuple):
    """A sparse network.

    Attributes:
        model: with its zeros written into plain weights.
        masks: by layer name; a layer without one is dense.
        patterns: that each mask must fit.
        reference: the dense network whose magnitudes the masks are judged by.
    """

    model: nn.Module
    masks: dict[str, Tensor]
    patterns: Patterns
    reference: nn.Module


@dataclass
class Ways:
    """Every way to prune ``dense`` to ``pattern``; the dense network is left as it is.

    Args:
        dense: trained.
        pattern: wanted n:m.
        digits: training images, for calibration and training.
        sensitivity: of the layers of ``dense``, for the mixed patterns.
        task: steps, learning rate and seed.
    """

    dense: nn.Module
    pattern: NMPattern
    digits: Digits
    sensitivity: SensitivityReport
    task: Task

    @cached_property
    def permuted(self) -> nn.Module:
        """The dense network with its channels in an order that suits the pattern."""
        model = copy.deepcopy(self.dense)
        permute_model(model, self.digits.images[:4], self.pattern, select=pruned_layer, seed=self.task.seed)
        return model

    def one_shot(self, patterns: Patterns | None = None, *, permuted: bool = False, **options: Any) -> Pruned:
        """Prune without training; ``options`` are those of :func:`prune`."""
        reference = self.permuted if permuted else self.dense
        model = copy.deepcopy(reference)
        wanted = self.pattern if patterns is None else patterns
        report: PruneReport = prune(model, wanted, select=pruned_layer, **options)
        return Pruned(model, report.masks, wanted, reference)

    def with_inputs(self, *, permuted: bool = False, **options: Any) -> Pruned:
        """The same with the training images as calibration."""
        batches = [images for images, _ in self.digits.batches(BATCH)]
        return self.one_shot(permuted=permuted, calibration=batches, **options)

    def by_gradient(self) -> Pruned:
        """|w|·|gradient|, averaged over the training images."""
        model = copy.deepcopy(self.dense)
        score = GradientScore(model, pruned_layer)
        for images, labels in self.digits.batches(BATCH):
            model.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            score.update()
        return self.one_shot(score="gradient", gradient=score)

    def mixed(self, sensitivity: SensitivityReport | None = None) -> Pruned:
        """A pattern for each layer, as sparse altogether, by dropped squares or by the change of the loss."""
        chosen = allocate(
            self.dense,
            self.pattern.sparsity,
            candidates=_candidates(),
            sensitivity=sensitivity,
            select=pruned_layer,
        )
        return self.one_shot(chosen.patterns)

    def blocks(self) -> Pruned:
        """Whole blocks of 8 x 8, as many as make the same sparsity."""
        return self.one_shot(Block(8, self.pattern.sparsity))

    def trained(
        self,
        start: Pruned,
        *,
        estimator: Estimator = "fixed",
        gradually: bool = False,
        distil: bool = False,
    ) -> Pruned:
        """Train on from a pruned network.

        Args:
            start: ``"fixed"`` keeps its masks and continues from its weights. The others start from the dense
                network and choose new masks until two thirds of the steps.
            estimator: of the gradient.
            gradually: from dense to the pattern in the first half of the steps.
            distil: learn from the dense network too.
        """
        task = self.task
        model = copy.deepcopy(start.model if estimator == "fixed" else start.reference)
        handle = attach_masks(model, start.masks, estimator=estimator)
        refresher = MaskRefresher(
            handle,
            start.patterns,
            every=REFRESH_EVERY,
            freeze_after=2 * task.steps // 3,
            schedule=ProgressiveSchedule(0, task.steps // 2) if gradually else None,
        )
        teacher = copy.deepcopy(self.dense)
        loss = DistillationLoss(teacher, model, features=outputs_to_match(task.model)) if distil else None
        train_on(model, self.digits, task, before_step=refresher.step, distillation=loss)
        if loss is not None:
            loss.close()
        masks = {name: mask.clone() for name, mask in handle.masks.items()}
        handle.remove()
        return Pruned(model, masks, start.patterns, start.reference)

    def rows(self) -> dict[str, tuple[Group, Callable[[], Pruned]]]:
        """Name, group and maker of each row, in the order of the tables."""
        one_shot: dict[str, Callable[[], Pruned]] = {
            BASELINE: self.one_shot,
            "magnitude, norms restored": lambda: self.one_shot(compensate=True),
            "magnitude, rows fitted": lambda: self.with_inputs(compensate=True, sequential=True),
            "gradient": self.by_gradient,
            "Wanda": lambda: self.with_inputs(score="wanda"),
            "SparseGPT": lambda: self.with_inputs(score="sparsegpt", sequential=True),
            "permuted": lambda: self.one_shot(permuted=True),
            "permuted, SparseGPT": lambda: self.with_inputs(
                permuted=True, score="sparsegpt", sequential=True
            ),
            "mixed n:m": self.mixed,
            "mixed n:m by loss": lambda: self.mixed(self.sensitivity),
            "blocks of 8": self.blocks,
        }
        trained: dict[str, Callable[[], Pruned]] = {
            "fixed masks": lambda: self.trained(self.one_shot()),
            "fixed, distilled": lambda: self.trained(self.one_shot(), distil=True),
            "fixed, from SparseGPT": lambda: self.trained(one_shot["SparseGPT"]()),
            "fixed, permuted": lambda: self.trained(self.one_shot(permuted=True)),
            "fixed, mixed n:m": lambda: self.trained(self.mixed()),
            "fixed, blocks of 8": lambda: self.trained(self.blocks()),
            "SR-STE": lambda: self.trained(self.one_shot(), estimator="sr-ste"),
            "SR-STE, distilled": lambda: self.trained(self.one_shot(), estimator="sr-ste", distil=True),
            "SR-STE, progressive": lambda: self.trained(self.one_shot(), estimator="sr-ste", gradually=True),
        }
        found: dict[str, tuple[Group, Callable[[], Pruned]]] = {}
        found.update({name: ("one-shot", make) for name, make in one_shot.items()})
        found.update({name: ("trained on", make) for name, make in trained.items()})
        return found


def train_on(
    model: nn.Module,
    digits: Digits,
    task: Task,
    *,
    before_step: Callable[[], object] = lambda: None,
    distillation: DistillationLoss | None = None,
) -> None:
    """The further steps: the same batches and learning rates for every row of a seed."""
    fit(
        model,
        digits,
        steps=task.steps,
        peak_rate=task.rate,
        seed=task.seed + 1000,
        before_step=before_step,
        distillation=distillation,
    )


def _candidates() -> list[NMPattern | None]:
    return [None if found is None else NMPattern(found.n, found.m, LAYOUT) for found in CANDIDATES]


def sensitivity_of(dense: nn.Module, digits: Digits) -> SensitivityReport:
    """Change of the training loss when one layer is pruned, to second order with the exact Hessian."""
    return layer_sensitivity(
        dense,
        lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        digits.batches(BATCH),
        patterns=[found for found in _candidates() if found is not None],
        order=2,
        hessian="exact",
        select=pruned_layer,
    )
