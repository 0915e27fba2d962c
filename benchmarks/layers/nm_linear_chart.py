"""The picture of the 2:4 layers: speed-up over dense against the number of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_PANELS = ("bfloat16", "float16", "int8")
#: Row counts that fit no tile have a table of their own.
_ODD_ROWS = (3, 100, 1001, 4097)


def draw(values: dict[str, Any], path: Path) -> None:
    """Draw one curve per weight and one panel per dtype; the curve is 1 where dense is chosen.

    Args:
        values: result of ``benchmarks.layers.nm_linear``.
        path: PNG to write.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = [row for row in values["cases"] if row["model"] != "odd" and row["rows"] not in _ODD_ROWS]
    panels = [name for name in _PANELS if any(row["dtype"] == name for row in cases)]
    weights = sorted({(row["out"], row["columns"]) for row in cases}, key=lambda key: key[0] * key[1])
    shades = matplotlib.colormaps["viridis"]
    colours = {key: shades(0.95 * index / max(1, len(weights) - 1)) for index, key in enumerate(weights)}
    count = max(1, len(panels))
    figure, axes = pyplot.subplots(1, count, figsize=(4.6 * count + 1.8, 4.4), sharey=True, squeeze=False)
    handles = {}
    for axis, dtype in zip(axes[0], panels, strict=False):
        for key in weights:
            points = sorted(
                (row["rows"], row["over_dense"]["median"])
                for row in cases
                if row["dtype"] == dtype and (row["out"], row["columns"]) == key
            )
            if points:
                rows, ratios = zip(*points, strict=True)
                (handles[key],) = axis.plot(
                    rows, ratios, marker="o", markersize=3, linewidth=1.3, color=colours[key]
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
    hardware = values["environment"]["hardware"]
    device = (hardware.get("gpu") or hardware.get("cpu") or {}).get("name") or values["settings"]["device"]
    figure.suptitle(f"2:4 linear layers against dense, both in a CUDA graph, {device}", fontsize=11)
    figure.tight_layout(rect=(0, 0, 1 - 1.5 / (4.6 * count + 1.8), 1))
    shown = [key for key in weights if key in handles]
    figure.legend(
        [handles[key] for key in shown],
        [f"{out} x {columns}" for out, columns in shown],
        title="out x in",
        loc="center right",
        fontsize=8,
    )
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)
