"""One example of every op: inputs for a size, and a call of the public function with them.

A new op stands here or its test fails. Inputs are drawn on the CPU, so that every device gets the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from memory.index.cuda import rerank_top, scan_top
from memory.index.cuda.cells import build, candidates
from memory.index.cuda.layout import Sizes
from perception.config import HeadConfig, PillarConfig, RefineConfig
from perception.model.head import CentreHead
from perception.model.refine import RefineStage
from perception.stages.head import fixed_boxes, fixed_heat, fixed_peaks, pack_boxes, pack_heat
from perception.stages.neck import near_lists
from perception.stages.nms import fixed_nms
from perception.stages.pillars import fixed_pillars
from perception.stages.refine import fixed_refine, pack_refine
from perception.stages.report import ReportLayout, ReportRules, fixed_report
from sparse_core.attention import gathered_attention, local_window, sparse_attention
from sparse_core.conv.convolution import fixed_convolution, sparse_convolution
from sparse_core.conv.coordinates import build_table
from sparse_core.conv.grid import grid_from_cells
from sparse_core.conv.neighbours import submanifold_table
from sparse_core.dynamic.rigl.block_product import block_linear, plan_blocks
from sparse_core.dynamic.rigl.fan_in import fan_in_product
from sparse_core.dynamic.rigl.grid import plan_grid, random_cells
from sparse_core.formats import CSR
from sparse_core.formats.assemble import assemble_csr
from sparse_core.linalg import cg, gauss_seidel, sddmm, spgemm, spmm, spmv, triangular_solve
from sparse_core.linalg.structure import row_of_entry
from sparse_core.nm import NMPattern, PackedNM, nm_mask
from sparse_core.nm.layers.rounding import quantise_input
from sparse_core.nm.linear import nm_linear
from sparse_core.nm.packing.two_four import prune_and_pack, prune_and_pack_both

GRID = PillarConfig(range_m=(0.0, -2.56, -3.0, 5.12, 2.56, 3.0), pillar_size_m=0.32)


class Example(NamedTuple):
    """How to call an op.

    Attributes:
        inputs: of a size; floating ones to be differentiated come first.
        run: the call with an ``impl`` and the inputs on a device; what it gives is compared.
        sizes: 0 is empty; left out where the op takes nothing that is empty.
        differentiated: inputs with a gradient.
        tolerance: of results and gradients, relative to the largest.
    """

    inputs: Callable[[int], Sequence[Tensor]]
    run: Callable[..., Sequence[Tensor]]
    sizes: tuple[int, ...] = (0, 1, 7, 33)
    differentiated: int = 0
    tolerance: float = 2e-5


def normal(*shape: int) -> Tensor:
    """Normal numbers that depend on the shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def scattered(rows: int, columns: int) -> Tensor:
    """A dense matrix of which most is zero, every third row altogether."""
    kept = torch.rand(rows, columns, generator=torch.Generator().manual_seed(rows)) < 0.3
    kept[::3] = False
    return normal(rows, columns) * kept


def dominant(size: int) -> Tensor:
    """Symmetric, positive definite and sparse."""
    dense = scattered(size, size)
    return (dense + dense.T) * 0.3 + size * torch.eye(size)


def csr(dense: Tensor) -> CSR:
    """What is not zero; gradients reach the dense matrix."""
    matrix = CSR.from_dense(dense.detach())
    return matrix.with_values(dense[row_of_entry(matrix).long(), matrix.col.long()])


def entries(size: int) -> tuple[Tensor, ...]:
    """Values, rows and columns, some of them twice."""
    generator = torch.Generator().manual_seed(size)
    places = [torch.randint(0, limit, (5 * size,), generator=generator) for limit in (size or 1, size + 3)]
    return normal(5 * size), *(place.int() for place in places)


def assembled(impl: Any, values: Tensor, row: Tensor, col: Tensor) -> Sequence[Tensor]:
    shape = (len(row) // 5, len(row) // 5 + 3)
    made = assemble_csr(row, col, values, shape, impl=impl)
    return made.values, made.row_ptr, made.col


def product(impl: Any, a: Tensor, b: Tensor) -> Sequence[Tensor]:
    made = spgemm(csr(a), csr(b), impl=impl)
    return made.values, made.row_ptr, made.col


def blocks(impl: Any, x: Tensor, values: Tensor, bias: Tensor) -> Sequence[Tensor]:
    grid = plan_grid(24, 40, density=0.5, structure="block", block_size=(8, 4))
    plan = plan_blocks(random_cells(grid, torch.Generator().manual_seed(0)).to(x.device), grid)
    return (block_linear(x, values, plan, bias, impl=impl),)


def packed(impl: Any, weight: Tensor) -> Sequence[Tensor]:
    one, both = prune_and_pack(weight, impl=impl), prune_and_pack_both(weight, dense=True, impl=impl)
    return one.buffer, both.weight.buffer, both.transposed.buffer, cast("Tensor", both.dense)


def linear(impl: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Sequence[Tensor]:
    weight = weight * nm_mask(weight, 2, 4)
    return (nm_linear(x, PackedNM.from_dense(weight, pattern=NMPattern(2, 4)), bias, impl=impl),)


def attended(impl: Any, q: Tensor, k: Tensor, v: Tensor) -> Sequence[Tensor]:
    pattern = local_window(q.shape[2], window=5, block_size=16, device=q.device)
    return sparse_attention(q, k, v, pattern, impl=impl, return_lse=True)


def gathered(impl: Any, q: Tensor, k: Tensor, v: Tensor, index: Tensor) -> Sequence[Tensor]:
    return gathered_attention(q, k, v, index, impl=impl, return_lse=True)


def listed(queries: int, count: int, keys: int) -> Tensor:
    """Places in a list of keys, -1 for none."""
    generator = torch.Generator().manual_seed(count)
    return torch.randint(-1, keys, (queries, count), generator=generator).int()


def head(impl: Any, features: Tensor) -> Sequence[Tensor]:
    torch.manual_seed(1)
    layers = CentreHead(HeadConfig(channels=16), in_channels=features.shape[1], grid=GRID.grid).to(
        features.device
    )
    torch.nn.init.normal_(layers.box.weight, std=0.5)
    shape = (len(features) // 3, 3)
    heat = fixed_heat(features, pack_heat(layers, features.dtype), spatial_shape=shape, impl=impl)
    peaks = fixed_peaks(heat, 5, impl=impl)
    cells = torch.arange(len(features), dtype=torch.int32, device=features.device)[None]
    labels = cells % 3
    packed_boxes = pack_boxes(layers, features.dtype)
    boxes = fixed_boxes(features, cells, labels, packed_boxes, spatial_shape=shape, impl=impl)
    # A heading is as sharp as its sine and cosine are long.
    return heat, peaks.scores, boxes[..., :6]


def neck(impl: Any, cells: Tensor) -> Sequence[Tensor]:
    first = grid_from_cells(cells, (9, 11), 1, 99, impl="reference")
    lists = near_lists(first, [99, 99], impl=impl)
    return [part for grid in lists for part in (grid.cells[: int(grid.count)], grid.count)]


def grids(impl: Any, cells: Tensor) -> Sequence[Tensor]:
    grid = grid_from_cells(cells, (9, 11), 1, 99, impl=impl)
    return grid.cells[: int(grid.count)], grid.count


def coordinates(size: int) -> Tensor:
    """Cells of a grid, some of them twice."""
    places = torch.randint(0, 9, (size, 3), generator=torch.Generator().manual_seed(size))
    return places * torch.tensor([0, 1, 1])


def tabled(impl: Any, cells: Tensor) -> Sequence[Tensor]:
    table = build_table(cells, (9, 9), impl=impl)
    return table.coordinates, table.keys, table.rows


def convolved(impl: Any, features: Tensor, weight: Tensor, bias: Tensor, cells: Tensor) -> Sequence[Tensor]:
    table = build_table(cells, (9, 9), impl="reference")
    rows = submanifold_table(table, (3, 3))
    return (sparse_convolution(features[: len(table)], weight, rows, bias=bias, impl=impl),)


def fixed(impl: Any, features: Tensor, weight: Tensor, bias: Tensor, rows: Tensor) -> Sequence[Tensor]:
    return (fixed_convolution(features, weight, rows, bias=bias, relu=True, impl=impl),)


def boxes_of(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes that overlap, scores and labels of two frames."""
    boxes = torch.rand(2, size, 7, generator=torch.Generator().manual_seed(size)) * 3
    boxes[..., 3:6] += 0.5
    scores = torch.rand(2, size, generator=torch.Generator().manual_seed(size + 1))
    return boxes, scores, torch.arange(2 * size).reshape(2, size).int() % 3


def shown(impl: Any, boxes: Tensor, scores: Tensor, labels: Tensor) -> Sequence[Tensor]:
    rules = [
        [1.0, 0.7, -0.2, 0.8, 0.6, 0.0, 0.0, 0.25],
        [0.0, 1.0, 0.0, 0.0, 0.0, 0.5, 0.125, -0.25],
        [1.0, 2.0, 0.5, 0.0, 1.5, 0.0, 0.0, 0.0],
    ]
    table = torch.tensor(rules, dtype=torch.float64, device=boxes.device)
    frames, most = scores.shape
    boxes = boxes * torch.tensor([1.0] * 6 + [5.0], device=boxes.device)
    there = torch.arange(most, device=boxes.device) < most - most // 4
    counts = there.sum()[None].int().expand(frames)
    vectors = boxes.repeat(1, 1, 3).half()
    given = (boxes, scores, labels.where(there, -1), counts, labels[0], vectors, ReportRules(table))
    words = fixed_report(*given, impl=impl).cpu().numpy()
    reported = ReportLayout(frames, most, most, 21).views(words)
    present = [part[:, : int(there.sum())] for part in reported[2:]]
    return [torch.from_numpy(part) for part in (*reported[:2], *present)]


def kept(impl: Any, boxes: Tensor, scores: Tensor, labels: Tensor) -> Sequence[Tensor]:
    found = fixed_nms(boxes, scores, labels, iou_threshold=0.3, impl=impl)
    return found.indices, found.counts


def cloud(size: int) -> tuple[Tensor, Tensor]:
    """Points of two frames, the second shorter, and their numbers."""
    points = torch.rand(2, size, 4, generator=torch.Generator().manual_seed(size))
    points[..., :3] = points[..., :3] * 5.0 - torch.tensor([0.0, 2.5, 2.0])
    return points, torch.tensor([size, size // 2], dtype=torch.int32)


def pillars(impl: Any, points: Tensor, lengths: Tensor) -> Sequence[Tensor]:
    made = fixed_pillars(points, lengths, GRID, 64, impl=impl)
    count = int(made.grid.count)
    offsets = made.offsets[: count + 1]
    # Within a pillar the order is free.
    inside = made.points[: int(made.kept)]
    sums = [inside[a:b].double().sum(0) for a, b in zip(offsets.tolist(), offsets.tolist()[1:], strict=False)]
    return made.grid.cells[:count], offsets, torch.stack(sums) if sums else inside


def refined(
    impl: Any, points: Tensor, lengths: Tensor, boxes: Tensor, _: Tensor, labels: Tensor
) -> Sequence[Tensor]:
    torch.manual_seed(0)
    # An interpreter takes seconds a box.
    boxes, labels = boxes[:, :4].contiguous(), labels[:, :4].contiguous()
    stage = RefineStage(
        RefineConfig(channels=(8, 8, 8)), classes=3, map_channels=6, grid=GRID.grid.coarser(4)
    ).eval()
    weights = pack_refine(stage, dtype=torch.float32, device=points.device)
    features = normal(2 * 4 * 4, 6).to(points.device)
    found = fixed_refine(
        fixed_pillars(points, lengths, GRID, 64, impl="reference"),
        features,
        boxes,
        labels,
        weights,
        map_shape=(4, 4),
        pillar_size_m=GRID.pillar_size_m,
        impl=impl,
    )
    return found.boxes, found.fit_logits


def unit(rows: int, dim: int) -> Tensor:
    """Unit vectors in half precision."""
    return torch.nn.functional.normalize(normal(rows, dim), dim=1).half()


def cells_of(vectors: Tensor) -> Any:
    alive = torch.ones(len(vectors), dtype=torch.bool, device=vectors.device)
    return build(vectors, alive, len(vectors), 0, 3)


def probed(impl: Any, vectors: Tensor, queries: Tensor) -> Sequence[Tensor]:
    cells = cells_of(vectors)
    overflow = torch.zeros(2, dtype=torch.int64, device=vectors.device)
    found = candidates(cells, cells.products(queries.float()), Sizes(2, 64, 9), overflow, impl=impl)
    rows = zip(found.rows, found.lengths.tolist(), strict=True)
    return [overflow, found.lengths, *(row[:length].sort().values for row, length in rows)]


def scanned(impl: Any, vectors: Tensor, queries: Tensor) -> Sequence[Tensor]:
    cells = cells_of(vectors)
    return (scan_top(cells.codes, cells.coordinates(queries.float()), 5, dim=vectors.shape[1], impl=impl),)


def reranked(impl: Any, vectors: Tensor, queries: Tensor, places: Tensor) -> Sequence[Tensor]:
    found = rerank_top(vectors, queries.float(), places, 4, impl=impl)
    return found.scores, found.rows


EXAMPLES: dict[str, Example] = {
    "assemble_csr": Example(entries, assembled, differentiated=1),
    "block_product": Example(
        lambda n: (normal(n, 40), normal(15, 8, 4), normal(24)), blocks, (1, 7, 33), differentiated=3
    ),
    "build_table": Example(lambda n: (coordinates(5 * n),), tabled),
    "candidates": Example(lambda n: (unit(50, 32), unit(n, 32)), probed, (1, 7)),
    "cg": Example(
        lambda n: (normal(n), dominant(n)), lambda impl, b, a: (cg(a, b, impl=impl).x,), tolerance=1e-4
    ),
    "fan_in_product": Example(
        lambda n: (normal(n, 40), normal(33 * 5), listed(33, 5, 40).clamp_min(0).flatten(), normal(33)),
        lambda impl, x, values, columns, bias: (fan_in_product(x, values, columns, 33, bias, impl=impl),),
        (1, 7, 13),
    ),
    "fixed_convolution": Example(
        lambda n: (normal(n, 5), normal(9, 5, 7), normal(7), listed(9, n, n) if n else listed(9, 0, 1)), fixed
    ),
    "gathered_attention": Example(
        lambda n: (
            normal(1, 4, n, 16),
            normal(1, 2, 9, 16),
            normal(1, 2, 9, 16),
            listed(n, 3, 9)[None, None],
        ),
        gathered,
        differentiated=3,
    ),
    "gauss_seidel": Example(
        lambda n: (normal(n), dominant(n)), lambda impl, b, a: (gauss_seidel(csr(a), impl=impl).solve(b),)
    ),
    "grids": Example(lambda n: (torch.arange(n).int() * 13 % 99,), grids),
    "head": Example(lambda n: (normal(3 * n, 17),), head, (1, 7)),
    "neck": Example(lambda n: (torch.arange(n).int() * 13 % 99,), neck, (0, 1, 5)),
    "nm_linear": Example(
        lambda n: (normal(n, 48), normal(17, 48), normal(17)), linear, differentiated=1, tolerance=2e-5
    ),
    "nms": Example(boxes_of, kept),
    "pillars": Example(cloud, pillars, (1, 7, 65)),
    # Tiles of 64 by 32 are packed, at least one.
    "prune_and_pack": Example(lambda n: (normal(64 * n, 64 * n).half(),), packed, (1, 3)),
    "quantise_input": Example(
        lambda n: (normal(n, 701) * 3,),
        lambda impl, x: quantise_input(x, impl=impl),
        (1, 7, 33),
        tolerance=0.0,
    ),
    "refine": Example(lambda n: (*cloud(33), *boxes_of(n)), refined, (0, 1, 7)),
    "report": Example(boxes_of, shown, tolerance=1e-6),
    "rerank_top": Example(lambda n: (unit(50, 48), unit(n, 48), listed(n, 13, 50)), reranked, (0, 1, 7)),
    "scan_top": Example(lambda n: (unit(50, 32), unit(n, 32)), scanned, (0, 1, 7)),
    "sddmm": Example(
        lambda n: (normal(n, 5), normal(5, n + 3), scattered(n, n + 3)),
        lambda impl, a, b, dense: (sddmm(csr(dense), a, b, impl=impl).values,),
        differentiated=2,
    ),
    "sparse_convolution": Example(
        lambda n: (normal(n, 5), normal(7, 3, 3, 5), normal(7), coordinates(n)),
        convolved,
        differentiated=3,
    ),
    "sparse_attention": Example(
        lambda n: (normal(1, 4, n, 16), normal(1, 2, n, 16), normal(1, 2, n, 16)),
        attended,
        (1, 7, 33),
        differentiated=3,
    ),
    "spgemm": Example(lambda n: (scattered(n, n + 3), scattered(n + 3, 5)), product, differentiated=2),
    "spmm": Example(
        lambda n: (scattered(n, n + 3), normal(n + 3, 5)),
        lambda impl, dense, x: (spmm(csr(dense), x, impl=impl),),
        differentiated=2,
    ),
    "spmv": Example(
        lambda n: (scattered(n, n + 3), normal(n + 3)),
        lambda impl, dense, x: (spmv(csr(dense), x, impl=impl),),
        differentiated=2,
    ),
    "triangular_solve": Example(
        lambda n: (dominant(n), normal(n, 3)),
        lambda impl, dense, b: (triangular_solve(csr(dense), b, impl=impl),),
        differentiated=2,
    ),
}
