"""The packed product on a CUDA device: preparation of a weight, and each method to run it."""

from __future__ import annotations

import contextlib
import threading
import weakref

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear, pad

from sparse_core.errors import ImplementationError
from sparse_core.kernels.launch_plan import Step, make_launcher, plans_enabled
from sparse_core.nm.linear import decode_cuda, vendor
from sparse_core.nm.linear.choice import LinearChoice, Method
from sparse_core.nm.linear.common import LinearEpilogue, apply_activation
from sparse_core.nm.linear.cusparselt.plan import plan
from sparse_core.nm.linear.launch_plans import Call, Launches, PlannedCall
from sparse_core.nm.linear.reference import int8_linear
from sparse_core.nm.packing.packed_weight import PackedNM
from sparse_core.nm.packing.positions import pack_index

_MOST_PADDED_ROWS = 64
_OUT_TILE, _COLUMN_TILE = 64, 128
_MOST_CALLS = 4096
_preparing = threading.RLock()
_owners: weakref.WeakValueDictionary[int, PackedNM] = weakref.WeakValueDictionary()


class PreparedWeight:
    """Preparations of a weight on CUDA; stored in ``PackedNM.plans``.

    Attributes:
        buffer: the weight compressed for cuSPARSELt, or ``None`` before the first use.
        metadata: positions in the order of the kernel for few rows, or ``None`` before the first use.
        aligned: the weight padded with zeros to whole tiles, if it needs them.
        may_pad: True if ``aligned`` may be made; False for plans that do not outlive a call.
        calls: earlier products by shape and epilogue.
    """

    __slots__ = ("aligned", "buffer", "calls", "may_pad", "metadata")

    def __init__(
        self, buffer: Tensor | None = None, metadata: Tensor | None = None, *, may_pad: bool = True
    ) -> None:
        self.buffer = buffer
        self.metadata = metadata
        self.aligned: PackedNM | None = None
        self.may_pad = may_pad
        self.calls: dict[object, Call] = {}

    def follows(self, values: Tensor) -> bool:
        """Return True if in-place changes of the values reach the compressed buffer."""
        return self.buffer is None or self.buffer.data_ptr() == values.data_ptr()

    def keep(self, key: object, call: Call) -> None:
        """Store a product for the next call; the cache is cleared when it is full."""
        if len(self.calls) >= _MOST_CALLS:
            self.calls.clear()
        self.calls[key] = call


def plans_of(weight: PackedNM) -> PreparedWeight:
    """Return the preparations of a weight, empty at first."""
    plans = weight.plans.get("cuda")
    if not isinstance(plans, PreparedWeight):
        plans = PreparedWeight()
        weight.plans["cuda"] = plans
    return plans


def weight_for(method: Method, weight: PackedNM, out_dtype: torch.dtype) -> PackedNM | None:
    """Return the weight for a method (``"cuda"`` or ``"vendor"``): itself, or padded to whole tiles.

    Returns ``None`` if the method does not support the type or the pattern.
    """

    def fits(candidate: PackedNM) -> bool:
        return decode_cuda.supports(candidate) if method == "cuda" else vendor.supports(candidate, out_dtype)

    if fits(weight):
        return weight
    out, columns = weight.shape
    if out == 0 or columns == 0 or (weight.pattern.n, weight.pattern.m) != (2, 4):
        return None
    types = decode_cuda.ELEMENTS if method == "cuda" else vendor.results(weight.dtype)
    plans = plans_of(weight)
    if (weight.dtype if method == "cuda" else out_dtype) not in types or not plans.may_pad:
        return None
    if plans.aligned is None:
        _refuse_capture()
        with torch.inference_mode(False), torch.no_grad():
            plans.aligned = _pad_weight(weight, -out % _OUT_TILE, -columns % _COLUMN_TILE)
    return plans.aligned if fits(plans.aligned) else None


def _pad_weight(weight: PackedNM, more_out: int, more_columns: int) -> PackedNM:
    """Return the weight with rows and columns of zeros added."""
    out, columns = weight.shape
    values = pad(weight.values.detach(), (0, more_columns // 2, 0, more_out))
    positions = torch.tensor([0, 1], dtype=torch.uint8, device=weight.device)
    index = positions.expand(out + more_out, (columns + more_columns) // 4, 2).clone()
    index[:out, : columns // 4] = weight.index()
    shape = (out + more_out, columns + more_columns)
    return PackedNM(values, pack_index(index, weight.pattern), shape, weight.pattern)


def _version(weight: PackedNM) -> int:
    """Return the number of in-place changes; tensors of inference mode count none."""
    values = weight.values
    return 0 if values.is_inference() else values._version


def _refuse_capture() -> None:
    if torch.cuda.is_current_stream_capturing():
        raise ImplementationError(
            "the packed weight is not prepared yet: call the layer once before capturing a CUDA graph"
        )


def prepare(weight: PackedNM, out_dtype: torch.dtype) -> PreparedWeight:
    """Prepare a weight for every sparse method that supports it."""
    plans = plans_of(weight)
    missing_metadata = plans.metadata is None and decode_cuda.supports(weight)
    missing_buffer = plans.buffer is None and vendor.supports(weight, out_dtype)
    if not (missing_metadata or missing_buffer):
        return plans
    _refuse_capture()
    with _preparing, torch.inference_mode(False), torch.no_grad():
        if missing_metadata and plans.metadata is None:
            plans.metadata = decode_cuda.reorder_metadata(weight)
        if missing_buffer and plans.buffer is None:
            with contextlib.suppress(ImplementationError):
                plans.buffer = vendor.compress_in_place(weight)
    anchor = plans.buffer if plans.metadata is None else plans.metadata
    if anchor is not None:
        _owners[anchor.data_ptr()] = weight
    return plans


def owner_of(values: Tensor, buffer: Tensor | None, metadata: Tensor | None) -> PackedNM | None:
    """Return the weight whose plans hold these tensors, because compiled code has only the tensors.

    A live tensor shares its address with no other, so the address identifies the weight.
    """
    anchor = buffer if metadata is None else metadata
    weight = None if anchor is None else _owners.get(anchor.data_ptr())
    plans = None if weight is None else weight.plans.get("cuda")
    if weight is None or not isinstance(plans, PreparedWeight):
        return None
    found = (weight.values, plans.buffer, plans.metadata)
    same = all(_address(a) == _address(b) for a, b in zip(found, (values, buffer, metadata), strict=True))
    return weight if same else None


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def make_call(choice: LinearChoice, weight: PackedNM, rows: int, epilogue: LinearEpilogue) -> Call:
    """Return a function of input, bias, dense weight and scale that computes a product by a choice."""
    if choice.method == "dense":
        return _dense_call(weight, epilogue)
    fitting = weight_for(choice.method, weight, epilogue.out_dtype)
    if choice.method == "cuda" and (fitting is None or rows > decode_cuda.MOST_ROWS):
        raise ImplementationError(
            f"the kernel for few rows takes at most {decode_cuda.MOST_ROWS} rows and 16-bit 2:4 weights;"
            f" got {rows} rows, {weight.pattern}, {weight.dtype}"
        )
    if fitting is None:
        raise ImplementationError(
            f"cuSPARSELt does not take a {weight.pattern} weight of {weight.dtype} {weight.shape}"
            f" with a {epilogue.out_dtype} result"
        )
    plans = prepare(fitting, epilogue.out_dtype)
    call: Call
    if choice.method == "cuda":
        call = _FewRowsCall(choice.variant, fitting, plans, rows, epilogue)
    else:
        call = _library_call(choice.variant, fitting, plans, rows, epilogue)
    return call if fitting is weight else _padded_call(call, weight, fitting)


def with_launch_plan(call: Call, choice: LinearChoice, weight: PackedNM) -> Call:
    """Wrap a call to keep it for later calls of the same sizes; unchanged if launch plans are disabled."""
    if not plans_enabled():
        return call
    launches = call.launches if isinstance(call, _FewRowsCall | _LibraryCall) else None
    return PlannedCall(call, weight.values, launches, is_dense=choice.method == "dense")


def _padded_call(call: Call, weight: PackedNM, fitting: PackedNM) -> Call:
    """Return a product with the padded weight, for inputs and results of the true sizes."""
    out, columns = weight.shape
    more_out, more_columns = fitting.shape[0] - out, fitting.shape[1] - columns
    version = _version(weight)

    def outer(x: Tensor, bias: Tensor | None, dense: Tensor | None, scale: Tensor | None) -> Tensor:
        nonlocal version
        if version != _version(weight):
            # The copy's values live in the library's buffer, so this reaches every method.
            with torch.no_grad():
                fitting.values[:out, : columns // 2].copy_(weight.values)
            version = _version(weight)
        x = pad(x, (0, more_columns)) if more_columns else x
        if not more_out:
            return call(x, bias, None, scale)
        bias = None if bias is None else pad(bias, (0, more_out))
        scale = None if scale is None else pad(scale, (0, more_out))
        return call(x, bias, None, scale)[:, :out].contiguous()

    return outer


def _dense_call(weight: PackedNM, epilogue: LinearEpilogue) -> Call:
    activation = epilogue.activation

    def call(x: Tensor, bias: Tensor | None, dense: Tensor | None, scale: Tensor | None) -> Tensor:
        if torch.is_autocast_enabled("cuda"):
            # The operands already have the type of the result.
            with torch.autocast("cuda", enabled=False):
                return call(x, bias, dense, scale)
        matrix = weight.to_dense() if dense is None else dense
        if x.dtype != torch.int8:
            y = linear(x, matrix, bias)
            return y if activation is None else apply_activation(y, activation)
        return dense_int8(x, matrix, bias, scale, epilogue)

    return call


def dense_int8(
    x: Tensor, matrix: Tensor, bias: Tensor | None, scale: Tensor | None, epilogue: LinearEpilogue
) -> Tensor:
    """Return the dense int8 product, computed by cuBLAS if it supports the shapes."""
    activation, out_dtype = epilogue.activation, epilogue.out_dtype
    if matrix.shape[0] % 8 or matrix.shape[1] % 8:
        return int8_linear(x, matrix, bias, activation=activation, scale=scale, out_dtype=out_dtype)
    rows = x.shape[0]
    if rows <= 16:  # cuBLAS needs more rows
        x = pad(x, (0, 0, 0, 32 - rows))
    total = torch._int_mm(x, matrix.T)[:rows]
    if out_dtype == torch.int32:
        return total
    result = total.float() if scale is None else total * scale
    if bias is not None:
        result = result + bias.float()
    return apply_activation(result, activation).to(out_dtype)


class _FewRowsCall:
    """A product by the kernel for few rows."""

    def __init__(
        self, variant: int, weight: PackedNM, plans: PreparedWeight, rows: int, epilogue: LinearEpilogue
    ) -> None:
        assert plans.metadata is not None
        chosen = decode_cuda.VARIANTS[variant]
        self._launch = decode_cuda.FewRowsLaunch(weight, plans.metadata, rows, epilogue.activation, chosen)
        self._shape, self._dtype = (rows, weight.shape[0]), epilogue.out_dtype

    def __call__(self, x: Tensor, bias: Tensor | None, dense: Tensor | None, scale: Tensor | None) -> Tensor:
        y = torch.empty(self._shape, dtype=self._dtype, device=x.device)
        self._launch(x, bias, y)
        return y

    def launches(self, bias: Tensor | None) -> Launches | None:
        """Return the kernel's launch."""
        launcher = make_launcher([self._launch.step(bias)])
        return None if launcher is None else Launches(launcher, None, self._launch)


def _library_call(
    algorithm: int, weight: PackedNM, plans: PreparedWeight, rows: int, epilogue: LinearEpilogue
) -> Call:
    if plans.buffer is None:
        raise ImplementationError(f"cuSPARSELt refused a weight of {weight.dtype} {weight.shape}")
    return _LibraryCall(algorithm, weight, plans, plans.buffer, rows, epilogue)


class _LibraryCall:
    """A product by cuSPARSELt, of any number of rows."""

    def __init__(
        self,
        algorithm: int,
        weight: PackedNM,
        plans: PreparedWeight,
        buffer: Tensor,
        rows: int,
        epilogue: LinearEpilogue,
    ) -> None:
        self._activation, self._out_dtype = epilogue.activation, epilogue.out_dtype
        self._buffer, self._rows = buffer, rows
        self._out, self._columns = weight.shape
        step = vendor.row_step(weight.dtype)
        left = rows % step
        self._padding = 0
        self._rest: decode_cuda.FewRowsLaunch | None = None
        if left and rows > _MOST_PADDED_ROWS and plans.metadata is not None:
            # The kernel for few rows is cheaper for the remaining rows than a padded copy of all.
            variant = decode_cuda.VARIANTS[0]
            self._rest = decode_cuda.FewRowsLaunch(weight, plans.metadata, left, self._activation, variant)
        elif left:
            self._padding, left = step - left, 0
        self._whole, self._left = rows + self._padding - left, left
        self._product = vendor.product_of(self._whole, weight, epilogue)
        self._planned = plan(weight.device.index, self._product, algorithm, epilogue.has_bias)

    def launches(self, bias: Tensor | None) -> Launches | None:
        """Return the library's call; None for int8, and if torch copies rows or applies GELU."""
        if self._padding or self._activation == "gelu" or self._product.dtype == torch.int8:
            return None
        steps: list[Step] = [self._planned.step(self._buffer, bias)]
        if self._rest is not None:
            size = self._out_dtype.itemsize
            shifts = self._whole * self._columns * size, self._whole * self._out * size
            steps.append(self._rest.step(bias, *shifts))
        launcher = make_launcher(steps, None if bias is None else self._planned.lock)
        return None if launcher is None else Launches(launcher, self._planned.scratch, self)

    def __call__(self, x: Tensor, bias: Tensor | None, dense: Tensor | None, scale: Tensor | None) -> Tensor:
        whole = self._whole
        if self._padding:
            x = pad(x, (0, 0, 0, self._padding))
        if bias is not None and bias.dtype != self._out_dtype:
            bias = bias.to(self._out_dtype)
        y = torch.empty((whole + self._left, self._out), dtype=self._out_dtype, device=x.device)
        self._planned(self._buffer, x, bias, scale, y)
        if self._activation == "gelu":
            y[:whole] = gelu(y[:whole])
        if self._rest is not None:
            self._rest(x[whole:], bias, y[whole:])
        return y[: self._rows] if self._padding else y
