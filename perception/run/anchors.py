"""Eager steps of PointPillars with anchors, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.config import AnchorConfig
from perception.model.anchors import AnchorHead
from perception.model.network import Network
from perception.run.canvas import Candidates, CanvasSteps


class AnchorSteps(CanvasSteps):
    """Steps of an :class:`~perception.model.anchors.AnchorNetwork`.

    Args:
        network: folded.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        head, section = network.get_submodule("head"), network.config.backbone
        assert isinstance(head, AnchorHead)
        assert isinstance(section, AnchorConfig)
        self.anchor_head, self.per_class = head, section.per_class

    def candidates(self, features: Tensor) -> Candidates:
        """Return the best anchors of a map (1, C, H, W) that reach the score threshold."""
        found = self.anchor_head(features, self.config.head.top_k)
        threshold = self.config.nms.score_threshold
        if self.per_class:
            rows, labels = (found.scores > threshold).nonzero().unbind(1)
            peaks = len(rows.unique())
            return Candidates(found.boxes[rows], found.scores[rows, labels], labels, labels, peaks=peaks)
        scores, labels = found.scores.max(1)
        rows = (scores >= threshold).nonzero()[:, 0]
        groups = torch.zeros_like(rows)
        return Candidates(found.boxes[rows], scores[rows], labels[rows], groups, peaks=len(rows))
