"""Run the compiled parts on inputs made once, and compare their results with another machine's to the bit.

    python release/compiled_results.py write FOLDER      # make inputs, and write the results
    python release/compiled_results.py compare FOLDER    # run on the same inputs, and compare

The parts keep products and sums separate and add in a fixed order, so every processor and compiler must give
the same bits. ``check_aarch64.py`` compares an emulated aarch64 with the machine that it runs on.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from memory.index import native_search
from memory.index.effort import Effort
from memory.index.evaluation import clustered
from memory.index.lsh import LSHIndex
from perception.data.sample import sample_frames
from perception.model import compiled as points
from sparse_core.conv.convolution.cpu import compiled as planning
from sparse_core.conv.convolution.cpu.int8 import ByteScale, byte_layer, pack_layer
from sparse_core.conv.convolution.cpu.int8 import compiled as layers_of_bytes
from sparse_core.conv.convolution.cpu.levels import direct_level, strided_level
from sparse_core.formats import COO, CSR
from sparse_core.kernels import launch_plan, native
from sparse_core.linalg import sddmm, spmm

Results = list[torch.Tensor]
Result = TypeVar("Result")
ROWS, DIM = 6000, 100
RANGE_M = (0.0, -40.0, -3.0, 70.4, 40.0, 1.0)
CELL_M = 0.16
SHAPE = (500, 440)


def make_inputs(folder: Path) -> None:
    """Write an index, queries, points and cells; random numbers may differ between processors."""
    data = clustered(ROWS, 30, dim=DIM, centres=60, noise=0.1)
    index = LSHIndex(DIM, expected=ROWS)
    index.add(data.vectors, np.arange(ROWS))
    index.merge()
    index.save(folder / "index")
    cloud = sample_frames()[-1].cloud.points
    generator = np.random.default_rng(0)
    cells = np.argwhere(generator.random((2, 120, 90)) < 0.2)
    weight = generator.normal(size=(9, 32, 64)).astype(np.float32)
    operands = generator.normal(size=(2, 300, 77))
    arrays: dict[str, Any] = {
        "queries": data.queries, "points": cloud, "cells": cells, "weight": weight, "operands": operands,
    }  # fmt: skip
    np.savez(folder / "inputs.npz", **arrays)


def there(result: Result | None) -> Result:
    """Return the result of a compiled part, which is None where the part cannot run."""
    if result is None:
        raise SystemExit("a compiled part is missing: perceive doctor --install names it")
    return result


def search_tables(folder: Path, inputs: Any) -> Results:
    """Return ids and scores of a search in hash tables."""
    index = LSHIndex.load(folder / "index")
    state = index._state
    tables = there(index._compiled_of(state))
    found = []
    for probes, rerank in ((40, 50), (640, 200), (10**6, 6000)):
        rows = state.rows
        search = (index._depth(probes), Effort(probes, rerank), rows.vectors.parts, rows.ids(ROWS), None)
        found += [torch.from_numpy(part) for part in tables.search(inputs["queries"], 10, *search)]
    return found


def search_rows(folder: Path, inputs: Any) -> Results:
    """Return ids and scores of a comparison with all rows."""
    rows = LSHIndex.load(folder / "index")._state.rows
    found = []
    for query in inputs["queries"]:
        answer = native_search.nearest_rows(query[None], 20, rows.vectors.parts, rows.ids(ROWS))
        found += [torch.from_numpy(part) for part in there(answer)]
    return found


def sort_points(folder: Path, inputs: Any) -> Results:
    """Return a scan's points sorted by pillar."""
    cloud = torch.from_numpy(inputs["points"])
    assert points.POINTS.ready()
    strides = ((SHAPE[0] + 2) * (SHAPE[1] + 2), SHAPE[1] + 2, 1)
    return list(there(points.sort_points(cloud, [len(cloud)], RANGE_M, CELL_M, SHAPE, strides, 1)))


def crop_points(folder: Path, inputs: Any) -> Results:
    """Return the points in boxes along the axes; sine and cosine of other headings come from torch."""
    cloud = torch.from_numpy(inputs["points"])
    assert points.POINTS.ready()
    boxes = torch.zeros(40, 7)
    boxes[:, :2] = cloud[:: len(cloud) // 40][:40, :2]
    boxes[:, 2], boxes[:, 3:6] = -1.0, torch.tensor([4.0, 2.0, 2.0])
    start = torch.zeros(40, 1, dtype=torch.int64)
    length = torch.full((40, 1), len(cloud))
    return list(there(points.crop_points(cloud, boxes, boxes[:, 3:6] / 2 + 0.3, start, length, 5000)))


def plan_layers(folder: Path, inputs: Any) -> Results:
    """Return the plans of a layer and of a strided layer after it."""
    assert planning.PLANNING.ready()
    level = direct_level(torch.from_numpy(inputs["cells"]), (120, 90), 2, (3, 3))
    after, made = strided_level(level, (3, 3), (2, 2), (1, 1))
    parts = [
        level.ordered,
        level.gathered,
        level.rows,
        after.cells,
        made.ordered,
        made.gathered,
        made.computed,
    ]
    return list(_tensors(parts))


def multiply_bytes(folder: Path, inputs: Any) -> Results:
    """Return the output of a layer of bytes, whose inputs are the points' coordinates."""
    assert layers_of_bytes.PRODUCTS.ready()
    weight = torch.from_numpy(inputs["weight"])
    layer = pack_layer(weight, weight[0, 0], in_scale=ByteScale.of(2.0), out_scale=ByteScale.of(60.0))
    rows = torch.from_numpy(inputs["points"])[:4000].contiguous().view(torch.uint8).reshape(-1, 32).clone()
    rows[-1] = 0
    table = (torch.arange(1800 * 9) * 7 % len(rows)).int().reshape(-1, 9)
    out = torch.empty((len(table), layer.out_width), dtype=torch.uint8)
    return [byte_layer(rows, layer, table=table, out=out)]


def multiply_rows(folder: Path, inputs: Any) -> Results:
    """Return products of a sparse matrix with dense rows, and sampled dense products."""
    found = []
    cells = torch.from_numpy(inputs["cells"])
    row, col = cells[cells[:, 0] == 0][:, 1:].unbind(1)
    for dtype in (torch.float32, torch.float64):
        left, right = torch.from_numpy(inputs["operands"]).to(dtype)
        values = left.flatten()[: len(row)]
        matrix = COO(row, col, values, (300, 300)).to(CSR)
        found += [spmm(matrix, right, impl="cpu"), sddmm(matrix, left, right.T, impl="cpu").values]
    return found


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested results; slices and numbers become tensors."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, slice):
        yield torch.tensor([value.start, value.stop])
    elif value is not None:
        yield torch.as_tensor(np.asarray(value))


CASES: tuple[Callable[[Path, Any], Results], ...] = (
    search_tables, search_rows, sort_points, crop_points, plan_layers, multiply_bytes, multiply_rows,
)  # fmt: skip


def main() -> int:
    """Command line; the exit status is 1 if a result differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("folder", type=Path, help="folder of inputs and results")
    options = parser.parse_args()
    folder = options.folder
    if options.action == "write":
        folder.mkdir(parents=True, exist_ok=True)
        make_inputs(folder)
    inputs = np.load(folder / "inputs.npz")
    results = {case.__name__: case(folder, inputs) for case in CASES}
    print(f"launch plans: {launch_plan.available()}; libraries of the wheel: {native.BUILT.is_dir()}")
    if options.action == "write":
        torch.save(results, folder / "results.pt")
        return 0
    expected = torch.load(folder / "results.pt")
    different = 0
    for name, found in results.items():
        equal = len(found) == len(expected[name]) and all(map(_same, found, expected[name]))
        different += not equal
        sizes = sum(part.numel() for part in found)
        print(f"{name}: {'equal' if equal else 'DIFFERENT'}, {sizes} numbers")
    return int(different > 0)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.numpy().tobytes() == other.numpy().tobytes()


if __name__ == "__main__":
    raise SystemExit(main())
