"""What to do about labels, in the words of the files that they stand in."""

from __future__ import annotations

from dataclasses import dataclass, replace

from perception.data import DataSet
from perception.data.own import OwnDataSet
from perception.io.transform import ScanTransform
from perception.scans.finding import Finding


@dataclass(frozen=True)
class LabelWords:
    """Fixes by what is wrong.

    Attributes:
        empty: there is no box at all.
        rename: a name of a class is to be another one; formatted with ``name`` and ``meant``.
        degrees: headings are no radians.
        order: sizes cannot be.
        swapped: sizes are interchanged.
        look: some sizes are odd.
        other_frame: boxes float by some distance.
        floating_half, sunk_half: boxes float, or are sunk, by half their height.
        floating_alone: some boxes float or are sunk.
        turns: headings are those of :data:`~perception.doctor.label_facts.TURNS`.
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


#: Labels in the frame of a camera, as KITTI's.
CAMERA = LabelWords(
    empty="Check that the labels were exported; a line is 'Car 0 0 alpha left top right bottom"
    " height width length x y z rotation_y'.",
    rename="Write {meant} for {name} in the labels: class names are compared letter by letter.",
    degrees="Convert rotation_y (and alpha) to radians in -pi..pi.",
    order="Write height, width and length in metres, in this order.",
    swapped="A KITTI label holds height, width, length, in this order.",
    look="Look at these boxes; labels are height, width, length in metres.",
    other_frame="Check the calibration's translation and the sensor's height: labels and scans differ in"
    " origin.",
    floating_half="Half a box height: write y of the bottom centre, not of the centre (camera y points"
    " down).",
    sunk_half="Half a box height: y must be the bottom centre; it seems to have been shifted twice.",
    floating_alone="Look at these frames; y is the bottom of the object in the camera frame.",
    turns=(
        "Add or subtract pi/2: rotation_y is 0 for an object that faces right (-y of the LiDAR).",
        "Yaw is counter-clockwise from +x in the LiDAR frame; rotation_y is clockwise seen from above.",
        "Write rotation_y = -yaw - pi/2, or let perception.data.objects_from_boxes write the labels.",
    ),
)
#: Labels of a folder of one's own data.
OWN = LabelWords(
    empty="Check that the labels were exported, and that classes in dataset.yaml leave not all out (null).",
    rename="Write {name}: {meant} under classes in dataset.yaml, or {name}: null to leave these boxes out.",
    degrees="Set labels.angles: degrees in dataset.yaml.",
    order="Write length, width and height, in this order, in the unit of the scans.",
    swapped="A box is x, y, z, length along its heading, width, height, yaw.",
    look="Look at these boxes; sizes are length, width, height in the unit of the scans.",
    other_frame="Labels and scans differ in origin: export both in the frame of the sensor.",
    floating_half="Half a box height: set labels.z: centre in dataset.yaml, which has bottom.",
    sunk_half="Half a box height: set labels.z: bottom in dataset.yaml.",
    floating_alone="Look at these boxes, whether they stand on something.",
    turns=(
        "Set labels.turn_deg: 90 (or -90, by which end is the front) in dataset.yaml.",
        "Yaw is counter-clockwise seen from above: write it with the other sign.",
        "Headings seem to be rotation_y of a camera: write yaw = -rotation_y - pi/2.",
    ),
)


def words_for(data_set: DataSet) -> LabelWords:
    """The words for the labels of a data set."""
    return OWN if isinstance(data_set, OwnDataSet) else CAMERA


def in_description(finding: Finding, described: ScanTransform) -> Finding:
    """A finding that ``dataset.yaml`` mends, with the lines that do.

    Args:
        finding: of scans as the description has them read.
        described: how that is.
    """
    if finding.transform is None:
        return finding
    mended = described.then(finding.transform) if finding.check != "intensity" else finding.transform
    lines = {
        "scans.scale": mended.scale if mended.scale != described.scale else None,
        "scans.axes": mended.axes if mended.axes != described.axes else None,
        "scans.sensor_height_m": finding.transform.sensor_height_m,
        "scans.intensity_scale": finding.transform.intensity_scale,
    }
    told = ", ".join(f"{name}: {value}" for name, value in lines.items() if value is not None)
    fix = f"Set {told} in dataset.yaml, or let `perceive init --force` measure it."
    return replace(finding, fix=fix, transform=None)
