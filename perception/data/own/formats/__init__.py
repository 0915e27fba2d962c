"""Label formats, one module each."""

from __future__ import annotations

from pathlib import Path

from perception.data.own.formats.csv_table import CsvLabels
from perception.data.own.formats.dair_v2x import DairV2xLabels
from perception.data.own.formats.datumaro import DatumaroLabels
from perception.data.own.formats.json_boxes import JsonLabels
from perception.data.own.formats.labelcloud import LabelCloudLabels
from perception.data.own.formats.openpcdet import OpenPcdetLabels
from perception.data.own.formats.supervisely import SuperviselyLabels
from perception.data.own.formats.sustechpoints import SustechPointsLabels
from perception.data.own.formats.tracklets import CvatTracklets, KittiTracklets
from perception.data.own.labels import LabelFormat
from perception.errors import DataError

_ALL: tuple[type[LabelFormat], ...] = (
    JsonLabels,
    CsvLabels,
    OpenPcdetLabels,
    SustechPointsLabels,
    LabelCloudLabels,
    SuperviselyLabels,
    DatumaroLabels,
    DairV2xLabels,
    CvatTracklets,
    KittiTracklets,
)
#: Formats by their name in ``dataset.yaml``, in order of recognition.
FORMATS: dict[str, type[LabelFormat]] = {kind.name: kind for kind in _ALL}


def format_named(name: str) -> type[LabelFormat]:
    """Return a format by name; raise ``DataError`` if it is unknown."""
    if name not in FORMATS:
        raise DataError(f"labels.format must be one of {', '.join(FORMATS)}; got {name!r}")
    return FORMATS[name]


def recognised_format(path: Path) -> type[LabelFormat] | None:
    """Return the format of a folder or file of labels, or None."""
    return next((kind for kind in FORMATS.values() if kind.recognises(path)), None)
