"""The picture of the 2:4 layers: speed-up over dense against the number of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.lib.environment import device_name
from benchmarks.lib.pictures import save_picture

_PANELS = ("bfloat16", "float16", "int8")
#: Weights that are drawn, as (out, in); the tables have all.
_COLOURS = {
    (96, 864): "#5b5b5b",
    (768, 3072): "#0072b2",
    (1024, 4096): "#56b4e9",
    (4096, 4096): "#009e73",
    (4096, 14336): "#d55e00",
    (8192, 8192): "#cc79a7",
}
#: Row counts that fit no tile have a table of their own.
_ODD_ROWS = (3, 100, 1001, 4097)


def draw(values: dict[str, Any], path: Path) -> None:
    """Draw one curve per weight of :data:`_COLOURS` and one panel per dtype; it is 1 where dense is chosen.

    Args:
        values: result of ``benchmarks.layers.nm_linear``.
        path: PNG to write.
    """
    cases = [
        row
        for row in values["cases"]
        if (row["out"], row["columns"]) in _COLOURS and row["rows"] not in _ODD_ROWS
    ]
    panels = [name for name in _PANELS if any(row["dtype"] == name for row in cases)]
    count = max(1, len(panels))
    figure = Figure(figsize=(4.6 * count + 1.8, 4.4))
    axes = figure.subplots(1, count, sharey=True, squeeze=False)
    handles = {}
    for axis, dtype in zip(axes[0], panels, strict=False):
        for key, colour in _COLOURS.items():
            points = sorted(
                (row["rows"], row["over_dense"]["median"])
                for row in cases
                if row["dtype"] == dtype and (row["out"], row["columns"]) == key
            )
            if points:
                rows, ratios = zip(*points, strict=True)
                (handles[key],) = axis.plot(
                    rows, ratios, marker="o", markersize=3, linewidth=1.3, color=colour
                )
        axis.axhline(1, color="grey", linewidth=0.8)
        axis.set_xscale("log", base=2)
        ticks = [1, 8, 64, 512, 4096, 65536]
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
        axis.set_xlim(0.8, 80_000)
        axis.set_xlabel("rows of the input")
        axis.set_title(dtype)
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("times as fast as dense")
    figure.suptitle(
        f"2:4 linear layers against dense, both in a CUDA graph, {device_name(values)}", fontsize=11
    )
    figure.tight_layout(rect=(0, 0, 1 - 1.5 / (4.6 * count + 1.8), 1))
    shown = [key for key in _COLOURS if key in handles]
    figure.legend(
        [handles[key] for key in shown],
        [f"{out} x {columns}" for out, columns in shown],
        title="out x in",
        loc="center right",
        fontsize=8,
    )
    save_picture(figure, path, dpi=110)
