"""Layers of a planned CPU frame that multiply bytes: int8 weights, uint8 features, exact sums."""

from sparse_core.conv.convolution.cpu.int8.api import byte_layer, byte_rows, largest_bytes
from sparse_core.conv.convolution.cpu.int8.weights import ByteLayer, ByteScale, pack_layer, padded

__all__ = ["ByteLayer", "ByteScale", "byte_layer", "byte_rows", "largest_bytes", "pack_layer", "padded"]
