"""Numbers that the bytes of an int8 frame represent."""

from __future__ import annotations

from torch import nn

from perception.model.network import Network
from perception.stages.byte_outputs import byte_outputs
from sparse_core.conv.convolution.cpu.int8 import ByteScale


class Scales:
    """The scale of every output of an int8 frame, from the ranges of a network.

    Args:
        network: folded network with ranges.
    """

    def __init__(self, network: Network) -> None:
        ranges = network.ranges
        assert ranges is not None, "Detector checks this"
        signed = network.backbone.lateral
        self._scales = {
            module: ByteScale.of(ranges[name], signed=module is signed)
            for name, module in byte_outputs(network)
        }
        self.encoder = self.of(network.encoder)

    def of(self, module: nn.Module) -> ByteScale:
        """Return the scale of a module's output."""
        return self._scales[module]
