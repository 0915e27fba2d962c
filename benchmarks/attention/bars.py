"""The figures that the attention was to reach, from what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def bars(
    cases: Sequence[dict[str, Any]],
    selection: Sequence[dict[str, Any]],
    encoder: dict[str, Any] | None,
) -> dict[str, Any]:
    """The least of each speed-up with the case that has it; ``None`` where nothing was measured.

    Args:
        cases: measured cells. Aims for a sparsity of 90 % look at random blocks of 128, bfloat16.
        selection: measured cells of selection.
        encoder: what was measured of it.
    """
    main = [row for row in cases if _is_main(row)]
    sparse = [row for row in main if row["target"] == 0.1]
    whole = [row for row in cases if row["density"] == 1.0]
    half = [row for row in cases if row["density"] <= 0.5]
    return {
        "cases": len(cases),
        "disagreeing": [row["key"] for row in (*cases, *selection) if not row["agrees"]],
        "sparse_4096_forward": _least([row for row in sparse if row["length"] == 4096], "over_dense", False),
        "sparse_long_forward": _least([row for row in sparse if row["length"] >= 16384], "over_dense", False),
        "sparse_long_both": _least([row for row in sparse if row["length"] >= 16384], "over_dense", True),
        "over_flex_forward": _least(half, "over_flex", False),
        "over_flex_both": _least(half, "over_flex", True),
        "over_fa4_forward": _least(half, "over_fa4", False),
        "over_fa4_both": _least(half, "over_fa4", True),
        "over_flash_forward": _least(whole, "over_flash", False),
        "over_flash_both": _least(whole, "over_flash", True),
        "break_even": {
            f"{keep:g}": {
                "device": break_even([row for row in selection if row["target"] == keep], "over_dense"),
                "wall": break_even([row for row in selection if row["target"] == keep], "wall_over_dense"),
            }
            for keep in sorted({row["target"] for row in selection})
        },
        "encoder": None
        if encoder is None
        else {name: ratio["median"] for name, ratio in encoder["over_dense"].items()},
    }


def break_even(rows: Sequence[dict[str, Any]], field: str) -> dict[str, Any]:
    """Length from which selection and attention win, interpolated on the logarithms of length and speed-up.

    Args:
        rows: cells of one share, in any order.
        field: the speed-up.

    Returns:
        ``length`` and ``found``: ``"between"`` two lengths, ``"below"`` the first (which is given) or
        ``"never"`` (None).
    """
    points = sorted((math.log(row["length"]), math.log(row[field]["median"])) for row in rows)
    losing = [index for index, (_, gain) in enumerate(points) if gain < 0]
    if not losing:
        found = "below" if points else "never"
        return {"length": round(math.exp(points[0][0])) if points else None, "found": found}
    last = losing[-1]
    if last + 1 == len(points):
        return {"length": None, "found": "never"}
    (low, loss), (high, gain) = points[last], points[last + 1]
    return {"length": round(math.exp(low + (high - low) * loss / (loss - gain))), "found": "between"}


def _is_main(row: dict[str, Any]) -> bool:
    return (row["pattern"], row["block_size"], row["dtype"]) == ("random", 128, "bfloat16")


def _least(rows: Sequence[dict[str, Any]], field: str, gradient: bool) -> dict[str, Any] | None:
    found = [row for row in rows if row["gradient"] == gradient and row[field] is not None]
    if not found:
        return None
    worst = min(found, key=lambda row: row[field]["median"])
    return {"least": worst[field]["median"], "case": worst["key"], "cases": len(found)}
