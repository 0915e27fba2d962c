"""Measure the methods of a product and choose the fastest correct one."""

from __future__ import annotations

import contextlib
import math
from functools import cache

import torch
from torch import Tensor

from sparse_core.errors import ImplementationError
from sparse_core.kernels.choices import device_name, replay_times
from sparse_core.nm.linear import decode_cuda, execution, vendor
from sparse_core.nm.linear.choice import TUNER, LinearCase, LinearChoice, row_bucket
from sparse_core.nm.linear.common import LinearEpilogue
from sparse_core.nm.linear.cusparselt.library import checked_algorithms, load
from sparse_core.nm.linear.cusparselt.plan import plan
from sparse_core.nm.linear.launch_plans import Call
from sparse_core.nm.packing.packed_weight import PackedNM

MARGIN = 1.02
"""A sparse method must beat dense by this factor; less is noise."""

_FLUSH_BYTES = 256 << 20
_ROUNDS = 11
_FINALISTS = 4
_TOLERANCE = 0.02
#: Total size of dense weight copies that finalists cycle through, so that none is in the cache.
_ROTATED_BYTES = 150e6
_MOST_COPIES = 16
_MOST_ROTATED_ROWS = 2048
_GRAPH_US = 200.0


def choose(
    weight: PackedNM,
    rows: int,
    bias: Tensor | None,
    dense: Tensor | None,
    scale: Tensor | None,
    epilogue: LinearEpilogue,
) -> LinearChoice:
    """Return the choice for a row count; measure it if it is unknown and allowed.

    During the capture of a CUDA graph nothing can be measured or compiled. Then it is cuSPARSELt's choice at
    the nearest row count, or dense.
    """
    case = case_of(weight, rows, epilogue, unpacks=dense is None)
    if torch.cuda.is_current_stream_capturing():
        return _while_capturing(TUNER.lookup(case) or TUNER.nearest(case), weight, epilogue.out_dtype)

    def usable(choice: LinearChoice) -> bool:
        return _is_possible(choice, weight, rows, epilogue.out_dtype)

    def fallback() -> LinearChoice:
        close = TUNER.nearest(case)
        return close if close is not None and usable(close) else LinearChoice("dense")

    def measured() -> LinearChoice:
        return measure(weight, case.rows, bias, dense, scale, epilogue)

    may_measure = execution.plans_of(weight).may_pad
    try:
        return TUNER.choose(case, usable=usable, fallback=fallback, measure=measured if may_measure else None)
    except torch.OutOfMemoryError:
        return LinearChoice("dense")


def _while_capturing(choice: LinearChoice | None, weight: PackedNM, out_dtype: torch.dtype) -> LinearChoice:
    ready = execution.plans_of(weight).buffer is not None and vendor.supports(weight, out_dtype)
    if choice is None or choice.method != "vendor" or not ready:
        return LinearChoice("dense")
    return choice


def case_of(weight: PackedNM, rows: int, epilogue: LinearEpilogue, *, unpacks: bool) -> LinearCase:
    """Return the key of a product's choice; ``unpacks`` if there is no dense copy."""
    try:
        version = ".".join(map(str, load().version))
    except ImplementationError:
        version = "none"
    return LinearCase(
        device_name(weight.device.index),
        version,
        str(weight.dtype),
        str(epilogue.out_dtype),
        epilogue.activation or "none",
        *weight.shape,
        "packed" if unpacks else "dense",
        row_bucket(rows, vendor.row_step(weight.dtype)),
    )


def candidates(weight: PackedNM, rows: int, epilogue: LinearEpilogue) -> list[LinearChoice]:
    """Return the sparse choices that support this product."""
    out_dtype = epilogue.out_dtype
    found = []
    fitting = execution.weight_for("cuda", weight, out_dtype) if rows <= decode_cuda.MOST_ROWS else None
    if fitting is not None:
        found += [
            LinearChoice("cuda", number)
            for number, variant in enumerate(decode_cuda.VARIANTS)
            if decode_cuda.variant_fits(variant, fitting.shape[0], rows)
        ]
    fitting = execution.weight_for("vendor", weight, out_dtype)
    if fitting is not None and execution.prepare(fitting, out_dtype).buffer is not None:
        step = vendor.row_step(weight.dtype)
        product = vendor.product_of(-(-rows // step) * step, fitting, epilogue)
        with contextlib.suppress(ImplementationError):
            offered = plan(weight.device.index, product, 0, epilogue.has_bias).algorithms
            found += [
                LinearChoice("vendor", number)
                for number in checked_algorithms(weight.device.index, weight.dtype, offered)
            ]
    return found


def measure(
    weight: PackedNM,
    rows: int,
    bias: Tensor | None,
    dense: Tensor | None,
    scale: Tensor | None,
    epilogue: LinearEpilogue,
) -> LinearChoice:
    """Time every method and return the fastest correct one.

    A method whose result differs from the dense product by more than rounding is excluded. The others are
    called twice with a flushed cache. The fastest few are compared with dense in CUDA graphs that cycle
    through copies of the weight, as a model cycles through its layers. A sparse method has to beat dense by
    :data:`MARGIN`.
    """
    with torch.inference_mode(False), torch.no_grad():
        x = _input(rows, weight)
        plain = LinearChoice("dense")
        tensors = (x, bias, dense, scale)  # without a dense copy, the dense product unpacks every time
        expected = execution.make_call(plain, weight, rows, epilogue)(*tensors)
        calls = {}
        for way in candidates(weight, rows, epilogue):
            call = _correct_call(way, weight, epilogue, tensors, expected)
            if call is not None:
                calls[way] = call
        del expected
        if not calls:
            return plain
        first = _flushed_times(calls, tensors)
        finalists = sorted(first, key=lambda way: first[way])[:_FINALISTS]
        times = _rotated_times([plain, *finalists], first[finalists[0]], weight, epilogue, tensors)
    slow = times.pop(plain)
    best = min(times, key=lambda way: times[way])
    if times[best] * MARGIN <= slow:
        return LinearChoice(best.method, best.variant, times[best], slow)
    return LinearChoice("dense", 0, slow, slow)


_Tensors = tuple[Tensor, "Tensor | None", "Tensor | None", "Tensor | None"]


def _is_possible(choice: LinearChoice, weight: PackedNM, rows: int, out_dtype: torch.dtype) -> bool:
    """Return True if a stored choice, possibly of another version, supports this product."""
    if choice.method == "dense":
        return True
    fitting = execution.weight_for(choice.method, weight, out_dtype)
    if fitting is None:
        return False
    if choice.method == "vendor":
        return choice.variant in checked_algorithms(weight.device.index, weight.dtype, choice.variant + 1)
    return (
        rows <= decode_cuda.MOST_ROWS
        and 0 <= choice.variant < len(decode_cuda.VARIANTS)
        and decode_cuda.variant_fits(decode_cuda.VARIANTS[choice.variant], fitting.shape[0], rows)
    )


def _input(rows: int, weight: PackedNM) -> Tensor:
    generator = torch.Generator(device=weight.device).manual_seed(0)
    shape = (rows, weight.shape[1])
    if weight.dtype == torch.int8:
        return torch.randint(-127, 128, shape, dtype=torch.int8, device=weight.device, generator=generator)
    return torch.randn(shape, dtype=weight.dtype, device=weight.device, generator=generator)


def _correct_call(
    way: LinearChoice, weight: PackedNM, epilogue: LinearEpilogue, tensors: _Tensors, expected: Tensor
) -> Call | None:
    """Return the call of a choice if its result is correct, else None."""
    # The result probably reuses this memory: a method that writes nothing must not find correct numbers.
    poison = float("nan") if expected.is_floating_point() else -(2**31)
    torch.empty_like(expected).fill_(poison)
    try:
        call = execution.make_call(way, weight, len(tensors[0]), epilogue)
        result = call(*tensors)
    except ImplementationError:
        return None
    if expected.dtype == torch.int32:
        return call if torch.equal(result, expected) else None
    # Half precision may overflow with unrealistic weights; equal infinities are correct.
    finite = expected.isfinite()
    difference = torch.where(finite, (result - expected).abs(), 0).amax()
    largest = torch.where(finite, expected.abs(), 0).amax()
    right = bool((difference <= _TOLERANCE * largest) & (result.isfinite() == finite).all())
    return call if right else None


def _flushed_times(calls: dict[LinearChoice, Call], tensors: _Tensors) -> dict[LinearChoice, float]:
    """Return the smaller time of two calls each, in microseconds, with a flushed cache."""
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device=tensors[0].device)
    times = dict.fromkeys(calls, math.inf)
    for _ in range(2):
        events = {}
        for way, call in calls.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()  # also keeps the device busy until the call is enqueued
            start.record()
            call(*tensors)
            end.record()
            events[way] = (start, end)
        torch.cuda.synchronize(flush.device)
        for way, (start, end) in events.items():
            times[way] = min(times[way], start.elapsed_time(end) * 1e3)
    return times


def _rotated_times(
    ways: list[LinearChoice],
    estimate_us: float,
    weight: PackedNM,
    epilogue: LinearEpilogue,
    tensors: _Tensors,
) -> dict[LinearChoice, float]:
    """Return the median microseconds per call of each method, in CUDA graphs with interleaved replays."""
    x, bias, dense, scale = tensors
    rows, copies = len(x), 1
    if rows <= _MOST_ROTATED_ROWS:
        nbytes = weight.shape[0] * weight.shape[1] * weight.dtype.itemsize
        copies = max(2, min(_MOST_COPIES, math.ceil(_ROTATED_BYTES / nbytes)))
    weights = [weight] + [_copy(weight) for _ in range(copies - 1)]
    matrices = [dense] + [None if dense is None else dense.clone() for _ in range(copies - 1)]
    count = max(copies, min(_MOST_COPIES, math.ceil(_GRAPH_US / max(estimate_us, 1.0))))
    stream = _side_stream(x.device)
    stream.wait_stream(torch.cuda.current_stream(x.device))
    graphs = {}
    for way in ways:
        calls = [execution.make_call(way, entry, rows, epilogue) for entry in weights]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            calls[0](x, bias, dense, scale)  # allocations of a first call must not belong to the graph
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                for index in range(count):
                    calls[index % copies](x, bias, matrices[index % copies], scale)
            finally:
                graph.capture_end()
        graphs[way] = graph
    torch.cuda.current_stream(x.device).wait_stream(stream)
    return replay_times(graphs, x.device, rounds=_ROUNDS, calls=count)


def _copy(weight: PackedNM) -> PackedNM:
    """Return the weight with its plans in other memory."""
    plans = execution.plans_of(weight)
    copy = weight.with_values(weight.values.detach().clone())
    copy.plans["cuda"] = execution.PreparedWeight(
        None if plans.buffer is None else plans.buffer.clone(),
        None if plans.metadata is None else plans.metadata.clone(),
    )
    if plans.aligned is not None:
        execution.plans_of(copy).aligned = _copy(plans.aligned)
    return copy


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
