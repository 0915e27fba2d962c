"""Products that were done before with operands of these shapes: nothing is checked or chosen again.

Checks, the choice of an implementation and Triton's own work before a launch take three times as long as
torch's product of a small matrix. A product that is one launch of one kernel is noted when it is done, and
from the third time on only that launch is repeated, on the same matrix: the same kernel, the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sparse_core.formats import SparseMatrix
from sparse_core.gradients import perhaps_followed

if TYPE_CHECKING:
    from sparse_core.launches import Launch, Repeated

#: Shapes of operands that a matrix remembers.
_MOST = 32
#: Triton compiles for addresses that this divides.
_ALIGNED = 16


class Again:
    """A product that is one launch.

    Args:
        repeated: the launch, with places for the addresses of the dense operand and the result.
        matrix, dense, result: of the product that was noted.
    """

    def __init__(self, repeated: Repeated, matrix: SparseMatrix, dense: Tensor, result: Tensor) -> None:
        self._repeated = repeated
        self._values = matrix.values.data_ptr()
        self._shape, self._dtype, self._device = result.shape, result.dtype, result.device
        self._strides = result.stride()
        self._index = dense.get_device()

    def __call__(self, matrix: SparseMatrix, dense: Tensor) -> Tensor | None:
        """The product; None where it has to go the whole way."""
        values = matrix.values
        if (
            perhaps_followed(dense, values)
            or dense.get_device() != self._index
            or torch._C._cuda_getDevice() != self._index
            or not dense.is_contiguous()
        ):
            return None
        address = dense.data_ptr()
        if address % _ALIGNED or values.data_ptr() != self._values:
            return None
        made = torch.empty_strided(self._shape, self._strides, dtype=self._dtype, device=self._device)
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        self._repeated(stream, address, made.data_ptr())
        return made


def again(matrix: object, dense: object, whole: Callable[[], Tensor]) -> Tensor:
    """The product, by what was noted where that fits, else by ``whole``.

    Args:
        matrix, dense: as the caller got them, unchecked.
        whole: the whole way; raises where something does not fit.
    """
    if type(dense) is not Tensor or not isinstance(matrix, SparseMatrix) or not dense.is_cuda:
        return whole()
    known = matrix._again
    key = (dense.shape, dense.dtype)
    found = known.get(key)
    if isinstance(found, Again):
        made = found(matrix, dense)
        return whole() if made is None else made
    if found is False or torch.cuda.is_current_stream_capturing():
        return whole()
    return _noted(matrix, dense, whole, found)


def _noted(matrix: SparseMatrix, dense: Tensor, whole: Callable[[], Tensor], before: Launch | None) -> Tensor:
    """The product; the matrix learns its launch, and from a second one whether it can be repeated."""
    from sparse_core.launches import Repeated, note

    with note() as launches:
        made = whole()
    key = (dense.shape, dense.dtype)
    if len(matrix._again) >= _MOST:
        matrix._again.clear()
    matrix._again[key] = False
    if len(launches) != 1 or launches[0].compiled is None or made.requires_grad:
        return made
    launched = launches[0]
    of_dense, of_made = _place_of(dense, launched), _place_of(made, launched)
    if of_dense is None or of_made is None or (made.data_ptr() | dense.data_ptr()) % _ALIGNED:
        return made
    places = of_dense, of_made
    launched = launched.without(places)
    if before is None:
        matrix._again[key] = launched
    elif _same(launched, before):
        matrix._again[key] = Again(Repeated(launched, places), matrix, dense, made)
    return made


def _place_of(tensor: Tensor, launched: Launch) -> int | None:
    """Where among the arguments a tensor, or a view of all of it, is; None for nowhere and for several."""
    places = [
        place
        for place, one in enumerate(launched.arguments)
        if isinstance(one, Tensor) and one.data_ptr() == tensor.data_ptr()
    ]
    fits = len(places) == 1 and launched.arguments[places[0]].numel() == tensor.numel()
    return places[0] if fits else None


def _same(launched: Launch, before: Launch) -> bool:
    """Whether two launches read the very same tensors and numbers: nothing was made for one call alone."""
    return (
        launched.compiled is before.compiled
        and launched.grid == before.grid
        and launched.options == before.options
        and len(launched.arguments) == len(before.arguments)
        and all(
            one is other if isinstance(one, Tensor) else one == other
            for one, other in zip(launched.arguments, before.arguments, strict=True)
        )
    )
