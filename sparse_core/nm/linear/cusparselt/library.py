"""The cuSPARSELt library of PyTorch's CUDA builds, loaded with ctypes."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import Any

import torch

from sparse_core.errors import ImplementationError

OLDEST = (0, 7, 0)
# Version 0.8 declares 512 bytes for every opaque structure, older ones up to 11 KB.
_OPAQUE_BYTES = 16384


class DataType(IntEnum):
    """``cudaDataType`` of the types used here."""

    FLOAT32 = 0
    FLOAT16 = 2
    INT8 = 3
    INT32 = 10
    BFLOAT16 = 14


class ComputeType(IntEnum):
    """``cusparseComputeType``: the type of the sums."""

    INT32 = 0
    FLOAT32 = 2


class Order(IntEnum):
    """``cusparseOrder_t``."""

    COLUMN = 1
    ROW = 2


class MatmulAttribute(IntEnum):
    """``cusparseLtMatmulDescAttribute_t``."""

    RELU = 0
    GELU = 3
    ALPHA_VECTOR_SCALING = 5
    BIAS_POINTER = 8


class AlgorithmAttribute(IntEnum):
    """``cusparseLtMatmulAlgAttribute_t``."""

    CONFIG_ID = 0
    CONFIG_MAX_ID = 1


DATA_TYPES = {
    torch.float32: DataType.FLOAT32,
    torch.float16: DataType.FLOAT16,
    torch.bfloat16: DataType.BFLOAT16,
    torch.int8: DataType.INT8,
    torch.int32: DataType.INT32,
}


class CusparseltError(ImplementationError):
    """A call of cuSPARSELt failed; the message has its name and the library's reason."""


def opaque_memory() -> ctypes.Array[ctypes.c_char]:
    """Return memory for one of the library's structures, aligned to 16 bytes."""
    buffer = ctypes.create_string_buffer(_OPAQUE_BYTES + 16)
    return (ctypes.c_char * _OPAQUE_BYTES).from_buffer(buffer, -ctypes.addressof(buffer) % 16)


class Library:
    """Functions of cuSPARSELt that raise exceptions for failures.

    Attributes:
        version: (major, minor, patch).
        raw: the ctypes library; call ``raw.cusparseLtMatmul`` to avoid this class's overhead.
    """

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        raw.cusparseLtGetErrorString.restype = ctypes.c_char_p
        value = ctypes.c_int()
        parts = []
        for kind in range(3):
            self.call("cusparseLtGetProperty", kind, ctypes.byref(value))
            parts.append(value.value)
        self.version = (parts[0], parts[1], parts[2])
        raw.cusparseLtMatmul.argtypes = [ctypes.c_void_p] * 10 + [ctypes.c_int32]
        raw.cusparseLtMatmul.restype = ctypes.c_int

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function by name; raises :class:`CusparseltError` unless it succeeds."""
        status = getattr(self.raw, name)(*arguments)
        if status:
            raise CusparseltError(f"{name} failed: {self.reason(status)}")

    def reason(self, status: int) -> str:
        """Return the library's text for a status."""
        text = self.raw.cusparseLtGetErrorString(status)
        return text.decode() if text else f"status {status}"


def _candidates() -> list[str]:
    names = []
    try:
        import nvidia  # type: ignore[import-not-found, unused-ignore]

        for root in nvidia.__path__:
            names += [str(path) for path in sorted(Path(root).glob("cusparselt/lib/libcusparseLt.so*"))]
    except ImportError:
        pass
    return [*names, "libcusparseLt.so.0", "libcusparseLt.so"]


@cache
def load() -> Library:
    """Load the library once.

    Raises:
        ImplementationError: it is missing or too old.
    """
    if not torch.cuda.is_available():
        raise ImplementationError("cuSPARSELt needs a CUDA device, and PyTorch sees none")
    for name in _candidates():
        try:
            # PyDLL keeps the interpreter's lock: giving it up costs more than calls that only enqueue.
            raw = ctypes.PyDLL(name)
        except OSError:
            continue
        library = Library(raw)
        if library.version < OLDEST:
            found = ".".join(map(str, library.version))
            wanted = ".".join(map(str, OLDEST))
            raise ImplementationError(f"cuSPARSELt {found} is older than {wanted}: update PyTorch")
        return library
    raise ImplementationError(
        "libcusparseLt was not found: PyTorch's CUDA wheels install it as nvidia-cusparselt"
    )


@cache
def handle(device_index: int) -> Any:
    """Return the library's handle of a device, created once."""
    library = load()
    result = opaque_memory()
    with torch.cuda.device(device_index):
        library.call("cusparseLtInit", result)
    return result


#: (library version, compute capability, type): algorithms that ran with and without bias and ReLU on 8 to
#: 65,536 rows; for float16 the first choice and those that were the fastest of 21 in some case. Not all can
#: be tried: for float16, version 0.8 has algorithms that bfloat16 lacks. Number 36 ends the process's use of
#: the GPU with an illegal instruction, also in the library's own search, and a plan takes 170 ms instead of
#: 1 ms. For other versions and GPUs only the first choice is used.
CHECKED: dict[tuple[tuple[int, int, int], tuple[int, int], torch.dtype], tuple[int, ...]] = {
    ((0, 8, 0), (9, 0), torch.bfloat16): tuple(range(21)),
    ((0, 8, 0), (9, 0), torch.float16): (0, 5, 6),
    ((0, 8, 0), (9, 0), torch.int8): tuple(range(25)),
}


def checked_algorithms(device_index: int, dtype: torch.dtype, offered: int) -> list[int]:
    """Return the algorithms that may be tried, rising, of the library's ``offered`` ones."""
    version, capability = load().version, torch.cuda.get_device_capability(device_index)
    return [number for number in CHECKED.get((version, capability, dtype), (0,)) if number < offered]
