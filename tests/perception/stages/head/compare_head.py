"""Compare the fast head's kernels with the reference on one device; prints a JSON report.

Run on its own by test_head_triton.py, because Triton decides at import whether it interprets kernels.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import triton
from torch import Tensor

from perception.config import BackboneConfig, HeadConfig
from perception.geometry import BirdsEyeGrid
from perception.model.head import CentreHead
from perception.model.layers import DenseUnit, SparseUnit, fold_batch_norms
from perception.stages.head import (
    fixed_boxes,
    fixed_heat,
    fixed_peaks,
    fixed_up,
    pack_boxes,
    pack_heat,
    pack_up,
    peaks_triton,
)
from perception.stages.head import (
    triton as kernels,
)
from sparse_core.conv.grid.layout import linear_cells, word_count
from sparse_core.conv.grid.reference import bits_of_cells, grid_from_bits
from sparse_core.kernels.op import Impl
from tests.sparse_core.oracles.poisoned_memory import poisoned_memory

IMPLEMENTATIONS: tuple[Impl, Impl] = ("triton", "reference")
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def random(shape: tuple[int, ...], device: torch.device, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(device)


def distance(found: Tensor, wanted: Tensor) -> float:
    """Largest difference relative to the largest value; not a number where one is not."""
    scale = wanted.float().abs().max().clamp(min=1e-6)
    return float((found.float() - wanted.float()).abs().max() / scale)


def make_head(channels: int, width: int, classes: int, device: torch.device) -> CentreHead:
    torch.manual_seed(1)
    names = tuple(["Car", "Pedestrian", "Cyclist", "Van", "Truck", "Bus"][:classes])
    config = HeadConfig(classes=names, channels=width)
    head = CentreHead(
        config, in_channels=channels, grid=BirdsEyeGrid((0.5, -39.68, -3.0, 80.0, 40.0, 1.0), 0.32)
    )
    torch.nn.init.normal_(head.heat.bias)
    torch.nn.init.normal_(head.box.weight, std=0.5)
    return head.to(device)


def compare_up(
    device: torch.device, dtype: torch.dtype, frames: int, shape: tuple[int, int], widths: tuple[int, ...]
) -> float:
    """Coarse ``shape``; widths: coarse, fine, out. The worse of a grid with room and one without.

    A third of the finer cells is active; rows behind the last are not numbers.
    """
    torch.manual_seed(2)
    up = DenseUnit(widths[0], widths[2], stride=2, transposed=True, relu=False)
    lateral = SparseUnit(widths[1], widths[2], BackboneConfig(), kernel_size=1, relu=False)
    for unit in (up, lateral):
        torch.nn.init.normal_(unit.norm.bias)
        fold_batch_norms(unit.eval())
    weights = pack_up(up.to(device), lateral.to(device), dtype)
    finer = (2 * shape[0], 2 * shape[1])
    cells = frames * finer[0] * finer[1]
    active = torch.rand(cells, generator=torch.Generator().manual_seed(3)) < 0.3
    axes = [torch.arange(size) for size in (frames, *finer)]
    numbers = linear_cells(torch.cartesian_prod(*axes)[active], finer)
    bits = bits_of_cells(numbers, word_count(finer, frames)).to(device)
    coarse = random((frames * shape[0] * shape[1], widths[0]), device, 4).to(dtype)
    worst = 0.0
    for capacity in (len(numbers) + 5, max(1, len(numbers) - 3)):
        grid = grid_from_bits(bits, finer, frames, capacity)
        fine = random((capacity, widths[1]), device, 5).to(dtype)
        fine[len(numbers) :] = float("nan")
        found, wanted = (fixed_up(coarse, fine, grid, weights, impl=impl) for impl in IMPLEMENTATIONS)
        worst = max(worst, distance(found, wanted))
    return worst


def compare_layers(
    device: torch.device, dtype: torch.dtype, frames: int, shape: tuple[int, int], widths: tuple[int, ...]
) -> dict[str, float]:
    """Heat and boxes; widths: map, hidden, classes, top_k."""
    channels, width, classes, top_k = widths
    head = make_head(channels, width, classes, device)
    features = random((frames * shape[0] * shape[1], channels), device, 6).to(dtype)
    heats = [
        fixed_heat(features, pack_heat(head, dtype), spatial_shape=shape, impl=impl)
        for impl in IMPLEMENTATIONS
    ]
    generator = torch.Generator().manual_seed(7)
    cells = torch.randint(0, shape[0] * shape[1], (frames, top_k), generator=generator).to(torch.int32)
    labels = torch.randint(-1, classes, (frames, top_k), generator=generator).to(torch.int32)
    chosen = cells.to(device), labels.to(device)
    boxes = [
        fixed_boxes(features, *chosen, pack_boxes(head, dtype), spatial_shape=shape, impl=impl)
        for impl in IMPLEMENTATIONS
    ]
    turn = torch.remainder(boxes[0][..., 6] - boxes[1][..., 6] + torch.pi, 2 * torch.pi) - torch.pi
    # A heading is as sharp as its sine and cosine are long; the worst of many is not a matter of kernels.
    return {
        "heat": distance(*heats),
        "boxes": distance(boxes[0][..., :6], boxes[1][..., :6]),
        "yaw": float(turn.abs().median()),
        "worst yaw": float(turn.abs().max()),
    }


def heats(device: torch.device) -> dict[str, tuple[Tensor, int]]:
    """Heat maps by name, and how many peaks are asked for."""
    generator = torch.Generator().manual_seed(8)
    noise = torch.rand((2, 3, 11, 17), generator=generator)
    plateaus = (noise * 5).round() / 5
    sparse = torch.where(noise > 0.97, noise, 0.0)
    broken = noise.clone()
    broken[0, 1, 4, 5] = float("nan")
    single = torch.zeros(2, 3, 9, 9)
    single[1, 2, 8, 0] = 0.5
    return {
        "noise": (noise.to(device), 20),
        "more than there are": (noise.to(device), 2000),
        "plateaus": (plateaus.to(device), 50),
        "constant": (torch.full((1, 2, 9, 31), 0.25, device=device), 70),
        "few peaks": (sparse.to(device), 40),
        "nothing": (torch.zeros(2, 1, 6, 7, device=device), 5),
        "one frame empty": (single.to(device), 3),
        "not a number": (broken.to(device), 30),
        "one cell": (torch.full((1, 1, 1, 1), 0.5, device=device), 1),
        "one column": (torch.rand((1, 2, 300, 1), generator=generator).to(device), 11),
        "best of all": (noise.to(device), 1),
    }


def compare_peaks(heat: Tensor, top_k: int, minimum: float = 0.0) -> dict[str, bool]:
    """Which parts of the result are equal, the first class with a floor of its own."""
    least = torch.full(heat.shape[1:2], minimum, device=heat.device)
    least[0] += 0.1
    found, wanted = (fixed_peaks(heat, top_k, minimum=least, impl=impl) for impl in IMPLEMENTATIONS)
    return {name: torch.equal(getattr(found, name), getattr(wanted, name)) for name in wanted._fields}


def compare_many_peaks(device: torch.device) -> dict[str, bool]:
    """More peaks than are compared at a time, those that cannot be chosen left out; counters serve again."""
    names = ("_BLOCKS", "_OTHERS", "_PROGRAMS", "_MANY")
    usual = {name: getattr(peaks_triton, name) for name in names}
    for name, small in zip(names, (((2**31, 8),), 16, 2, 20), strict=True):
        setattr(peaks_triton, name, small)
    try:
        generator = torch.Generator().manual_seed(10)
        heat = torch.rand((2, 2, 9, 13), generator=generator).to(device)  # 30 and 32 peaks
        equal = compare_peaks(heat, 5)
        counters = torch.zeros((2, 2), dtype=torch.int32, device=device)
        first, second = (fixed_peaks(heat, 5, counters=counters, impl="triton") for _ in range(2))
        equal["again"] = all(map(torch.equal, first, second)) and not counters.any()
        return equal
    finally:
        for name, value in usual.items():
            setattr(peaks_triton, name, value)


def real_heats(device: torch.device) -> dict[str, tuple[Tensor, int]]:
    """Maps of the sizes in use and larger, for a GPU."""
    generator = torch.Generator().manual_seed(9)
    return {
        "in use": (torch.rand((1, 3, 124, 108), generator=generator).to(device), 100),
        "batch": (torch.rand((8, 3, 124, 108), generator=generator).to(device), 100),
        "area of sixteen": (torch.rand((1, 3, 496, 432), generator=generator).to(device), 100),
        "larger": (torch.rand((1, 3, 1984, 1728), generator=generator).to(device), 500),
        "all equal": (torch.full((1, 3, 124, 108), 0.01, device=device), 100),
    }


def replay(device: torch.device) -> dict[str, bool]:
    """All four steps in one CUDA graph, replayed on other features: equal to running them one by one."""
    head = make_head(96, 96, 3, device)
    shape = (124, 108)
    heat_weights, box_weights = pack_heat(head, torch.float16), pack_boxes(head, torch.float16)
    features = random((shape[0] * shape[1], 96), device).half()

    def run() -> tuple[Tensor, ...]:
        heat = fixed_heat(features, heat_weights, spatial_shape=shape, impl="triton")
        peaks = fixed_peaks(heat, 100, impl="triton")
        boxes = fixed_boxes(
            features, peaks.cells, peaks.labels, box_weights, spatial_shape=shape, impl="triton"
        )
        return heat, *peaks, boxes

    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    equal = True
    for seed in range(3):
        features.copy_(random(tuple(features.shape), device, 20 + seed))
        expected = run()
        for _ in range(100):
            graph.replay()
            equal &= all(torch.equal(a, b) for a, b in zip(captured, expected, strict=True))
    return {"replays": equal}


def report(device: torch.device) -> dict[str, Any]:
    interpreted = not isinstance(kernels.up_kernel, triton.JITFunction)
    small = {"float32": DTYPES["float32"], "float16": DTYPES["float16"]}
    found: dict[str, Any] = {"interpreted": interpreted}
    found["up"] = {
        f"{name} {frames} {shape} {widths}": compare_up(device, dtype, frames, shape, widths)
        for name, dtype in (small if interpreted else DTYPES).items()
        for frames, shape, widths in (
            [(2, (5, 7), (40, 24, 20)), (1, (1, 1), (8, 8, 3)), (1, (3, 18), (64, 64, 48))]
            + ([] if interpreted else [(1, (62, 54), (128, 128, 96)), (8, (62, 54), (128, 128, 96))])
        )
    }
    found["layers"] = {
        f"{name} {frames} {shape} {widths}": compare_layers(device, dtype, frames, shape, widths)
        for name, dtype in (small if interpreted else DTYPES).items()
        for frames, shape, widths in (
            [(2, (6, 7), (40, 20, 3, 9)), (1, (1, 1), (8, 6, 1, 1)), (1, (7, 9), (32, 32, 6, 20))]
            + ([] if interpreted else [(1, (124, 108), (96, 96, 3, 100)), (8, (124, 108), (96, 96, 3, 100))])
        )
    }
    maps = heats(device) | ({} if interpreted else real_heats(device))
    found["peaks"] = {name: compare_peaks(*case) for name, case in maps.items()}
    found["peaks"]["many peaks"] = compare_many_peaks(device)
    if not interpreted:
        found["graph"] = replay(device)
    return found


if __name__ == "__main__":
    with poisoned_memory():
        print(json.dumps(report(torch.device(sys.argv[1]))))
