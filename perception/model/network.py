"""The trainable network: pillars to proposals to refined boxes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from perception.config import DetectorConfig, EmbeddingConfig
from perception.errors import CheckpointError
from perception.model.backbone import DenseBackbone, SparseBackbone
from perception.model.embedding import EmbeddingHead
from perception.model.encoder import PillarEncoder
from perception.model.head import CentreHead, Proposals
from perception.model.layers import fold_batch_norms
from perception.model.neck import Neck
from perception.model.pillars import Pillars
from perception.model.refine import RefineOutput, RefineStage, VelocityHead, turned


class NetworkMaps(NamedTuple):
    """Output of the first stage.

    Attributes:
        features: (B, C, H, W) bird's-eye map that the head and the second stage read.
        heat_logits: (B, classes, H, W).
    """

    features: Tensor
    heat_logits: Tensor


class Network(nn.Module):
    """Encoder, backbone, neck, head, refinement, embedding head and velocity head.

    ``perception.registry.make_network`` makes the class for ``config.backbone.kind``.
    """

    #: Class of the backbone, with the constructor of :class:`~perception.model.backbone.SparseBackbone`.
    backbone_type: ClassVar[type[Any]] = SparseBackbone

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config = config
        pillars, neck = config.pillars, config.neck
        grid = pillars.grid.coarser(config.backbone.stride / 2)
        self.encoder = PillarEncoder(pillars)
        self.backbone: SparseBackbone | DenseBackbone = self.backbone_type(
            config.backbone,
            in_channels=pillars.channels,
            fine_channels=neck.out_channels,
            coarse_channels=neck.channels,
        )
        self.neck = Neck(neck)
        self.head = CentreHead(config.head, in_channels=neck.out_channels, grid=grid)
        self.refinements = nn.ModuleList(
            RefineStage(
                config.refine,
                classes=len(config.head.classes),
                map_channels=neck.out_channels,
                grid=grid,
                columns=pillars.columns,
            )
            for _ in range(config.refine.iterations if config.refine.enabled else 0)
        )
        self.embedding = EmbeddingHead() if config.embedding.enabled else None
        velocity = config.head.velocity and config.refine.enabled
        self.velocity = VelocityHead() if velocity else None
        #: Largest features by layer, see :mod:`perception.checkpoints.ranges`; an int8 frame needs them.
        self.ranges: dict[str, float] | None = None
        # Ignore torch's default dtype.
        self.float()

    def maps(self, pillars: Pillars) -> NetworkMaps:
        """Run the first stage up to the heat map."""
        features = self.neck(self.backbone(self.encoder(pillars)))
        return NetworkMaps(features, self.head.heat_logits(features))

    def propose(self, maps: NetworkMaps) -> Proposals:
        """Decode boxes at the peaks of the heat map."""
        return self.head.propose(maps.features, maps.heat_logits)

    def refine(
        self, pillars: Pillars, features: Tensor, boxes: Tensor, box_frames: Tensor, labels: Tensor
    ) -> tuple[Tensor, RefineOutput]:
        """Run all refinement steps.

        Args:
            pillars: points of the frames.
            features: (B, C, H, W) from :meth:`maps`.
            boxes: (R, 7); box_frames: (R,); labels: (R,).

        Returns:
            Refined boxes (R, 7) with resolved headings, and the outputs of the last step.
        """
        output = None
        for stage in self.refinements:
            assert isinstance(stage, RefineStage)
            boxes, output = stage.refined(pillars, features, boxes, box_frames, labels)
        assert output is not None
        return turned(boxes, output.flip_logits), output

    def add_embedding(self, head: EmbeddingHead | None) -> None:
        """Attach an embedding head; None changes nothing."""
        if head is None:
            return
        if not self.config.refine.enabled:
            raise CheckpointError("an embedding head needs a network with refinement (refine.enabled)")
        self.embedding = head
        self.config = replace(self.config, embedding=EmbeddingConfig(enabled=True))

    def fold(self) -> Network:
        """Fold batch norms and prepare weights for inference; the network can no longer be trained."""
        self.eval()
        fold_batch_norms(self)
        for part in self.modules():
            if isinstance(part, nn.Conv2d | nn.ConvTranspose2d):
                part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return self


class DenseNetwork(Network):
    """The same network with a dense backbone: the dense baseline."""

    backbone_type = DenseBackbone
