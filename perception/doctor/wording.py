"""Fixes for labels, by label format."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perception.data import DataSet
from perception.data.own import OwnDataSet
from perception.io.transform import ScanTransform
from perception.scans.finding import Finding


@dataclass(frozen=True)
class LabelWords:
    """Fixes by problem.

    Attributes:
        empty: there are no boxes.
        rename: a class has another name; a format string with ``name`` and ``meant``.
        degrees: headings are in degrees.
        order: sizes are impossible.
        swapped: sizes are swapped.
        look: some sizes are implausible.
        other_frame: boxes float or are sunk.
        floating_half, sunk_half: boxes float, or are sunk, by half their height.
        floating_alone: some boxes float or are sunk.
        turns: headings differ as in :data:`~perception.doctor.label_facts.TURNS`.
    """

    empty: str
    rename: str
    degrees: str
    order: str
    swapped: str
    look: str
    other_frame: str
    floating_half: str
    sunk_half: str
    floating_alone: str
    turns: tuple[str, str, str]


#: For labels in a camera frame, as in KITTI.
CAMERA = LabelWords(
    empty="Check that the labels were exported. A line is 'Car 0 0 alpha left top right bottom"
    " height width length x y z rotation_y'.",
    rename="Write {meant} instead of {name} in the labels; upper and lower case matter.",
    degrees="Convert rotation_y (and alpha) to radians in -pi..pi.",
    order="Write height, width and length in metres, in this order.",
    swapped="Write height, width and length, in this order.",
    look="Check these boxes. Labels are height, width, length in metres.",
    other_frame="Check the translation of the calibration and the sensor height: labels and scans have"
    " different origins.",
    floating_half="Write y of the bottom centre instead of the centre (camera y points down): the gap is half"
    " a box height.",
    sunk_half="Write y of the bottom centre; it seems to be shifted twice, by half a box height.",
    floating_alone="Check these frames. y is the bottom of the object in the camera frame.",
    turns=(
        "Add or subtract pi/2: rotation_y is 0 for an object that faces right (-y of the LiDAR).",
        "Yaw is counter-clockwise from +x in the LiDAR frame; rotation_y is clockwise seen from above.",
        "Write rotation_y = -yaw - pi/2, or let perception.data.objects_from_boxes write the labels.",
    ),
)
#: For labels of an own folder.
OWN = LabelWords(
    empty="Check that the labels were exported, and that classes in dataset.yaml does not drop all (null).",
    rename="Write {name}: {meant} under classes in dataset.yaml, or {name}: null to drop these boxes.",
    degrees="Set labels.angles: degrees in dataset.yaml.",
    order="Write length, width and height, in this order, in the unit of the scans.",
    swapped="Write length along the heading, width and height, in this order.",
    look="Check these boxes. Sizes are length, width, height in the unit of the scans.",
    other_frame="Export labels and scans in the frame of the sensor; they have different origins.",
    floating_half="Set labels.z: centre in dataset.yaml instead of bottom; the gap is half a box height.",
    sunk_half="Set labels.z: bottom in dataset.yaml; the gap is half a box height.",
    floating_alone="Check whether these objects stand on something.",
    turns=(
        "Set labels.turn_deg: 90 (or -90, if the front is at the other end) in dataset.yaml.",
        "Write yaw with the opposite sign: it is counter-clockwise seen from above.",
        "Write yaw = -rotation_y - pi/2, as headings seem to be rotation_y of a camera.",
    ),
)
#: For labels of other kinds in the frame of the LiDAR.
LIDAR = replace(
    OWN,
    empty="Check that the labels were copied.",
    rename="Write {meant} instead of {name} in the config, or leave it out of its classes.",
    degrees="Convert the headings in the labels to radians.",
    floating_half="Write the centre of the boxes as their position; the gap is half a box height.",
    sunk_half="Write the centre of the boxes as their position; z is that of the bottom.",
    turns=("Add 90 degrees to the headings in the labels, or subtract them.", *OWN.turns[1:]),
)


def words_for(data_set: DataSet) -> LabelWords:
    """Return the fixes for the labels of a data set."""
    if isinstance(data_set, OwnDataSet):
        return OWN
    return CAMERA if data_set.evaluation in (None, "kitti") else LIDAR


def in_description(finding: Finding, described: ScanTransform) -> Finding:
    """Return a finding with a fix in ``dataset.yaml``, whose transform is ``described``."""
    if finding.transform is None:
        return finding
    mended = described.then(finding.transform) if finding.check != "intensity" else finding.transform
    lines = {
        "scans.scale": mended.scale if mended.scale != described.scale else None,
        "scans.axes": mended.axes if mended.axes != described.axes else None,
        "scans.sensor_height_m": finding.transform.sensor_height_m,
        "scans.intensity_scale": finding.transform.intensity_scale,
    }
    settings = ", ".join(f"{name}: {value}" for name, value in lines.items() if value is not None)
    fix = f"Set {settings} in dataset.yaml, or measure it with `perceive init --force`."
    return replace(finding, fix=fix, transform=None)
