"""Convolutions of whole maps for CUDA graphs, where every cell counts and the maps are small."""

from __future__ import annotations

from perception.fast.maps.api import MapConvolution

__all__ = ["MapConvolution"]
