"""nuScenes as a data set, read from its tables."""

from perception.data.nuscenes.data_set import NuScenesDataSet, NuScenesFrame

__all__ = ["NuScenesDataSet", "NuScenesFrame"]
