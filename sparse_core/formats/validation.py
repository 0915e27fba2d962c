"""Checks of constructor arguments: cheap ones on sizes and types, full ones on every element.

Cheap checks never read a CUDA tensor; full checks name the array and the first wrong position.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Types that stored values may have.
VALUE_DTYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)
INDEX_DTYPES = (torch.int32, torch.int64)
INT32_MAX = int(torch.iinfo(torch.int32).max)


def check_shape(shape: tuple[int, int]) -> tuple[int, int]:
    """``shape`` as two plain ints.

    Raises:
        TypeError: not two integers.
        ValueError: not two numbers, or a negative one.
    """
    try:
        sizes = tuple(int(size) for size in shape)
        integral = all(size == given for size, given in zip(sizes, shape, strict=True))
    except TypeError:
        raise TypeError(f"shape must be two integers (rows, columns), got {shape!r}") from None
    if len(sizes) != 2 or not integral:
        raise ValueError(f"shape must be two integers (rows, columns), got {tuple(shape)}")
    if min(sizes) < 0:
        raise ValueError(f"shape must not be negative, got {sizes}")
    return sizes[0], sizes[1]


def check_values_dtype(values: Tensor, name: str = "values") -> None:
    """Raise ``TypeError`` unless ``values`` is a tensor of a type in ``VALUE_DTYPES``."""
    if not isinstance(values, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(values).__name__}")
    if values.layout != torch.strided:
        raise TypeError(f"{name} must be a strided tensor, got layout {values.layout}")
    if values.dtype in VALUE_DTYPES:
        return
    wide = values.dtype in (torch.int32, torch.int64, torch.uint32, torch.uint64)
    known = ", ".join(str(dtype).removeprefix("torch.") for dtype in VALUE_DTYPES)
    advice = f"convert with {name}.to(torch.{'float64' if wide else 'float32'})"
    raise TypeError(f"{name} must be one of {known}; got {values.dtype}: {advice}")


def check_indices(sizes: tuple[int, ...], device: torch.device, **arrays: Tensor) -> None:
    """Check types, ranks and devices of the index tensors of one matrix.

    Args:
        sizes: dimensions and entry counts that the index type must hold.
        device: where the values are.
        arrays: index tensors by name.
    """
    first = next(iter(arrays))
    for name, array in arrays.items():
        if not isinstance(array, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(array).__name__}")
        if array.dtype not in INDEX_DTYPES:
            raise TypeError(f"{name} must be int32 or int64, got {array.dtype}")
        if array.dtype != arrays[first].dtype:
            raise TypeError(
                f"{name} is {array.dtype} but {first} is {arrays[first].dtype}:"
                " the index tensors of one matrix must agree"
            )
        if array.device != device:
            raise ValueError(f"{name} is on {array.device} but values are on {device}")
    if arrays[first].dtype == torch.int32 and max(sizes) > INT32_MAX:
        names = " and ".join(arrays)
        raise ValueError(
            f"int32 overflow: {names} are int32 but must count to {max(sizes)}, beyond {INT32_MAX};"
            " pass them as int64 (x.to(torch.int64))"
        )


def check_lengths(lengths: Tensor, count: int, device: torch.device) -> None:
    """Check type, shape and device of the row lengths of a padded format."""
    if not isinstance(lengths, Tensor) or lengths.dtype != torch.int32:
        raise TypeError(f"lengths must be an int32 tensor, got {getattr(lengths, 'dtype', type(lengths))}")
    check_size("lengths", lengths, (count,), "one length a row")
    if lengths.device != device:
        raise ValueError(f"lengths is on {lengths.device} but values are on {device}")


def check_size(name: str, array: Tensor, expected: tuple[int, ...], why: str) -> None:
    """Raise ``ValueError`` unless ``array`` has exactly the expected shape."""
    if tuple(array.shape) != expected:
        raise ValueError(f"{name} must have shape {expected} ({why}), got {tuple(array.shape)}")


def check_vector(name: str, array: Tensor) -> None:
    """Raise ``ValueError`` unless ``array`` is one-dimensional."""
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {tuple(array.shape)}")


def first_true(mask: Tensor) -> int | None:
    """Flat position of the first true element, None when there is none."""
    if not bool(mask.any()):
        return None
    return int(mask.reshape(-1).to(torch.uint8).argmax())


def check_range(name: str, array: Tensor, limit: int, rows: Tensor | None = None) -> None:
    """Full check that every element lies in 0..limit - 1.

    Args:
        name: for the message.
        array: any shape, integer.
        limit: elements must be below.
        rows: row of each element (same shape), to be named too.
    """
    at = first_true((array < 0) | (array >= limit))
    if at is None:
        return
    where = f" (row {int(rows.reshape(-1)[at])})" if rows is not None else ""
    allowed = f"outside 0..{limit - 1}" if limit else "but nothing is allowed: the dimension is empty"
    raise ValueError(f"{element(name, array, at)} is {int(array.reshape(-1)[at])}, {allowed}{where}")


def element(name: str, array: Tensor, at: int) -> str:
    """``name[i, j]`` of flat position ``at``."""
    position = []
    for size in reversed(array.shape):
        position.append(at % size)
        at //= size
    return f"{name}[{', '.join(str(index) for index in reversed(position))}]"


def check_pointer_ends(name: str, pointers: Tensor, total: int) -> None:
    """Check first and last element; they are read, so callers skip this for CUDA unless asked."""
    if int(pointers[0]) != 0:
        raise ValueError(f"{name}[0] is {int(pointers[0])}, expected 0")
    last = len(pointers) - 1
    if int(pointers[last]) != total:
        raise ValueError(f"{name}[{last}] is {int(pointers[last])}, expected {total}, the number of entries")


def check_pointers(name: str, pointers: Tensor, total: int) -> None:
    """Full check of row pointers: from 0 to ``total``, never falling."""
    at = first_true(pointers[1:] < pointers[:-1])
    if at is not None:
        raise ValueError(
            f"{name}[{at + 1}] is {int(pointers[at + 1])}, below {name}[{at}] = {int(pointers[at])}:"
            " it must not fall"
        )
    check_pointer_ends(name, pointers, total)


def check_rising(name: str, col: Tensor, rows: Tensor, advice: str, row_name: str = "row") -> None:
    """Full check that columns rise strictly within each row.

    Args:
        name: for the message.
        col: (nnz,) columns, row after row.
        rows: (nnz,) row of each.
        advice: how to mend it.
        row_name: "row" or "block row".
    """
    at = first_true((col[1:] <= col[:-1]) & (rows[1:] == rows[:-1]))
    if at is None:
        return
    row, here, before = int(rows[at]), int(col[at + 1]), int(col[at])
    if here == before:
        raise ValueError(
            f"{row_name} {row}: {name}[{at + 1}] = {here} repeats {name}[{at}]:"
            f" an entry may be stored once only ({advice})"
        )
    raise ValueError(
        f"{row_name} {row}: {name}[{at + 1}] = {here} comes after {before}:"
        f" columns must rise within a {row_name} ({advice})"
    )


def check_padding(name: str, array: Tensor, padding: Tensor) -> None:
    """Full check that ``array`` is 0 wherever ``padding`` is true."""
    at = first_true(padding & (array.detach() != 0))
    if at is not None:
        found = array.detach().reshape(-1)[at].item()
        raise ValueError(f"{element(name, array, at)} is padding and must be 0, got {found}")
