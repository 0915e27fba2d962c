"""DAIR-V2X as data sets: the scans of a vehicle, of a roadside post, and pairs of both."""

from perception.data.dair_v2x.pairs import DairV2xPairs, PairFrame
from perception.data.dair_v2x.side import DairV2xSide, SideFrame

__all__ = ["DairV2xPairs", "DairV2xSide", "PairFrame", "SideFrame"]
