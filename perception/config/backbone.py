"""The section ``backbone``: one dataclass per kind of detector, chosen by ``backbone.kind``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perception.config.checks import check
from perception.errors import ConfigError
from sparse_core.kernels.op import Impl

#: Branches of a group of :class:`CentreConfig`: heat, centre, height, sizes and heading.
_BRANCHES = 5


@dataclass(frozen=True)
class BackboneConfig:
    """Backbone: residual stages at 1, 1/2, 1/4 … of the pillar grid, then one stride into the neck.

    Attributes:
        kind: of detector, a key of :data:`BACKBONES`. ``"sparse"`` computes at active pillars only;
            ``"dense"`` is the same network on the full grid.
        channels: width of each stage.
        blocks: residual blocks (two 3x3 convolutions each) of each stage.
        dilating: whether strided layers activate every cell whose window holds an input.
        impl: implementation of the sparse layers: ``"auto"``, ``"reference"``, ``"triton"`` or ``"vendor"``
            (spconv).
    """

    kind: str = "sparse"
    channels: tuple[int, ...] = (64, 64, 128)
    blocks: tuple[int, ...] = (2, 2, 2)
    dilating: bool = True
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        section_of(self.kind)
        check(
            len(self.channels) == len(self.blocks) >= 2,
            "backbone.channels and backbone.blocks",
            "of equal length, at least 2",
            (self.channels, self.blocks),
        )
        check(min(self.channels) > 0, "backbone.channels", "positive", self.channels)
        check(min(self.blocks) >= 0, "backbone.blocks", "not negative", self.blocks)

    @property
    def stride(self) -> int:
        """Pillars per cell of the map that the neck gets, along one axis."""
        return int(2 ** len(self.channels))


@dataclass(frozen=True)
class CanvasConfig(BackboneConfig):
    """The section ``backbone`` of such detectors; ``neck`` and ``refine`` mean nothing to them.

    Attributes:
        hidden_channels: widths of the layers of point features before the last one, whose width is
            ``pillars.channels``: half is a point's own, half the maximum of its pillar.
        strides: of the first layer of each stage.
        up_channels, up_strides: width of what each stage hands on, and how much finer it is made; 0.5: half
            as fine.
        points: of a pillar that count, the first ones.
    """

    channels: tuple[int, ...] = (64, 128, 256)
    blocks: tuple[int, ...] = (3, 5, 5)
    hidden_channels: tuple[int, ...] = ()
    strides: tuple[int, ...] = (2, 2, 2)
    up_channels: tuple[int, ...] = (128, 128, 128)
    up_strides: tuple[float, ...] = (1, 2, 4)
    points: int = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = [len(part) for part in (self.channels, self.strides, self.up_channels, self.up_strides)]
        if len(set(counts)) > 1:
            raise ConfigError(
                "backbone.channels, strides, up_channels and up_strides must be of equal length, got"
                f" {', '.join(map(str, counts))}"
            )
        if any(width < 2 or width % 2 for width in self.hidden_channels):
            raise ConfigError(
                f"backbone.hidden_channels must be positive and even, got {self.hidden_channels}"
            )
        positive = min(*self.strides, *self.up_strides) > 0
        whole = positive and all(
            float(max(up, 1 / up)).is_integer() for up in (*self.strides, *self.up_strides)
        )
        finer = {
            math.prod(self.strides[: level + 1]) / up for level, up in enumerate(self.up_strides) if up > 0
        }
        if not whole or min(self.strides) < 1 or len(finer) > 1 or min(finer) < 1:
            raise ConfigError(
                f"backbone.strides {self.strides} and up_strides {self.up_strides} must be positive, whole or"
                " one over a whole number, and lead to one resolution"
            )

    @property
    def stride(self) -> int:
        """Pillars per cell of the coarsest map."""
        return max(math.prod(self.strides), self.map_stride)

    @property
    def map_stride(self) -> int:
        """Pillars per cell of the map that the head reads."""
        return round(self.strides[0] / self.up_strides[0])


@dataclass(frozen=True)
class AnchorConfig(CanvasConfig):
    """The section ``backbone`` of such a detector.

    Sizes of anchors are ``head.sizes_m``, in the order of ``head.classes``; ``head.top_k`` boxes go to the
    suppression.

    Attributes:
        bottoms_m: by class, height of the anchors' undersides.
        yaws_rad: of the anchors, for each class and cell.
        centred: anchors stand in the middles of cells; if not, from edge to edge of the range.
        clockwise: yaws of anchors and codes count clockwise from -y, as in mmdetection3d before 1.0.
        direction_offset_rad: from where half turns are told apart.
        per_class: boxes are of each class that scores enough, and only those of one suppress each other; if
            not, a box is of its best class, and suppresses all.
    """

    kind: str = "anchors"
    bottoms_m: tuple[float, ...] = (-1.78, -0.6, -0.6)
    yaws_rad: tuple[float, ...] = (0.0, 1.57)
    centred: bool = False
    clockwise: bool = False
    direction_offset_rad: float = 0.78539
    per_class: bool = False


@dataclass(frozen=True)
class CentreConfig(CanvasConfig):
    """The section ``backbone`` of such a detector.

    ``head.channels`` is the width of the head, ``head.top_k`` the places of a group that are read,
    ``nms.max_boxes`` what a group reports at most.

    Attributes:
        groups: classes with branches of their own, which suppress each other; each class is in one. None are
            given: all in one.
        layers: convolutions of each branch: of the heat, then of :data:`perception.model.centres.BRANCHES`.
        centres_m: x, y, z minimum then maximum of the centres that are reported, both inside. None: any. It
            stays where the detector is given another range.
    """

    kind: str = "centres"
    groups: tuple[tuple[str, ...], ...] = ()
    layers: tuple[int, ...] = (2, 2, 2, 2, 2)
    centres_m: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.layers) != _BRANCHES or min(self.layers) < 1:
            raise ConfigError(f"backbone.layers must be five counts, at least 1, got {self.layers}")
        if self.centres_m is not None and len(self.centres_m) != 6:
            raise ConfigError(f"backbone.centres_m must be six numbers or null, got {self.centres_m}")


#: The section of each kind of detector; :data:`perception.registry.KINDS` has the classes that run it.
BACKBONES: dict[str, type[BackboneConfig]] = {
    "sparse": BackboneConfig,
    "dense": BackboneConfig,
    "anchors": AnchorConfig,
    "centres": CentreConfig,
}


def section_of(kind: str) -> type[BackboneConfig]:
    """Return the dataclass of the section ``backbone`` of a kind of detector.

    Raises:
        ConfigError: no kind has this name; lists those there are.
    """
    # A list, because a name from a file may be of a type that cannot be hashed.
    if kind not in list(BACKBONES):
        raise ConfigError(f"backbone.kind must be one of {', '.join(BACKBONES)}; got {kind!r}")
    return BACKBONES[kind]
