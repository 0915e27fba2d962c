"""Measurement of the tiles of a convolution, and choice of the fastest correct ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sparse_core.conv.convolution import plan
from sparse_core.conv.convolution.choice import ConvolutionChoice, row_bucket
from sparse_core.conv.convolution.plan import ConvolutionConfig, Shape
from sparse_core.conv.convolution.types import Epilogue
from sparse_core.kernels.choices import replay_times

#: Share of table entries with an input, as for levels of a real scan.
_PRESENT = 0.7
_LAUNCHES, _ROUNDS, _FINALISTS = 20, 9, 3
_TOLERANCE = 0.02


def measure(shape: Shape, device: torch.device) -> ConvolutionChoice:
    """Time the candidates for a convolution, then variations of the best ones.

    The layer runs repeatedly on its own output in a CUDA graph, as in a network. Its table has the rows of
    the bucket, and each tap reads nearby rows. Tiles that cannot run, or whose result differs from the
    reference beyond rounding, are excluded.

    Args:
        shape: sizes; rows are rounded by ``row_bucket``.
        device: a GPU.
    """
    shape = Shape(row_bucket(shape.rows), shape.channels_in, shape.channels_out, shape.taps, shape.dtype)
    with torch.inference_mode(False), torch.no_grad(), torch.cuda.device(device):
        bench = _ConvolutionBench(shape, device)
        times = bench.times(plan.candidates(shape))
        best = sorted(times, key=lambda config: times[config])[:_FINALISTS]
        close = [other for config in best for other in plan.refinements(config, shape)]
        finals = bench.times(list(dict.fromkeys([*best, *close])))
        if not finals:
            return ConvolutionChoice(plan.default_config(shape), 0.0)
    winner = min(finals, key=lambda config: finals[config])
    return ConvolutionChoice(winner, finals[winner])


class _ConvolutionBench:
    """One layer with random weights and a random table."""

    def __init__(self, shape: Shape, device: torch.device) -> None:
        generator = torch.Generator(device=device).manual_seed(0)

        def normal(*sizes: int) -> Tensor:
            return torch.randn(*sizes, device=device, generator=generator, dtype=torch.float32).to(
                shape.dtype
            )

        rows, taps = shape.rows, shape.taps
        self.features = normal(rows, shape.channels_in)
        self.weight = normal(taps, shape.channels_in, shape.channels_out) / (taps * shape.channels_in) ** 0.5
        near = torch.arange(rows, device=device) + torch.randint(
            -40, 41, (taps, rows), device=device, generator=generator
        )
        absent = torch.rand(taps, rows, device=device, generator=generator, dtype=torch.float32) > _PRESENT
        self.table = torch.where(absent, -1, near.clamp_(0, rows - 1)).int()
        self.count = torch.tensor([rows * 3 // 4], dtype=torch.int32, device=device)
        self.bias = torch.randn(shape.channels_out, device=device, generator=generator, dtype=torch.float32)
        self.outputs = [normal(rows, shape.channels_out) for _ in range(2)]
        self.square = shape.channels_in == shape.channels_out
        self.expected: Tensor | None = None

    def run(self, config: ConvolutionConfig, turn: int) -> Tensor:
        from sparse_core.conv.convolution.launch_triton import launch

        source = self.outputs[turn % 2] if self.square and turn else self.features
        epilogue = Epilogue(self.bias, relu=True, out=self.outputs[(turn + 1) % 2])
        return launch(source, self.weight, self.table, epilogue, config, count=self.count)

    def times(self, configs: Sequence[ConvolutionConfig]) -> dict[ConvolutionConfig, float]:
        """Return median microseconds per launch; replays are interleaved."""
        graphs = {config: graph for config in configs if (graph := self._capture(config)) is not None}
        return replay_times(graphs, self.features.device, rounds=_ROUNDS, calls=_LAUNCHES)

    def _capture(self, config: ConvolutionConfig) -> torch.cuda.CUDAGraph | None:
        if not self._is_correct(config):
            return None

        def calls() -> None:
            for turn in range(_LAUNCHES):
                self.run(config, turn)

        return _graph_of(calls)

    def _is_correct(self, config: ConvolutionConfig) -> bool:
        used = int(self.count)
        self.outputs[1].fill_(float("nan"))
        try:
            found = self.run(config, 0)[:used].float()
        # Triton's errors of tiles that do not fit or compile have no common base class.
        except Exception:
            return False
        if self.expected is None:
            self.expected = _reference_output(self)[:used]
        difference = (found - self.expected).abs().amax()
        return bool(difference <= _TOLERANCE * self.expected.abs().amax())


def _reference_output(bench: _ConvolutionBench) -> Tensor:
    from sparse_core.conv.convolution import reference

    return reference.fixed_convolution(
        bench.features, bench.weight, bench.table, bench.count, Epilogue(bench.bias, relu=True)
    ).float()


def _graph_of(calls: Callable[[], None]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            calls()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph
