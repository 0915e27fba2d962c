"""The picture of block-sparse attention: speed-up over dense against density."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from benchmarks.lib.environment import device_name
from benchmarks.lib.pictures import save_picture

_PASSES = {False: "forward", True: "forward and backward"}


def draw(values: dict[str, Any], path: Path) -> None:
    """Draw one curve a length and one panel a head size and pass, from the cells with random blocks.

    Crosses are FlexAttention, where it was measured; the grey line is a speed-up of one over the density.

    Args:
        values: result of ``benchmarks.attention.sparse_attention``.
        path: PNG to write.
    """
    block_size = max((row["block_size"] for row in values["cases"] if row["pattern"] == "random"), default=0)
    cases = [
        row
        for row in values["cases"]
        if row["pattern"] == "random"
        and row["block_size"] == block_size
        and row["dtype"] in ("bfloat16", "float32")
        and row["over_dense"] is not None
    ]
    panels = sorted({(row["gradient"], row["dim"]) for row in cases})
    lengths = sorted({row["length"] for row in cases})
    shades = matplotlib.colormaps["viridis"]
    colours = {length: shades(0.9 * index / max(1, len(lengths) - 1)) for index, length in enumerate(lengths)}
    count = max(1, len(panels))
    figure = Figure(figsize=(3.9 * count + 1.4, 4.3))
    axes = figure.subplots(1, count, sharey=True, squeeze=False)
    handles: dict[str, Any] = {}
    for axis, (gradient, dim) in zip(axes[0], panels, strict=False):
        chosen = [row for row in cases if (row["gradient"], row["dim"]) == (gradient, dim)]
        for length in lengths:
            rows = sorted(
                (row for row in chosen if row["length"] == length), key=lambda row: float(row["density"])
            )
            if not rows:
                continue
            style = {"color": colours[length], "markersize": 4}
            ours = [row["over_dense"]["median"] for row in rows]
            (line,) = axis.plot([row["density"] for row in rows], ours, marker="o", linewidth=1.4, **style)
            handles[f"{length:,}"] = line
            flex = [
                (row["density"], row["over_dense"]["median"] / row["over_flex"]["median"])
                for row in rows
                if row["over_flex"] is not None
            ]
            if flex:
                (crosses,) = axis.plot(
                    *zip(*flex, strict=True), marker="x", linewidth=0.8, linestyle=":", **style
                )
                handles.setdefault("FlexAttention", crosses)
        (limit,) = axis.plot([0.05, 1.0], [20.0, 1.0], color="grey", linewidth=0.8)
        handles.setdefault("1 / density", limit)
        axis.axhline(1, color="grey", linewidth=0.5)
        axis.set(xscale="log", yscale="log", xlabel="density", title=f"{_PASSES[gradient]}, head size {dim}")
        axis.set_xticks([0.05, 0.1, 0.25, 0.5, 1.0], ["0.05", "0.1", "0.25", "0.5", "1"])
        axis.set_yticks([0.5, 1, 2, 5, 10, 20], ["0.5", "1", "2", "5", "10", "20"])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("times as fast as dense")
    figure.suptitle(
        f"Block-sparse attention against dense, random blocks of {block_size}, {device_name(values)}",
        fontsize=11,
    )
    figure.tight_layout(rect=(0, 0, 1 - 1.4 / (3.9 * count + 1.4), 1))
    handles |= {name: handles.pop(name) for name in ("FlexAttention", "1 / density") if name in handles}
    figure.legend(list(handles.values()), list(handles), title="length", loc="center right", fontsize=8)
    save_picture(figure, path, dpi=110)
