"""CUDA C++ kernels compiled at first use with NVRTC, which PyTorch includes; needs no CUDA toolkit.

It serves the few kernels that need an instruction which Triton does not emit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from sparse_core.errors import ImplementationError

_POINTER = ctypes.c_void_p
#: Status in a thread that has not used the device yet.
INVALID_CONTEXT = 201
_DEFAULT_SHARED_BYTES = 48 * 1024
_MOST_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class _Attribute(ctypes.Structure):
    """``CUlaunchAttribute``."""

    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_char * 4), ("value", ctypes.c_int * 16)]


class _Config(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    ]


class Kernel:
    """A loaded kernel; ``function`` is its ``CUfunction`` as an integer."""

    def __init__(self, function: int, driver: Any) -> None:
        self.function = function
        self._driver = driver

    def prepare(
        self,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[Any],
        shared_bytes: int = 0,
        *,
        dependent: bool = False,
    ) -> Callable[[int], None]:
        """Fix grid and arguments; return a function that launches on a stream (``CUstream`` as an integer).

        Args:
            grid: blocks in x, y and z.
            threads: threads per block.
            arguments: ctypes objects (``c_void_p``, ``c_int``, ...) in the kernel's order. Every launch reads
                them, so their values may change in between.
            shared_bytes: dynamic shared memory.
            dependent: use programmatic dependent launch: the kernel waits with ``griddepcontrol.wait`` for
                the launch before it.
        """
        if shared_bytes > _DEFAULT_SHARED_BYTES:
            status = self._driver.cuFuncSetAttribute(
                _POINTER(self.function), _MOST_SHARED_BYTES, shared_bytes
            )
            check(status, f"asking for {shared_bytes} bytes of shared memory")
        pointers = (_POINTER * len(arguments))(*[ctypes.addressof(value) for value in arguments])
        kept = tuple(arguments)
        launch = (self._dependent if dependent else self._plain)(grid, threads, shared_bytes, pointers)

        def run(stream: int) -> None:
            status = launch(stream)
            if status:
                check_with_retry(
                    status, lambda: launch(stream), f"a kernel launch with {len(kept)} arguments"
                )

        return run

    def _plain(
        self, grid: tuple[int, int, int], threads: int, shared_bytes: int, pointers: Any
    ) -> Callable[[int], int]:
        launch, handle = self._driver.cuLaunchKernel, self.function

        def run(stream: int) -> int:
            return int(launch(handle, *grid, threads, 1, 1, shared_bytes, stream, pointers, None))

        return run

    def _dependent(
        self, grid: tuple[int, int, int], threads: int, shared_bytes: int, pointers: Any
    ) -> Callable[[int], int]:
        launch, handle = self._driver.cuLaunchKernelEx, self.function
        attribute = _Attribute(_PROGRAMMATIC)
        attribute.value[0] = 1
        config = _Config(grid, (threads, 1, 1), shared_bytes, None, ctypes.pointer(attribute), 1)

        def run(stream: int) -> int:
            config.stream = stream
            return int(launch(ctypes.byref(config), handle, pointers, None))

        return run


def available() -> bool:
    """Return True if there is a CUDA device and the NVRTC library."""
    if not torch.cuda.is_available():
        return False
    try:
        _compiler()
    except ImplementationError:
        return False
    return True


@cache
def compiles_for_hopper(device: torch.device) -> bool:
    """Return True if kernels for Hopper can be compiled and run on a device."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        return False
    return available()


def compile_kernel(path: Path, name: str, defines: dict[str, int], device: torch.device) -> Kernel:
    """Compile ``path`` for a CUDA device and load its ``extern "C"`` function ``name``; cached.

    The file has no includes. ``defines`` are preprocessor constants.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    return _load(path, name, tuple(sorted(defines.items())), index)


@cache
def _load(path: Path, name: str, defines: tuple[tuple[str, int], ...], index: int) -> Kernel:
    major, minor = torch.cuda.get_device_capability(index)
    options = [f"--gpu-architecture=sm_{major}{minor}{'a' if major >= 9 else ''}", "--std=c++17"]
    options += [f"-D{key}={value}" for key, value in defines]
    binary = _compile(path, options)
    library = driver()
    with torch.cuda.device(index):
        torch.cuda.current_stream().synchronize()  # makes the device's context current in this thread
        module, function = _POINTER(), _POINTER()
        check(library.cuModuleLoadData(ctypes.byref(module), binary), f"loading {path.name}")
        check(library.cuModuleGetFunction(ctypes.byref(function), module, name.encode()), name)
    if function.value is None:
        raise ImplementationError(f"{path.name} has no function {name}")
    return Kernel(function.value, library)


def _compile(path: Path, options: list[str]) -> bytes:
    compiler = _compiler()
    program = _POINTER()
    source = path.read_text(encoding="utf-8").encode()
    created = compiler.nvrtcCreateProgram(ctypes.byref(program), source, path.name.encode(), 0, None, None)
    if created:
        raise ImplementationError(f"the CUDA compiler refused {path.name} (status {created})")
    try:
        encoded = [option.encode() for option in options]
        status = compiler.nvrtcCompileProgram(
            program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)
        )
        if status:
            raise ImplementationError(f"compiling {path.name} failed:\n{_log(compiler, program)}")
        size = ctypes.c_size_t()
        compiler.nvrtcGetCUBINSize(program, ctypes.byref(size))
        binary = ctypes.create_string_buffer(size.value)
        compiler.nvrtcGetCUBIN(program, binary)
        return binary.raw
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _log(compiler: Any, program: Any) -> str:
    size = ctypes.c_size_t()
    compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    compiler.nvrtcGetProgramLog(program, log)
    return log.value.decode(errors="replace")


@cache
def _compiler() -> Any:
    major = (torch.version.cuda or "0").split(".")[0]
    names = []
    try:
        import nvidia  # type: ignore[import-not-found, unused-ignore]

        for root in nvidia.__path__:
            for folder in (f"cu{major}/lib", "cuda_nvrtc/lib"):
                names += [str(path) for path in sorted(Path(root).glob(f"{folder}/libnvrtc.so.*"))]
    except ImportError:
        pass
    for name in [*names, f"libnvrtc.so.{major}", "libnvrtc.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise ImplementationError("libnvrtc was not found: PyTorch's CUDA wheels install it as nvidia-cuda-nvrtc")


@cache
def driver() -> Any:
    """Return the CUDA driver's library."""
    # PyDLL keeps the interpreter's lock: giving it up costs more than launches that only enqueue.
    library = ctypes.PyDLL("libcuda.so.1")
    library.cuLaunchKernel.argtypes = [_POINTER, *[ctypes.c_uint] * 7, _POINTER, _POINTER, _POINTER]
    library.cuLaunchKernelEx.argtypes = [_POINTER, _POINTER, _POINTER, _POINTER]
    return library


def driver_address(name: str) -> int:
    """Return the address of a driver function, for C++ code that calls it."""
    return ctypes.cast(getattr(driver(), name), ctypes.c_void_p).value or 0


def check_with_retry(status: int, again: Callable[[], int], what: str) -> None:
    """Check the status of a driver call; repeat the call if the thread had no context yet."""
    if status == INVALID_CONTEXT:
        # A CUDA runtime call makes the context current.
        torch.cuda.current_stream().query()
        status = again()
    check(status, what)


def check(status: int, what: str) -> None:
    """Raise ``ImplementationError`` if the driver reports a failure."""
    if status:
        raise ImplementationError(f"{what} failed with CUDA driver error {status}")
