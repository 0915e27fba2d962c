"""The kinds of detector by name, ``backbone.kind`` in their configuration: one entry each, one file each."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from typing import Any, Literal

from perception.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DetectorKind:
    """Classes of a kind as ``module:class``, imported when they are needed: weights need no way to run.

    Attributes:
        config: of the section ``backbone``: :class:`~perception.config.BackboneConfig` or derived from it.
        backbone: what :class:`~perception.model.network.Network` makes of that section.
        network: ``Network``, or a class derived from it that makes what it likes of the configuration.
        eager: its :class:`~perception.run.program.Steps` on any device, made of the network.
        graph: its :class:`~perception.run.fixed.FixedSteps` for CUDA graphs; None: it has none.
    """

    config: str = "perception.config:BackboneConfig"
    backbone: str = "perception.model.backbone:SparseBackbone"
    network: str = "perception.model.network:Network"
    eager: str = "perception.run.eager:EagerSteps"
    graph: str | None = None


KINDS = {
    "sparse": DetectorKind(graph="perception.run.fixed:SparseSteps"),
    "dense": DetectorKind(
        backbone="perception.model.backbone:DenseBackbone", graph="perception.run.dense:DenseSteps"
    ),
    "anchors": DetectorKind(
        config="perception.model.anchors:AnchorConfig",
        network="perception.model.anchors:AnchorNetwork",
        eager="perception.run.anchors:AnchorSteps",
    ),
    "centres": DetectorKind(
        config="perception.model.centres:CentreConfig",
        network="perception.model.centres:CentreNetwork",
        eager="perception.run.centres:CentreSteps",
    ),
}


def class_of(kind: str, part: Literal["config", "backbone", "network", "eager", "graph"]) -> Any:
    """A class of a kind of detector; None where it has no such.

    Raises:
        ConfigError: no kind has this name; lists those there are.
    """
    if kind not in list(KINDS):
        raise ConfigError(f"backbone.kind must be one of {', '.join(KINDS)}; got {kind!r}")
    name = getattr(KINDS[kind], part)
    return name and pkgutil.resolve_name(name)
