"""Own data: scans in any format, labels of several tools, and a short YAML file that describes them."""

from perception.data.own.data_set import OwnDataSet, OwnFrame
from perception.data.own.description import (
    DESCRIPTION_NAME,
    Description,
    LabelPart,
    ScanPart,
    read_description,
)
from perception.data.own.formats import FORMATS
from perception.data.own.labels import LabelFormat, WrittenLabels
from perception.data.own.writer import OwnWriter

__all__ = [
    "DESCRIPTION_NAME",
    "FORMATS",
    "Description",
    "LabelFormat",
    "LabelPart",
    "OwnDataSet",
    "OwnFrame",
    "OwnWriter",
    "ScanPart",
    "WrittenLabels",
    "read_description",
]
