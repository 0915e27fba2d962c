"""A product that was done before with these sizes: its kernels alone are launched, not the library's call.

cuBLAS and cuSPARSELt take more of the host's time for a product than its launches. From its fourth call on,
a product is these launches at other addresses (:mod:`sparse_core.kernels.recording`): the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import linear

from sparse_core.kernels.gradients import perhaps_followed
from sparse_core.kernels.launch_plan import Relaunch
from sparse_core.kernels.recording import Scratch, record

_CALLS_BEFORE = 2
#: Larger results take the device longer than the host, and recording takes as much memory again, twice.
_MOST_BYTES = 64 << 20
#: cuBLAS chooses a kernel by how addresses are aligned; those of torch's allocator are.
_ALIGNED = 256

Call = Callable[[Tensor, "Tensor | None", "Tensor | None", "Tensor | None"], Tensor]
"""A product with everything fixed but its tensors: input (rows, in) contiguous, bias, dense weight, scale."""


class Again:
    """A product that records itself; takes what the call takes.

    Args:
        call: the product, with everything fixed but its tensors.
        values: of the weight.
        prepared: tensors that were made of the weight, and are kept by the call.
        shape, dtype: of the result.
        by_settings: whether the product is cuBLAS's, where settings of torch decide which kernel runs.
        records: whether to record it.
        scratch: memory that the call uses beside its operands, where it has any.

    Attributes:
        call, by_settings: as given.
    """

    def __init__(
        self,
        call: Call,
        values: Tensor,
        prepared: tuple[Tensor, ...],
        shape: tuple[int, int],
        dtype: torch.dtype,
        *,
        by_settings: bool,
        records: bool,
        scratch: Scratch | None = None,
    ) -> None:
        self.call, self._values, self._prepared = call, values, prepared
        self._shape, self._strides, self._dtype = shape, (shape[1], 1), dtype
        self.by_settings = by_settings
        self._settings: tuple[object, ...] = ()
        self._scratch = scratch
        small = shape[0] * shape[1] * dtype.itemsize <= _MOST_BYTES
        self._left = _CALLS_BEFORE if records and small else -1
        self._run: Relaunch | None = None
        self._device, self._index = values.device, values.get_device()
        self._fixed: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def recorded(self) -> bool | None:
        """Whether the launches are known; None where the next calls will tell."""
        return None if self._run is None and self._left >= 0 else self._run is not None

    def __call__(self, x: Tensor, bias: Tensor | None, dense: Tensor | None, scale: Tensor | None) -> Tensor:
        """The product (rows, out) of a contiguous x (rows, in)."""
        if self._run is None:
            return self._first(x, bias, dense, scale)
        y = self.again(x, bias, dense, scale, self._shape, self._strides)
        return self.call(x, bias, dense, scale) if y is None else y

    def again(
        self,
        x: Tensor,
        bias: Tensor | None,
        dense: Tensor | None,
        scale: Tensor | None,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> Tensor | None:
        """The product by its launches alone, once these are recorded.

        Args:
            x: (..., in) contiguous, on the current device.
            bias, dense, scale: as for the call.
            shape, strides: of the result, of which all dimensions but the last together are the rows.

        Returns:
            None where the call has to do it.
        """
        run, address = self._run, x.data_ptr()
        fixed = (
            self._values.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            0 if dense is None else dense.data_ptr(),
            0 if scale is None else scale.data_ptr(),
        )
        if (
            run is None
            or address % _ALIGNED
            or fixed != self._fixed
            or forward_ad._current_level >= 0
            or (self.by_settings and _settings() != self._settings)
        ):
            return None
        y = torch.empty_strided(shape, strides, dtype=self._dtype, device=self._device)
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        if self._scratch is None:
            run(stream, address, y.data_ptr())
        else:
            run(stream, address, y.data_ptr(), self._scratch(stream).address)
        return y

    def _first(self, x: Tensor, bias: Tensor | None, dense: Tensor | None, scale: Tensor | None) -> Tensor:
        """The product by its call, and what is learnt of it."""
        y = self.call(x, bias, dense, scale)
        if self._left < 0 or torch.cuda.is_current_stream_capturing():
            return y
        if self._left:
            self._left -= 1
            return y
        self._left = -1
        fits = y.is_contiguous() and (dense is None or dense.is_contiguous())
        if fits and not (x.data_ptr() | y.data_ptr()) % _ALIGNED:
            others = (self._values, *self._prepared, bias, dense, scale)
            self._fixed = (self._values.data_ptr(), _address(bias), _address(dense), _address(scale))
            self._settings = _settings() if self.by_settings else ()
            # Last: other threads that use the layer then see all of it.
            self._run = record(lambda one: self.call(one, bias, dense, scale), x, others, self._scratch)
        return y


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _settings() -> tuple[object, ...]:
    """What cuBLAS chooses by, beside the operands."""
    return (
        torch._C._get_cublas_allow_fp16_reduced_precision_reduction(),
        torch._C._get_cublas_allow_bf16_reduced_precision_reduction(),
        torch._C._get_cublas_allow_fp16_accumulation(),
        torch._C._get_blas_preferred_backend(),
    )


class Quick:
    """A layer's product for an input of one shape: what :class:`Again` does, without looking it up.

    Args:
        product: for these sizes, which has been recorded or cannot be.
        x: an input of the shape.
        values, bias, dense: of the layer.
        plain: whether the product is dense and nothing follows it.
    """

    def __init__(
        self,
        product: Again,
        x: Tensor,
        values: Tensor,
        bias: Tensor | None,
        dense: Tensor | None,
        *,
        plain: bool,
    ) -> None:
        self._product = product
        self._values, self._version, self._bias, self._dense = values, values._version, bias, dense
        self._dtype, self._index = x.dtype, x.get_device()
        self._shape = (*x.shape[:-1], values.shape[0])
        self._strides = torch.empty(self._shape, device="meta").stride()
        self._recorded = bool(product.recorded)
        self._matrix = dense if plain and x.ndim == 2 else None

    def __call__(self, x: Tensor, values: Tensor, bias: Tensor | None) -> Tensor | None:
        """What the layer gives; None where it has to go the whole way."""
        if (
            values is not self._values
            or bias is not self._bias
            or x.dtype is not self._dtype
            or x.get_device() != self._index
            or torch._C._cuda_getDevice() != self._index
            or values._version != self._version
            or not x.is_contiguous()
            or torch._C._is_any_autocast_enabled()
            or (perhaps_followed(x, values) if bias is None else perhaps_followed(x, values, bias))
        ):
            return None
        if self._recorded:
            y = self._product.again(x, bias, self._dense, None, self._shape, self._strides)
            if y is not None:
                return y
        if self._matrix is not None:
            return linear(x, self._matrix, bias)
        if x.data_ptr() % 16 or (bias is not None and (bias.data_ptr() % 16 or not bias.is_contiguous())):
            return None
        if x.ndim == 2:
            return self._product.call(x, bias, self._dense, None)
        return self._product.call(x.view(-1, x.shape[-1]), bias, self._dense, None).view(self._shape)
