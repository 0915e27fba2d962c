"""The detector as a few GPU kernels with fixed capacities, so that a frame is one replay of a CUDA graph."""

from __future__ import annotations

__all__: list[str] = []
