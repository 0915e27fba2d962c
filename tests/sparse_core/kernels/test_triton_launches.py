"""Launch plans of Triton kernels: which launches become one, with kernels and a driver of the test's own."""

from __future__ import annotations

import copy
import ctypes
import inspect
import pickle
import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from sparse_core.formats import CSR, generators
from sparse_core.kernels import torch_internals, triton_launches
from sparse_core.kernels.launch_plan import SWITCH, KernelLaunch, KernelStep, Launcher, LaunchPlan, Place
from sparse_core.kernels.launches import RecordedLaunch, launch, record, scratch
from sparse_core.linalg.products import launch_plans
from sparse_core.linalg.products.launch_plans import multiply_by_plan

#: Bytes of each argument of the kernel, and of an address that Triton adds.
SIZES = [8, 8, 8, 4, 8]


def kernel_of(values: Tensor, x: Tensor, y: Tensor, count: int, ROWS: int = 4) -> None:
    """What the kernel does."""
    y.copy_(values.sum() * x[: len(y)])


def compiled(**settings: object) -> Any:
    types = {"values": "*fp32", "x": "*fp32", "y": "*fp32", "count": "i32", "ROWS": "constexpr"}
    metadata = SimpleNamespace(**{"num_warps": 4, "shared": 64, "launch_pdl": False} | settings)
    return SimpleNamespace(src=SimpleNamespace(signature=types), metadata=metadata, function=77)


class Kernel:
    """A kernel as Triton has it: ``kernel[grid](...)`` runs it and returns what it was compiled to."""

    signature = inspect.signature(kernel_of)

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            kernel_of(*arguments, **{name: one for name, one in options.items() if name == "ROWS"})
            return self.compiled

        return run


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_launches, "argument_sizes", lambda function: SIZES)


VALUES, X, Y = torch.randn(5), torch.randn(8), torch.randn(8)


def recorded(*arguments: Any, kernel: Kernel | None = None, grid: int = 2) -> RecordedLaunch:
    with record() as found:
        launch(kernel or KERNEL, grid, *(arguments or (VALUES, X, Y, 8)), ROWS=16, num_warps=4)
    (one,) = found.launches
    return one


KERNEL = Kernel(compiled())


@pytest.mark.usefixtures("sizes")
def test_a_launch_as_the_driver_gets_it() -> None:
    bound = triton_launches.bind([recorded()], (X, Y), ())
    assert bound is not None
    assert bound[0].launch.arguments == (VALUES, None, None, 8)
    steps = triton_launches.make_steps(bound)
    arguments = (struct.pack("<Q", VALUES.data_ptr()), bytes(8), bytes(8), struct.pack("<i", 8), bytes(8))
    places = (Place(1, 0, 0, 0), Place(2, 0, 1, 0))
    assert steps == [KernelStep(KernelLaunch(77, (2, 1, 1), (128, 1, 1), 64, b"", arguments), places)]


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize(
    "settings", [{"launch_cooperative_grid": True}, {"global_scratch_size": 4}, {"num_ctas": 2}]
)
def test_what_triton_does_more_for_has_no_steps(settings: dict[str, object]) -> None:
    bound = triton_launches.bind([recorded(kernel=Kernel(compiled(**settings)))], (X, Y), ())
    assert bound is not None
    assert triton_launches.make_steps(bound) is None


def test_sizes_that_do_not_fit_have_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = triton_launches.bind([recorded()], (X, Y), ())
    assert bound is not None
    for sizes in ([], [8, 8, 8, 8], [8, 8, 8]):
        monkeypatch.setattr(triton_launches, "argument_sizes", lambda function, sizes=sizes: sizes)
        assert triton_launches.make_steps(bound) is None


def test_tensors_that_are_not_clear() -> None:
    def bound(*arguments: Any, operands: Sequence[Tensor] = (X, Y), memory: Sequence[Tensor] = ()) -> bool:
        return triton_launches.bind([recorded(*arguments)], operands, memory) is not None

    assert bound()
    # An operand is there twice, in part, or not at all.
    assert not bound(X, X, Y, 8)
    assert not bound(VALUES, X[2:], Y[:6], 6)
    assert not bound(VALUES, VALUES, Y[:5], 5)
    assert not bound(operands=(X, Y, torch.randn(3)))
    # One address lies in two tensors.
    assert not bound(operands=(X, Y, X.view(2, 4)))
    # Of scratch memory a launch may take a part.
    memory = scratch(16, torch.float32, X.device)
    assert bound(memory[4:], X, Y, 8, memory=(memory,))
    # The interpreter compiles nothing.
    interpreted = recorded(kernel=Kernel(None))
    assert triton_launches.bind([interpreted], (X, Y), ()) is None


def test_calls_that_launch_the_same() -> None:
    def bound(one: RecordedLaunch, *operands: Tensor) -> list[triton_launches.BoundLaunch]:
        found = triton_launches.bind([one], operands, ())
        assert found is not None
        return found

    first = bound(recorded(), X, Y)
    other_x, other_y = torch.randn(8), torch.randn(8)
    assert triton_launches.are_same(first, bound(recorded(VALUES, other_x, other_y, 8), other_x, other_y))
    for other in (
        recorded(VALUES.clone(), X, Y, 8),
        recorded(VALUES, X, Y, 7),
        recorded(grid=3),
        recorded(kernel=Kernel(compiled())),
    ):
        assert not triton_launches.are_same(first, bound(other, X, Y))
    assert not triton_launches.are_same(first, [*first, *first])


# From the first call of a product to its plan, on a CPU that takes the place of a GPU.


class Driver:
    """Makes launchers of steps, which call the kernel at the addresses that they are given.

    Args:
        values: how many.
    """

    def __init__(self, values: int) -> None:
        self.launches, self._values = 0, values

    def launcher(self, steps: Sequence[KernelStep]) -> Launcher:
        (step,) = steps
        (of_values,) = struct.unpack("<Q", step.launch.arguments[0])
        (count,) = struct.unpack("<i", step.launch.arguments[3])

        def run(stream: int, *addresses: int) -> None:
            self.launches += 1
            x, y = (addresses[place.address] for place in step.places)
            kernel_of(tensor_at(of_values, self._values), tensor_at(x, count), tensor_at(y, count), count)

        return run


def tensor_at(address: int, count: int) -> Tensor:
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)


class Product:
    """The ordinary way of a product with a square matrix: one launch."""

    def __init__(self, matrix: CSR) -> None:
        self.matrix, self.calls = matrix, 0

    def __call__(self, x: Tensor) -> Tensor:
        return multiply_by_plan(self.matrix, x, lambda: self.ordinary(x))

    def ordinary(self, x: Tensor) -> Tensor:
        self.calls += 1
        y = torch.empty(len(x))
        launch(KERNEL, 2, self.matrix.values, x, y, len(x), ROWS=16)
        return y


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, matrix: CSR) -> Driver:
    made = Driver(len(matrix.values))
    monkeypatch.setattr(Tensor, "is_cuda", True)
    monkeypatch.setattr(torch_internals, "current_device", lambda: -1)
    monkeypatch.setattr(torch_internals, "raw_stream", lambda index: 6)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(launch_plans, "make_launcher", made.launcher)
    return made


@pytest.fixture
def matrix() -> CSR:
    return generators.random_uniform(32, per_row=3, seed=1)


@pytest.mark.usefixtures("sizes")
def test_the_third_product_has_a_plan(driver: Driver, matrix: CSR) -> None:
    product = Product(matrix)
    for turn in range(6):
        x = torch.randn(32)
        assert torch.equal(product(x), product.matrix.values.sum() * x)
        assert (product.calls, driver.launches) == (min(turn + 1, 2), max(turn - 1, 0))
    # Another layout of the operand, an operand that is followed and other values take the ordinary way.
    strided = torch.randn(64)[::2]
    assert torch.equal(product(strided), matrix.values.sum() * strided)
    product(torch.randn(32, requires_grad=True).exp())
    assert product.calls == 4
    matrix.values.mul_(2)
    assert torch.equal(product(x), matrix.values.sum() * x)
    assert product.calls == 4
    matrix.values = matrix.values.clone()
    product(x)
    assert (product.calls, driver.launches) == (5, 5)


@pytest.mark.usefixtures("sizes", "driver")
def test_plans_do_not_outlive_what_they_are_of(matrix: CSR) -> None:
    product = Product(matrix)
    for _ in range(3):
        product(torch.randn(32))
    assert [type(one) for one in matrix._plans.values()] == [LaunchPlan]
    for other in (matrix.with_values(matrix.values), copy.copy(matrix), pickle.loads(pickle.dumps(matrix))):
        assert not other._plans
    for count in range(80):
        multiply_by_plan(matrix, torch.randn(32, count + 1), lambda: torch.randn(3))
    assert len(matrix._plans) <= 32


@pytest.mark.usefixtures("sizes")
def test_the_switch_keeps_products_without_plan(
    driver: Driver, matrix: CSR, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(32)
    monkeypatch.setenv(SWITCH, "0")
    off = Product(matrix)
    without = [off(x) for _ in range(5)]
    assert (off.calls, driver.launches) == (5, 0)
    assert list(matrix._plans.values()) == [False]
    monkeypatch.setenv(SWITCH, "1")
    on = Product(matrix.with_values(matrix.values))
    made = [on(x) for _ in range(5)]
    assert (on.calls, driver.launches) == (2, 3)
    assert all(torch.equal(one, other) for one, other in zip(made, without, strict=True))


def test_nothing_is_recorded_on_a_cpu(matrix: CSR) -> None:
    Product(matrix)(torch.randn(32))
    assert not matrix._plans
