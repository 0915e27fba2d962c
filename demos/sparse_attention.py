"""Draw the patterns of block-sparse attention, then time it against dense attention on this GPU or CPU.

Each pattern becomes a PNG, and all of them one overview. The tokens of the pattern "radius" are points: of a
file (.bin, .npy, .pcd, .ply) or of a made-up street, sorted along a Z curve so that neighbours share blocks.
The timing compares random blocks with torch's scaled_dot_product_attention, called eagerly, for --length and
its half and quarter.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attention_patterns import PATTERNS, Setting, read_points, sampled
from attention_timing import CHECKED, DTYPES, MODES, timing_table, timings, verdict
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from perception.errors import DataError
from sparse_core.attention import BlockPattern, from_distance
from sparse_core.attention.patterns.picture import pattern_raster
from sparse_core.commands import failure, reported_file_errors
from sparse_core.errors import ImplementationError
from sparse_core.files import replacing

#: The longest cloud that is also taken unsorted.
LONGEST_UNSORTED = 8192


def draw(
    setting: Setting, names: list[str], folder: Path, console: Console
) -> tuple[dict[str, BlockPattern], list[Path]]:
    """The patterns and their pictures, the overview last."""
    patterns, pictures = {}, []
    with Progress(console=console, transient=True) as progress:
        for name in progress.track(names, description="drawing"):
            pattern = patterns[name] = PATTERNS[name].build(setting)
            title = f"{PATTERNS[name].title}: {100 * pattern.block_density:.3g} % of the blocks"
            pictures.append(pattern.picture(folder / f"{name}.png", title=title))
    return patterns, [*pictures, overview(patterns, folder / "overview.png")]


def overview(patterns: dict[str, BlockPattern], path: Path) -> Path:
    """All patterns beside each other as a PNG."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

    columns = min(3, len(patterns))
    rows = -(-len(patterns) // columns)
    figure = Figure(figsize=(3.1 * columns, 3.3 * rows), dpi=100, layout="constrained")
    shades = LinearSegmentedColormap.from_list("share", ("#9ecae1", "#4292c6", "#1f5fa8", "#08306b"))
    for place, (name, pattern) in enumerate(patterns.items()):
        axes = figure.add_subplot(rows, columns, place + 1)
        share = pattern_raster(pattern, pixels=256).share
        axes.imshow(
            share.masked_fill(share == 0, math.nan).numpy(),
            cmap=shades,
            vmin=0,
            vmax=1,
            interpolation="nearest",
        )
        axes.set_title(
            f"{PATTERNS[name].title}, {100 * pattern.block_density:.3g} %",
            loc="left",
            fontsize=10,
            color="#1f2933",
        )
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color("#b8c1cc")
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:] or "png")
    return path


def pattern_table(patterns: dict[str, BlockPattern]) -> Table:
    """Numbers about the patterns."""
    table = Table("pattern", box=None, pad_edge=False)
    for heading in ("tokens", "density %", "blocks %", "blocks a row", "index KiB"):
        table.add_column(heading, justify="right")
    for name, pattern in patterns.items():
        found = pattern.describe()
        table.add_row(
            name,
            f"{found.query_length:,}",
            f"{100 * found.density:.2f}",
            f"{100 * found.block_density:.2f}",
            f"{found.shortest_row} | {found.median_row} | {found.longest_row}",
            f"{found.nbytes / 1024:,.1f}",
        )
    return table


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--device", help="cpu or cuda; by default cuda where there is one")
    add("--length", type=int, help="tokens; default 2048 on a CPU, 16384 on a GPU")
    add("--batch", type=int, default=1)
    add("--heads", type=int, help="default 4 on a CPU, 16 on a GPU")
    add("--dim", type=int, default=64, help="of a head: a multiple of 8 from 16 to 256")
    add("--block-size", type=int, default=64, help="a multiple of 16 from 16 to 128")
    add("--dtype", choices=DTYPES, help="default float32 on a CPU, bfloat16 on a GPU")
    add(
        "--patterns",
        nargs="+",
        choices=PATTERNS,
        metavar="NAME",
        default=list(PATTERNS),
        help=" ".join(PATTERNS),
    )
    add("--densities", type=float, nargs="+", default=[1.0, 0.5, 0.25, 0.1], help="to time, in (0, 1]")
    add("--points", type=Path, metavar="FILE", help="point cloud of the pattern radius")
    add("--radius", type=float, default=2.0, metavar="METRES", help="of the pattern radius")
    add("--out", type=Path, default=Path("out/sparse_attention"))
    add("--no-timing", action="store_true", help="draw only")
    add("--json", action="store_true", help="print the results as JSON and nothing else")
    options = parser.parse_args()
    _fill_in(options, parser)
    return options


def _fill_in(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Defaults that depend on the device, and checks."""
    try:
        options.device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        parser.error(f"--device must be cpu or cuda, got {options.device!r}")
    if options.device.type not in CHECKED:
        parser.error(f"--device must be cpu or cuda, got {options.device}")
    if options.device.type == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device here")
    on_gpu = options.device.type == "cuda"
    chosen = {"length": 16384, "heads": 16, "dtype": "bfloat16"} if on_gpu else {}
    for name, value in ({"length": 2048, "heads": 4, "dtype": "float32"} | chosen).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    for name in ("length", "batch", "heads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    wrong = [density for density in options.densities if not 0 < density <= 1]
    if wrong:
        parser.error(f"--densities must be above 0 and at most 1, got {wrong[0]}")
    if not 16 <= options.dim <= 256 or options.dim % 8:
        parser.error(f"--dim must be a multiple of 8 from 16 to 256, got {options.dim}")
    if not 16 <= options.block_size <= 128 or options.block_size % 16:
        parser.error(f"--block-size must be a multiple of 16 from 16 to 128, got {options.block_size}")


def main() -> None:
    """Run the demo."""
    options = parse()
    console = Console(stderr=True, quiet=options.json)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        report = run(options, console)
    except (OSError, ValueError, DataError, ImplementationError) as error:
        sys.exit(f"sparse_attention: {failure(error)}")
    if options.json:
        print(json.dumps(report))


def run(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Draw, time and, unless JSON is wanted, print."""
    device = options.device
    show = partial(Console(quiet=options.json).print, soft_wrap=True)
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    if device.type == "cpu":
        where += f", {torch.get_num_threads()} threads"
    positions, unsorted = sampled(read_points(options.points), options.length)
    setting = Setting(
        options.length, options.block_size, options.heads, options.dim, positions, options.radius, device
    )
    patterns, pictures = draw(setting, options.patterns, options.out, console)
    report: dict[str, Any] = {"device": where, "dtype": options.dtype}
    report["patterns"] = {name: pattern.describe().to_json() for name, pattern in patterns.items()}
    report["pictures"] = [*map(str, pictures)]
    show(pattern_table(patterns))
    if "radius" in patterns and len(positions) <= LONGEST_UNSORTED:
        as_given = from_distance(unsorted, radius=options.radius, block_size=options.block_size)
        report["radius_unsorted_block_density"] = as_given.block_density
        show(
            f"radius: {len(positions):,} points along a Z curve; in the order of the scan"
            f" {100 * as_given.block_density:.3g} % of the blocks would be needed"
        )
    if not options.no_timing:
        rows = report["timings"] = timings(options, console)
        sizes = f"batch {options.batch}, {options.heads} heads of {options.dim}, blocks of"
        show(
            f"\n{where}, {options.dtype}, {sizes} {options.block_size}; random blocks, median of eager calls"
        )
        for mode in MODES:
            show(f"\n{mode}")
            show(timing_table(rows, mode))
        show(verdict(rows, device))
    show(f"pictures: {len(pictures)} in {options.out}, all patterns in {pictures[-1].name}")
    return report


if __name__ == "__main__":
    with reported_file_errors("sparse_attention"):
        main()
