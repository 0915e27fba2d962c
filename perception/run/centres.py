"""Eager steps of CenterPoint with pillars, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from perception.config import CentreConfig
from perception.model.centres import CentreGroupsHead
from perception.model.network import Network
from perception.run.canvas import Candidates, CanvasSteps


class CentreSteps(CanvasSteps):
    """Steps of a :class:`~perception.model.centres.CentreNetwork`.

    Args:
        network: folded.
    """

    most_by_group = True

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        head, section = network.get_submodule("head"), network.config.backbone
        assert isinstance(head, CentreGroupsHead)
        assert isinstance(section, CentreConfig)
        self.centre_head, self.limits_m = head, section.centres_m

    def candidates(self, features: Tensor) -> Candidates:
        """Return the peaks of each group of (1, C, H, W) above the score threshold and within the limits."""
        found, peaks = [], 0
        for row, group in enumerate(self.centre_head(features, self.config.head.top_k)):
            sure = group.scores > self.config.nms.score_threshold
            peaks = max(peaks, int(sure.sum()))
            # Sizes are exponentials and may overflow.
            good = sure & group.boxes.isfinite().all(1)
            if self.limits_m is not None:
                limits = group.boxes.new_tensor(self.limits_m)
                centre = group.boxes[:, :3]
                good &= ((centre >= limits[:3]) & (centre <= limits[3:])).all(1)
            groups = torch.full_like(group.labels, row)
            parts = (*group[:3], groups, *(() if group.velocities is None else (group.velocities,)))
            found.append([part[good] for part in parts])
        boxes, scores, labels, groups, *rest = (torch.cat(parts) for parts in zip(*found, strict=True))
        return Candidates(boxes, scores, labels, groups, rest[0] if rest else None, peaks)
