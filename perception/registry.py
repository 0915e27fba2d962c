"""Registry of detector kinds: the classes for each ``backbone.kind``.

:mod:`perception.model` and :mod:`perception.run` never import the registry. They take classes and sections
of the configuration as arguments.
"""

from __future__ import annotations

from dataclasses import dataclass

from perception.config import DetectorConfig
from perception.config.backbone import BACKBONES, BackboneConfig, section_of
from perception.model.anchors import AnchorNetwork
from perception.model.centres import CentreNetwork
from perception.model.network import DenseNetwork, Network
from perception.run.canvas import AnchorSteps, CentreSteps
from perception.run.eager import EagerSteps, MakeSteps
from perception.run.fixed import DenseSteps, FixedSteps, SparseSteps


@dataclass(frozen=True, kw_only=True)
class DetectorKind:
    """The classes of a kind of detector.

    Attributes:
        network: made from the configuration; trained, saved and loaded.
        eager: steps on any device, made from the network.
        graph: steps for CUDA graphs; None if the kind has none.
    """

    network: type[Network] = Network
    eager: MakeSteps = EagerSteps
    graph: type[FixedSteps] | None = None


#: By ``backbone.kind``; :data:`perception.config.backbone.BACKBONES` has the configuration of each.
KINDS = {
    "sparse": DetectorKind(graph=SparseSteps),
    "dense": DetectorKind(network=DenseNetwork, graph=DenseSteps),
    "anchors": DetectorKind(network=AnchorNetwork, eager=AnchorSteps),
    "centres": DetectorKind(network=CentreNetwork, eager=CentreSteps),
}


def register(name: str, kind: DetectorKind, section: type[BackboneConfig] = BackboneConfig) -> None:
    """Add a kind of detector from outside the package.

    Args:
        name: value of ``backbone.kind``.
        kind: classes of the detector.
        section: dataclass of the section ``backbone``.
    """
    KINDS[name], BACKBONES[name] = kind, section


def kind_of(config: DetectorConfig) -> DetectorKind:
    """Return the classes for a configuration.

    Raises:
        ConfigError: unknown ``backbone.kind``.
    """
    section_of(config.backbone.kind)
    return KINDS[config.backbone.kind]


def make_network(config: DetectorConfig) -> Network:
    """Make the network of a configuration with random weights."""
    return kind_of(config).network(config)


def graph_steps(config: DetectorConfig) -> type[FixedSteps] | None:
    """Return the CUDA graph steps for a configuration; None if its kind has none."""
    return kind_of(config).graph
