"""Training of the embedding head, by which detections of one object are recognised."""

from perception.train.identity.trainer import (
    IdentityConfig,
    IdentityTrainer,
    OnStep,
    contrastive_loss,
    vectors_of,
)

__all__ = ["IdentityConfig", "IdentityTrainer", "OnStep", "contrastive_loss", "vectors_of"]
