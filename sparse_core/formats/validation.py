"""Checks of constructor arguments: cheap ones of sizes and types, full ones of every element.

Cheap checks never read an element. Full checks take few passes over valid arrays; only after an error they
search for the first wrong position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: Types of stored values.
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
INT64_MAX = int(torch.iinfo(torch.int64).max)


def can_read(array: Tensor) -> bool:
    """True if elements can be read now: not on meta, inside torch.compile or during CUDA graph capture."""
    if array.is_meta or torch.compiler.is_compiling():
        return False
    return not (array.is_cuda and torch.cuda.is_current_stream_capturing())


def check_shape(shape: tuple[int, int]) -> tuple[int, int]:
    """Return ``shape`` as two plain ints."""
    try:
        sizes = tuple(int(size) for size in shape)
        integral = all(size == given for size, given in zip(sizes, shape, strict=True))
    except (ValueError, OverflowError):  # Words, NaN, infinity.
        sizes, integral = (), False
    except TypeError:
        raise TypeError(f"shape must be two integers (rows, columns), got {shape!r}") from None
    if len(sizes) != 2 or not integral:
        raise ValueError(f"shape must be two integers (rows, columns), got {tuple(shape)}")
    if min(sizes) < 0:
        raise ValueError(f"shape must not be negative, got {sizes}")
    if max(sizes) > INT64_MAX:
        raise ValueError(f"shape must be below 2^63, the limit of int64 indices, got {sizes}")
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
    supported = ", ".join(str(dtype).removeprefix("torch.") for dtype in VALUE_DTYPES)
    advice = f"convert with {name}.to(torch.{'float64' if wide else 'float32'})"
    raise TypeError(f"{name} must be one of {supported}; got {values.dtype}: {advice}")


def require_dense(dense: Any) -> Tensor:
    """Return a dense matrix (M, N), floating or complex, as a tensor; raise if it is not one."""
    tensor = torch.as_tensor(dense)
    check_values_dtype(tensor, "dense")
    if tensor.ndim != 2:
        raise ValueError(f"dense must be two-dimensional, got shape {tuple(tensor.shape)}")
    return tensor


def check_indices(sizes: tuple[int, ...], device: torch.device, **arrays: Tensor) -> None:
    """Check types, ranks and devices of the index tensors of one matrix.

    Args:
        sizes: dimensions and entry counts that the index type must hold.
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
            f"int32 overflow: {names} are int32 but must hold {max(sizes)}, above {INT32_MAX};"
            " pass them as int64 (x.to(torch.int64))"
        )


def check_lengths(lengths: Tensor, count: int, device: torch.device) -> None:
    """Check type, shape and device of the row lengths of a padded format."""
    if not isinstance(lengths, Tensor) or lengths.dtype != torch.int32:
        raise TypeError(f"lengths must be an int32 tensor, got {getattr(lengths, 'dtype', type(lengths))}")
    check_size("lengths", lengths, (count,), "one length per row")
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
    """Return the flat position of the first true element, or None."""
    if not bool(mask.any()):
        return None
    return int(mask.reshape(-1).to(torch.uint8).argmax())


def check_range(name: str, array: Tensor, limit: int, row_of: Callable[[int], int] | None = None) -> None:
    """Check that every element is in 0..limit - 1.

    Args:
        limit: exclusive upper bound.
        row_of: returns the row of a flat position, for the message.
    """
    if array.numel() == 0:
        return
    low, high = torch.aminmax(array)
    if int(low) >= 0 and int(high) < limit:
        return
    at = first_true((array < 0) | (array >= limit)) or 0
    where = f" (row {row_of(at)})" if row_of is not None else ""
    allowed = f"outside 0..{limit - 1}" if limit else "but nothing is allowed: the dimension is empty"
    raise ValueError(f"{element(name, array, at)} is {int(array.reshape(-1)[at])}, {allowed}{where}")


def row_finder(pointers: Tensor) -> Callable[[int], int]:
    """Return a function that finds the row of an entry by its position."""
    return lambda at: int(torch.searchsorted(pointers.contiguous(), at, right=True)) - 1


def element(name: str, array: Tensor, at: int) -> str:
    """Return ``name[i, j]`` for flat position ``at``."""
    position = []
    for size in reversed(array.shape):
        position.append(at % size)
        at //= size
    return f"{name}[{', '.join(str(index) for index in reversed(position))}]"


def check_pointers(name: str, pointers: Tensor, total: int) -> None:
    """Check that row pointers ascend from 0 to ``total``."""
    falls = pointers[1:] < pointers[:-1]
    if bool(falls.any()):
        at = first_true(falls) or 0
        raise ValueError(
            f"{name}[{at + 1}] is {int(pointers[at + 1])}, below {name}[{at}] = {int(pointers[at])}:"
            " it must not fall"
        )
    if int(pointers[0]) != 0:
        raise ValueError(f"{name}[0] is {int(pointers[0])}, expected 0")
    last = len(pointers) - 1
    if int(pointers[last]) != total:
        raise ValueError(f"{name}[{last}] is {int(pointers[last])}, expected {total}, the number of entries")


def rises(col: Tensor, pointers: Tensor) -> bool:
    """True if columns strictly ascend within each row, given valid row pointers."""
    return not bool(_falls(col, pointers).any())


def _falls(col: Tensor, pointers: Tensor) -> Tensor:
    # (nnz + 1,) bool, True if an entry does not come after the one before it in its row. The last element is
    # for the pointers of empty rows at the end.
    falls = torch.zeros(len(col) + 1, dtype=torch.bool, device=col.device)
    torch.le(col[1:], col[:-1], out=falls[1:-1])
    return falls.index_fill_(0, pointers.long(), False)


def check_rising(name: str, col: Tensor, pointers: Tensor, advice: str, row_name: str = "row") -> None:
    """Check that columns strictly ascend within each row.

    Args:
        col: (nnz,) columns, row by row.
        pointers: (M + 1,) valid row pointers.
    """
    falls = _falls(col, pointers)
    if not bool(falls.any()):
        return
    at = first_true(falls) or 0
    found = (f"{name}[{at}]", int(col[at])), (f"{name}[{at - 1}]", int(col[at - 1]))
    raise order_error(*found, row_finder(pointers)(at), advice, row_name)


def order_error(
    entry: tuple[str, int], before: tuple[str, int], row: int, advice: str, row_name: str = "row"
) -> ValueError:
    """Return the error for an entry that does not come after the one before it; each is (place, column)."""
    if entry[1] == before[1]:
        return ValueError(
            f"{row_name} {row}: {entry[0]} = {entry[1]} repeats {before[0]}:"
            f" an entry may be stored once only ({advice})"
        )
    return ValueError(
        f"{row_name} {row}: {entry[0]} = {entry[1]} comes after {before[1]}:"
        f" columns must rise within a {row_name} ({advice})"
    )


def check_padding(name: str, array: Tensor, padding: Tensor) -> None:
    """Check that ``array`` is 0 wherever ``padding`` is true."""
    at = first_true(padding & (array.detach() != 0))
    if at is not None:
        found = array.detach().reshape(-1)[at].item()
        raise ValueError(f"{element(name, array, at)} is padding and must be 0, got {found}")
