"""Published blocks of memories of real drives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.publish.text import Column, Table, Values

_GROUPS = {
    "labels": "labels, {drives} drives there and back",
    "labels, beside": "the same, 0.5 m to the side on the way back",
    "our detector": "our detector, {drives} drives",
    "CenterPoint": "CenterPoint, {drives} drive",
    "without poses": "labels without poses, {drives} sequences",
}
_SIDES = {"everything": "every box", "latest": "newest boxes"}
Row = tuple[str, str, Values]


def _rows(values: Values) -> list[Row]:
    """Group, side and figures; the group is named in the first row of it."""
    drives = {group: sum(case["group"] == group for case in values["cases"]) for group in values["summary"]}
    found = []
    for group, sides in values["summary"].items():
        for side, figures in sides.items():
            first = side == next(iter(sides))
            words = f"{_GROUPS[group].format(drives=drives[group])}: {figures['things']} objects"
            found.append((words if first else "", _SIDES.get(side, side), figures))
    return found


def _figure(name: str) -> Callable[[Any], Any]:
    return lambda row: row[2][name]


def _of(pair: list[int]) -> str:
    return f"{pair[0]}/{pair[1]}" if pair[1] else "–"


def _answers(kind: str) -> Callable[[Row], Any]:
    return lambda row: row[2]["questions"][kind]


def _one(row: Row) -> Any:
    return None if row[2]["one"] is None else 100 * row[2]["one"]


_KNOWN = Table(
    "memory_drives-cpu",
    rows=_rows,
    columns=[
        Column("boxes of", lambda row: row[0]),
        Column("memory", lambda row: row[1]),
        Column("memories", _figure("memories"), ",d"),
        Column("one per object, %", _one, ".1f"),
        Column("too many", _figure("split"), ",d"),
        Column("joined", _figure("joined"), "d"),
        Column("lost", _figure("lost"), "d"),
        Column("of nothing", _figure("false"), ",d"),
        Column("error, m", _figure("error_median_m"), ".3f", "–"),
        Column("95 %, m", _figure("error_95_m"), ".3f", "–"),
        Column("cars counted/there", _figure("counted"), _of),
        Column("parked", _answers("parked"), _of),
        Column("last seen", _answers("last seen"), _of),
        Column("changed", _answers("changed"), _of),
    ],
)

_COST = Table(
    "memory_drives-cpu",
    rows=_rows,
    columns=[
        Column("boxes of", lambda row: row[0]),
        Column("memory", lambda row: row[1]),
        Column("kB per drive", _figure("kilobytes"), ",.0f", "in memory only"),
        Column("ms per frame to remember", _figure("remembering_ms_a_frame"), ".2f"),
        Column("ms per question", _figure("question_ms"), ".2f"),
    ],
)


def _located(values: Values) -> list[Row]:
    """Group, side and figures with the number of queries; the group is named in the first row of it."""
    queries: dict[str, int] = {}
    for case in values["cases"]:
        queries[case["group"]] = queries.get(case["group"], 0) + case["queries"]
    return [
        (
            f"{group}: {queries[group]} scans" if side == next(iter(sides)) else "",
            side,
            {**figures, "queries": queries[group]},
        )
        for group, sides in values["summary"].items()
        for side, figures in sides.items()
    ]


def _percent(name: str) -> Callable[[Row], Any]:
    return lambda row: 100 * row[2][name] / row[2]["queries"]


def _wrong(row: Row) -> float:
    """Share of wrong answers; published files leave out fields of this name."""
    figures = row[2]
    share: float = 100 * (figures["queries"] - figures["right"] - figures["refused"]) / figures["queries"]
    return share


_LOCATE = Table(
    "locate-cpu",
    rows=_located,
    columns=[
        Column("queries", lambda row: row[0]),
        Column("method", lambda row: row[1]),
        Column("right, %", _percent("right"), ".1f"),
        Column("refused, %", _percent("refused"), ".1f"),
        Column("wrong, %", _wrong, ".1f"),
        Column(
            "wrong elsewhere, %",
            lambda row: 100 - 100 * row[2]["elsewhere"][0] / max(row[2]["elsewhere"][1], 1),
            ".2f",
        ),
    ],
)

_QUESTIONS = {
    "seconds later": "still there, seconds later (real drives)",
    "next day": "still there, the next day (towns)",
    "been here": "been here (real drives and towns)",
}


def _covered(values: Values) -> list[tuple[str, Values]]:
    """Question and figures by confidence; the question is named in its first row."""
    return [
        (_QUESTIONS[question] if row is rows[0] else "", row)
        for question, rows in values["summary"].items()
        for row in rows
    ]


def _covered_drives(values: Values) -> list[tuple[str, Values]]:
    """Question with the drive, and figures at a confidence of 90 %."""
    return [
        (f"{case['question']}: {case['drive']}", row)
        for case in values["cases"]
        for row in case["rows"]
        if row["confidence"] == 0.9
    ]


def _share(side: str, what: str) -> Callable[[tuple[str, Values]], Any]:
    return lambda row: 100 * row[1][side][what] / row[1][side]["asked"] if row[1][side]["asked"] else None


_COVERED = [
    Column("answers, available", lambda row: f"{row[1]['available']:,} of {row[1]['asked']:,}"),
    Column("covered, %", _share("all", "covered"), ".1f", "–"),
    Column("if it is yes", _share("yes", "covered"), ".1f", "–"),
    Column("if it is no", _share("no", "covered"), ".1f", "–"),
    Column("unknown, %", _share("all", "unknown"), ".1f", "–"),
]
_COVERAGE = Table(
    "coverage-cpu",
    rows=_covered,
    columns=[
        Column("question", lambda row: row[0]),
        Column("confidence, %", lambda row: 100 * row[1]["confidence"], ".0f"),
        *_COVERED,
    ],
)
_COVERAGE_DRIVES = Table(
    "coverage-cpu",
    rows=_covered_drives,
    columns=[Column("question and drive, at 90 %", lambda row: row[0]), *_COVERED],
)


def _sides(values: Values) -> list[tuple[str, str, Values]]:
    """Study, side and its figures; the study is named in its first row."""
    found = []
    for study in values["studies"]:
        for side, figures in study["sides"].items():
            first = side == next(iter(study["sides"]))
            few, many = study["labels_at_a_time"]
            words = f"{study['name']}: {study['boxes']:,} boxes, {few} to {many} labels at a time"
            found.append((words if first else "", side, figures))
    return found


def _shift(row: Values) -> str | None:
    aligned = row.get("aligned")
    if aligned is None:
        return "refused" if row.get("refused") else None
    x, y = aligned["shift_m"]
    return f"({x:.2f}, {y:.2f}), {aligned['turn_deg']:.1f}°"


def _clock(row: Values) -> float | None:
    return row["aligned"]["clock_s"] if row.get("aligned") else None


def _disturbances(values: Values) -> list[Values]:
    """Disturbances; the source of the boxes is named in its first row."""
    rows, last = [], ""
    for row in values["disturbed"]:
        rows.append({**row, "of": row["boxes"] if row["boxes"] != last else ""})
        last = row["boxes"]
    return rows


_OBSERVERS = Table(
    "two_observers-cpu",
    rows=_sides,
    columns=[
        Column("boxes of", lambda row: row[0]),
        Column("memory", lambda row: row[1]),
        Column("memories", _figure("memories"), ",d"),
        Column("objects", _figure("objects"), ",d"),
        Column("seen by both", lambda row: row[2]["both"] if row[2]["before"] else None, "d"),
        Column("precision", _figure("precision"), ".3f"),
        Column("recall", _figure("recall"), ".3f"),
        Column("doubled", _figure("doubled"), "d"),
        Column("error, m", _figure("error_m"), ".2f"),
        Column("aligned by", lambda row: _shift(row[2])),
        Column("clock, s", lambda row: _clock(row[2]), "+.3f"),
    ],
)

_DISTURBED = Table(
    "two_observers-cpu",
    rows=_disturbances,
    columns=[
        Column("boxes of", "of"),
        Column("disturbed", "name"),
        Column("precision, aligned", ("with", "precision"), ".3f"),
        Column("recall", ("with", "recall"), ".3f"),
        Column("doubled", ("with", "doubled"), "d"),
        Column("seen by both", ("with", "both"), "d"),
        Column("aligned by", _shift),
        Column("clock, s", _clock, "+.3f"),
        Column("precision, not aligned", ("without", "precision"), ".3f"),
        Column("recall", ("without", "recall"), ".3f"),
        Column("doubled", ("without", "doubled"), "d"),
    ],
)

_WAYS = Table(
    "remembered_cars-cpu",
    rows=lambda values: [way | {"of": values["labelled"]} for way in values["ways"]],
    columns=[
        Column("weights", "weights"),
        Column("way", "way"),
        Column("remembered", "remembered"),
        Column("of labelled ones", lambda row: f"{row['labelled']} of {row['of']}"),
        Column("double", "double"),
        Column("unlabelled", "unlabelled"),
        Column("nothing", "nothing"),
    ],
)


def _each_car(values: Values) -> list[Values]:
    """The cars of the first weights, linked by the import."""
    way = next(each for each in values["ways"] if each["way"].endswith("linked by the import"))
    cars: list[Values] = sorted(way["cars"], key=lambda car: car["place"][0])
    return cars


def _explanation(car: Values) -> str:
    if car["label"] is not None:
        return f"{car['what']}: label {car['label']}, {car['apart_m']:.2f} m away"
    return (
        f"{car['what']}: {car['box_points']} points in one scan, {car['box_extent_m']:.1f} m wide and"
        f" {car['box_height_m']:.1f} m high"
    )


_CARS = Table(
    "remembered_cars-cpu",
    rows=_each_car,
    columns=[
        Column("at, m", lambda car: f"({car['place'][0]:.1f}, {car['place'][1]:.1f})"),
        Column("", "kind"),
        Column("observations", "count"),
        Column("mean score", "confidence", ".2f"),
        Column("height, m", "height_m", ".2f"),
        Column("what it is", _explanation),
    ],
)


BLOCKS: dict[str, Callable[[], str]] = {
    "coverage": _COVERAGE,
    "coverage-drives": _COVERAGE_DRIVES,
    "locate": _LOCATE,
    "memory-drives": _KNOWN,
    "memory-drives-cost": _COST,
    "two-observers": _OBSERVERS,
    "two-observers-disturbed": _DISTURBED,
    "remembered-cars": _WAYS,
    "remembered-cars-each": _CARS,
}
