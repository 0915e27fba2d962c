"""Components for sparse training around a plain torch loop: estimators, refresh, distillation."""

from sparse_core.nm.training.distillation import DistillationLoss, soft_label_loss
from sparse_core.nm.training.estimators import (
    Estimator,
    MaskedModel,
    MaskedWeight,
    attach_masks,
    masked_weight,
)
from sparse_core.nm.training.refresh import MaskRefresher, Refresh, Score
from sparse_core.nm.training.schedules import warmup_cosine, warmup_cosine_factor
from sparse_core.nm.training.sparse_linear import SparseTrainingLinear

__all__ = [
    "DistillationLoss",
    "Estimator",
    "MaskRefresher",
    "MaskedModel",
    "MaskedWeight",
    "Refresh",
    "Score",
    "SparseTrainingLinear",
    "attach_masks",
    "masked_weight",
    "soft_label_loss",
    "warmup_cosine",
    "warmup_cosine_factor",
]
