"""The section ``backbone``: one dataclass per kind of detector, chosen by ``backbone.kind``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perception.config.checks import check
from perception.errors import ConfigError
from sparse_core.kernels.op import Impl

#: Number of branches of a :class:`CentreConfig` group: heat, centre, height, sizes and heading.
_BRANCHES = 5


@dataclass(frozen=True)
class BackboneConfig:
    """Backbone: residual stages at 1, 1/2, 1/4 … of the pillar grid, then one stride into the neck.

    Attributes:
        kind: kind of detector, a key of :data:`BACKBONES`. ``"sparse"`` computes active pillars only;
            ``"dense"`` is the same network on the full grid.
        channels: width of each stage.
        blocks: residual blocks (two 3x3 convolutions each) of each stage.
        dilating: strided layers activate every cell whose window holds an input.
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
        """Pillars per cell of the neck's input map, along one axis."""
        return int(2 ** len(self.channels))


@dataclass(frozen=True)
class CanvasConfig(BackboneConfig):
    """Section ``backbone`` of detectors with a dense canvas, which ignore ``neck`` and ``refine``.

    Attributes:
        hidden_channels: widths of the point layers before the last, which has ``pillars.channels``. Half of
            each is the point's own, half the maximum over its pillar.
        strides: stride of the first layer of each stage.
        up_channels, up_strides: width and upsampling factor of each stage's output; 0.5 halves the
            resolution.
        points: points per pillar; further ones are ignored.
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
        """Pillars per cell of the head's input map."""
        return round(self.strides[0] / self.up_strides[0])


@dataclass(frozen=True)
class AnchorConfig(CanvasConfig):
    """Section ``backbone`` of PointPillars with anchors.

    ``head.sizes_m`` gives the anchor sizes in the order of ``head.classes``. NMS gets ``head.top_k`` boxes.

    Attributes:
        bottoms_m: by class, height of the lower face of the anchors.
        yaws_rad: yaws of the anchors of each class and cell.
        centred: anchors stand at cell centres; otherwise they span the range from edge to edge.
        clockwise: yaws count clockwise from -y, as in mmdetection3d before 1.0.
        direction_offset_rad: yaw at which the two directions of a box are separated.
        per_class: a box may have several classes, and NMS runs per class. Otherwise a box has its best class
            and suppresses all others.
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
    """Section ``backbone`` of CenterPoint with pillars.

    ``head.channels`` is the width of the head. Each group reads ``head.top_k`` peaks and reports at most
    ``nms.max_boxes`` boxes.

    Attributes:
        groups: classes that share branches and suppress each other; each class is in one group. Empty: one
            group for all classes.
        layers: convolutions of each branch: heat, then :data:`perception.model.centres.BRANCHES`. With
            ``head.velocity``, those of the velocities come last.
        centres_m: x, y, z minimum, then maximum of reported box centres, inclusive. None: no limit.
            :meth:`~perception.Detector.with_range` keeps it.
    """

    kind: str = "centres"
    groups: tuple[tuple[str, ...], ...] = ()
    layers: tuple[int, ...] = (2, 2, 2, 2, 2)
    centres_m: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.layers) not in (_BRANCHES, _BRANCHES + 1) or min(self.layers) < 1:
            raise ConfigError(
                f"backbone.layers must be five counts, or six with velocities, at least 1, got {self.layers}"
            )
        if self.centres_m is not None and len(self.centres_m) != 6:
            raise ConfigError(f"backbone.centres_m must be six numbers or null, got {self.centres_m}")


#: Configuration class by kind of detector; :data:`perception.registry.KINDS` has the classes that run it.
BACKBONES: dict[str, type[BackboneConfig]] = {
    "sparse": BackboneConfig,
    "dense": BackboneConfig,
    "anchors": AnchorConfig,
    "centres": CentreConfig,
}


def section_of(kind: str) -> type[BackboneConfig]:
    """Return the configuration class of a kind of detector.

    Raises:
        ConfigError: unknown kind.
    """
    # A list, because a value from a file may not be hashable.
    if kind not in list(BACKBONES):
        raise ConfigError(f"backbone.kind must be one of {', '.join(BACKBONES)}; got {kind!r}")
    return BACKBONES[kind]
