"""Published blocks of other detector architectures: attention, labels, dilation, neck."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.publish.text import Column, Table, Text, Values, markdown_table, milliseconds

_PARTS = {"val": "26 development frames", "train_more": "87 other frames"}
_SIDES = {"plain": "as shipped", "attention": "with attention", "gained": "gained"}


def _rows(values: Values) -> Iterator[tuple[Values, str, Values]]:
    """Part, side and measures: mean, least and most over the trainings."""
    for case in values["cases"]:
        if "gained" in case:
            for side, row in {**case["sides"], "gained": case["gained"]}.items():
                yield case, side, row


def _measure(name: str, digits: int) -> Callable[[tuple[Values, str, Values]], str]:
    def shown(row: tuple[Values, str, Values]) -> str:
        case, side, measures = row
        sign = "+" if side == "gained" else ""
        mean, least, most = (f"{measures[name][key]:{sign}.{digits}f}" for key in ("mean", "least", "most"))
        return mean if case["seeds"] == 1 else f"{mean} ({least} to {most})"

    return shown


_PRECISION = Table(
    "backbone_attention-cuda",
    rows=lambda values: list(_rows(values)),
    columns=[
        Column("frames", lambda row: _PARTS.get(row[0]["part"], row[0]["part"])),
        Column("detector", lambda row: _SIDES[row[1]]),
        Column("Car 3D easy", _measure("car_3d_easy", 1)),
        Column("moderate", _measure("car_3d_moderate", 1)),
        Column("hard", _measure("car_3d_hard", 1)),
        Column("BEV moderate", _measure("car_bev_moderate", 1)),
        Column("loss", _measure("loss", 3)),
    ],
)


def _times(*results: Values | None) -> str:
    found = [values for values in results if values is not None]
    heads = [(values["environment"]["hardware"]["gpu"] or {"model": "CPU"})["model"] for values in found]
    names = list(dict.fromkeys(name for values in found for name in values["frame"]["sides"]))
    rows = []
    for name in names:
        sides = (values["frame"]["sides"].get(name) for values in found)
        rows.append([name, *("" if side is None else milliseconds(side["median_ms"]) for side in sides)])
    ratios = [f"{values['frame']['ratio']['median']:.2f}" for values in found]
    rows.append(["attention over plain, in pairs", *ratios])
    return markdown_table(["median ms per frame", *heads], rows)


_NAMES = {"plain": "as shipped"}


def _architectures(values: Values) -> str:
    rows = []
    for case in (case for case in values["cases"] if "gained" in case):
        for side, row in case["sides"].items():
            gained = case["gained"].get(side)
            rows.append(
                [
                    _PARTS.get(case["part"], case["part"]),
                    _NAMES.get(side, side),
                    _spread(row["car_3d_moderate"]),
                    "" if gained is None else _spread(gained["car_3d_moderate"], "+"),
                    _spread(row["car_bev_moderate"]),
                    _spread(row["pedestrian_3d_moderate"]),
                    _spread(row["cyclist_3d_moderate"]),
                ]
            )
    heads = ["frames", "detector", "Car 3D moderate", "gained", "Car BEV", "Pedestrian 3D", "Cyclist 3D"]
    return markdown_table(heads, rows)


def _spread(row: Values, sign: str = "") -> str:
    mean, least, most = (f"{row[key]:{sign}.1f}" for key in ("mean", "least", "most"))
    return f"{mean} ({least} to {most})"


def _cost(values: Values) -> str:
    (training,) = (case["sides"] for case in values["cases"] if "gained" not in case)
    rows = [
        [
            _NAMES.get(side, side),
            f"{row['parameters']:,}",
            f"{row['step_ms']:.0f}",
            milliseconds(values["frame"]["sides"][side]["median_ms"]),
        ]
        for side, row in training.items()
    ]
    return markdown_table(["detector", "parameters", "ms per step", "ms per frame"], rows)


BLOCKS: dict[str, Callable[[], str]] = {
    "backbone-attention": _PRECISION,
    "architectures": Text(("architectures-cuda",), _architectures),
    "architectures-cost": Text(("architectures-cuda",), _cost),
    "backbone-attention-times": Text(("backbone_attention-cuda", "backbone_attention-cpu"), _times),
}
