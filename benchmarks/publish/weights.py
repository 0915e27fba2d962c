"""Tables of the model cards: what the shipped weights find."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.publish.text import Block, Text, Values, markdown_table

#: Rows of a card: name in the results, and how the card calls it.
_KITTI = (
    ("of 80 frames", "of 80 frames"),
    ("pointpillars-kitti", "**shipped** (seed 2)"),
    ("pointpillars-kitti, seed 0", "seed 0"),
    ("pointpillars-kitti, seed 1", "seed 1"),
    ("pointpillars-kitti-dense", "dense baseline (seed 0)"),
)
_ANYWHERE = (
    ("pointpillars-anywhere", "**shipped**"),
    ("pointpillars-kitti", "`pointpillars-kitti`"),
)


def car(values: Values, name: str, place: str, kind: str = "3d") -> str:
    """AP40 of cars at the three difficulties."""
    return " / ".join(f"{level:.1f}" for level in values["cases"][name][place]["AP40"]["Car"][kind])


def _rows(values: Values, rows: Sequence[tuple[str, str]]) -> list[list[str]]:
    places = (("val", "3d"), ("val", "bev"), ("apart", "3d"))
    return [[words, *(car(values, name, place, kind) for place, kind in places)] for name, words in rows]


def _heads(values: Values) -> list[str]:
    frames = values["frames"]
    return [
        "weights",
        f"Car 3D, {frames['val']} frames",
        "Car BEV",
        f"Car 3D, {frames['apart']} of them apart",
    ]


def _kitti(values: Values) -> str:
    return markdown_table(_heads(values), _rows(values, _KITTI))


def _anywhere(values: Values) -> str:
    found = {name: values["cases"][name]["nuScenes"]["AP"] for name, _ in _ANYWHERE}
    rows = [
        [*row, f"{found[name]['car']:.3f}", f"{found[name]['pedestrian']:.3f}"]
        for (name, _), row in zip(_ANYWHERE, _rows(values, _ANYWHERE), strict=True)
    ]
    return markdown_table([*_heads(values), "nuScenes car", "nuScenes pedestrian"], rows)


def _measured(values: Values) -> str:
    rows = [
        [
            f"Car, IoU 0.7, {words}",
            *(car(values, name, place) for name in ("pointpillars-kitti", "pointpillars-kitti-dense")),
        ]
        for place, words in (
            ("val", f"{values['frames']['val']} frames"),
            ("apart", f"{values['frames']['apart']} of them apart"),
        )
    ]
    return markdown_table(["3D AP40, easy / moderate / hard", "sparse", "dense baseline"], rows)


def _folds(values: Values) -> str:
    def triple(found: Sequence[float]) -> str:
        return " / ".join(f"{level:.1f}" for level in found)

    rows = []
    for name, row in values["AP40"].items():
        scores, choice = values["calibration"][name], values["thresholds"][name]
        rows.append(
            [
                name,
                triple(row["3d"]),
                triple(row["bev"]),
                f"{choice['found']} of {choice['found'] + choice['missed']} / {choice['false']}",
                f"{scores['ECE']:.3f}, {scores['ECE_fitted']:.3f}",
                f"{scores['false_per_frame']:.2f}, {scores['false_per_frame_fitted']:.2f}",
            ]
        )
    heads = [
        f"{values['frames']} frames, {values['settings']['folds']} folds",
        "3D AP40",
        "BEV AP40",
        "found / false as reported",
        "calibration error before, after",
        "false from 0.3 on, a frame",
    ]
    return markdown_table(heads, rows)


BLOCKS: dict[str, Block] = {
    "weights": Text(("weights-cpu",), _kitti),
    "folds": Text(("folds",), _folds),
    "anywhere": Text(("weights-cpu",), _anywhere),
    "weights-measured": Text(("weights-cpu",), _measured),
}
