"""Products that were done before with operands of these shapes: nothing is checked or chosen again.

Checks, the choice of an implementation and Triton's own work before a launch take three times as long as
torch's product of a small matrix. The launches of a product are noted when it is done, and from the third
time on they alone are repeated, on the same matrix: the same kernels, the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sparse_core.formats import BSR, SparseMatrix
from sparse_core.kernels.gradients import perhaps_followed

if TYPE_CHECKING:
    from sparse_core.kernels.launches import Launch, Noted

#: Shapes of operands that a matrix remembers.
_MOST = 32
#: Bytes of scratch memory that are kept for each stream, and of how many streams.
_MOST_SCRATCH, _MOST_STREAMS = 1 << 20, 8
#: Behind the operand and the result.
_FIRST_SCRATCH = 2
#: Of a product of more launches Python is a small part.
_MOST_LAUNCHES = 4
#: Triton compiles for addresses that this divides.
_ALIGNED = 16

_Scratch = tuple[list[Tensor], tuple[int, ...]]
"""Tensors and their addresses."""


class Again:
    """A product that is a few launches.

    Args:
        noted: the launches.
        scratch: memory that they use between them.
        matrix, dense, result: of the product that was noted.

    Attributes:
        launches: how many.
    """

    def __init__(
        self,
        noted: list[Noted],
        scratch: list[Tensor],
        matrix: SparseMatrix,
        dense: Tensor,
        result: Tensor,
    ) -> None:
        from sparse_core.kernels.launches import Repeated

        self.launches = len(noted)
        self._run = Repeated(noted)
        self._scratch = [(one.shape, one.dtype) for one in scratch]
        small = sum(one.numel() * one.element_size() for one in scratch) <= _MOST_SCRATCH
        #: Scratch memory by stream, on which one product follows another.
        self._kept: dict[int, _Scratch] | None = {} if small else None
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
        if not self._scratch:
            self._run(stream, address, made.data_ptr())
            return made
        # Held until the launches are enqueued; what a stream does with it afterwards comes after them.
        _held, addresses = self._scratch_of(stream)
        self._run(stream, address, made.data_ptr(), *addresses)
        return made

    def _scratch_of(self, stream: int) -> _Scratch:
        """Scratch memory for a product on a stream; a graph that is captured has its own."""
        kept = self._kept
        if kept is None or torch.cuda.is_current_stream_capturing():
            return self._made_scratch()
        known = kept.get(stream)
        if known is None:
            if len(kept) >= _MOST_STREAMS:
                kept.clear()
            known = kept[stream] = self._made_scratch()
        return known

    def _made_scratch(self) -> _Scratch:
        made = [torch.empty(shape, dtype=dtype, device=self._device) for shape, dtype in self._scratch]
        return made, tuple(one.data_ptr() for one in made)


def again(matrix: object, dense: object, whole: Callable[[], Tensor]) -> Tensor:
    """The product, by what was noted where that fits, else by ``whole``.

    Args:
        matrix, dense: as the caller got them, unchecked.
        whole: the whole way; raises where something does not fit.
    """
    if type(dense) is not Tensor or not isinstance(matrix, SparseMatrix) or not dense.is_cuda:
        return whole()
    known = matrix._again
    # Tensor cores multiply blocks of float32 as precisely as torch is told to.
    setting = torch.get_float32_matmul_precision() if isinstance(matrix, BSR) else None
    key = (dense.shape, dense.dtype, setting)
    found = known.get(key)
    if isinstance(found, Again):
        made = found(matrix, dense)
        return whole() if made is None else made
    if found is False or torch.cuda.is_current_stream_capturing():
        return whole()
    return _noted(matrix, dense, whole, key, found)


def _noted(
    matrix: SparseMatrix,
    dense: Tensor,
    whole: Callable[[], Tensor],
    key: tuple[object, ...],
    before: list[Noted] | None,
) -> Tensor:
    """The product; the matrix learns its launches, and from a second one whether they can be repeated."""
    from sparse_core.kernels.launches import note

    with note() as notes:
        made = whole()
    if len(matrix._again) >= _MOST:
        matrix._again.clear()
    matrix._again[key] = False
    if not 1 <= len(notes.launches) <= _MOST_LAUNCHES or made.requires_grad:
        return made
    if (made.data_ptr() | dense.data_ptr()) % _ALIGNED:
        return made
    moving = [dense, made, *notes.scratch]
    noted = [_without(launched, moving) for launched in notes.launches]
    found = [one for one in noted if one is not None]
    used = {which for one in found for which, _ in one.moving}
    if len(found) != len(noted) or used != set(range(len(moving))):
        return made
    if before is None:
        matrix._again[key] = found
    elif _same(found, before):
        matrix._again[key] = Again(found, notes.scratch, matrix, dense, made)
    return made


def _without(launched: Launch, moving: list[Tensor]) -> Noted | None:
    """A launch without the tensors that change; None where it is not clear which of them it has."""
    from sparse_core.kernels.launches import Noted

    places: list[int] = []
    found: list[tuple[int, int]] = []
    for place, one in enumerate(launched.arguments):
        if not isinstance(one, Tensor):
            continue
        within = [
            (which, one.data_ptr() - tensor.data_ptr())
            for which, tensor in enumerate(moving)
            if 0 <= one.data_ptr() - tensor.data_ptr() < tensor.numel() * tensor.element_size()
        ]
        if not within:
            continue
        which, more = within[0]
        # The operand and the result are there once, and all of them; scratch memory may be a part of it.
        part = more != 0 or one.numel() != moving[which].numel()
        if len(within) > 1 or (which < _FIRST_SCRATCH and (part or which in {entry[0] for entry in found})):
            return None
        places.append(place)
        found.append(within[0])
    if launched.compiled is None:
        return None
    return Noted(launched.without(tuple(places)), tuple(places), tuple(found))


def _same(noted: list[Noted], before: list[Noted]) -> bool:
    """Whether two products read the very same tensors and numbers: nothing was made for one call alone."""
    return len(noted) == len(before) and all(
        (one.places, one.moving) == (other.places, other.moving) and _same_launch(one.launch, other.launch)
        for one, other in zip(noted, before, strict=True)
    )


def _same_launch(launched: Launch, before: Launch) -> bool:
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
