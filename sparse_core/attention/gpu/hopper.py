"""CUDA forward kernel of block-sparse attention for Hopper, faster there than the Triton kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import torch
from torch import Tensor

from sparse_core.attention.gpu.plan import Lists, WorkList
from sparse_core.attention.operands import AttentionShape
from sparse_core.errors import ImplementationError
from sparse_core.kernels import nvrtc, torch_internals
from sparse_core.kernels.launch_plan import KernelLaunch, KernelStep, Launcher, Place, make_launcher

_SOURCE = Path(__file__).with_name("hopper.cu")
_THREADS = 384
_LOG2E = 1.4426950408889634
#: As in the driver's ``CUtensorMapDataType``.
_DATA_TYPES = {torch.float16: 6, torch.bfloat16: 9}
_SWIZZLE_128, _PROMOTE_256 = 3, 3
#: Pipeline stages (tiles of keys and values in flight), by block size and dim.
_STAGES = {(64, 64): 4, (64, 128): 3, (128, 64): 3, (128, 128): 2}


class _Problem(ctypes.Structure):
    """Kernel arguments besides the tensor maps."""

    _pointers = "out lse row_ptr full_end columns mask_index bits parts part_out part_lse q k v"
    _sizes = "items query_length key_length heads group pattern_heads block_rows"
    _fields_ = [
        *[(name, ctypes.c_void_p) for name in _pointers.split()],
        *[
            (f"{name}_{step}", ctypes.c_longlong)
            for name in ("out", "q", "k", "v")
            for step in ("batch", "head", "row")
        ],
        ("scale", ctypes.c_float),
        *[(name, ctypes.c_int) for name in _sizes.split()],
    ]

    def point_to(self, tensors: Sequence[Tensor], addresses: Sequence[int]) -> None:
        """Set the addresses of q, k, v and out, and the strides of ``tensors``."""
        for name, tensor, address in zip(("q", "k", "v", "out"), tensors, addresses, strict=True):
            setattr(self, name, address)
            for step, stride in zip(("batch", "head", "row"), tensor.stride(), strict=False):
                setattr(self, f"{name}_{step}", stride)


def supports(q: Tensor, k: Tensor, v: Tensor, lists: Lists, scale: float) -> bool:
    """True if the kernel supports these operands on this device.

    The scale must be positive, because the kernel finds the largest score before it multiplies.
    """
    return (
        q.dtype in _DATA_TYPES
        and (lists.block_size, q.shape[3]) in _STAGES
        and scale > 0
        and q.numel() > 0
        and k.numel() > 0
        and nvrtc.compiles_for_hopper(q.device)
        and all(_mappable(tensor) for tensor in (q, k, v))
    )


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lists: Lists,
    work: WorkList | None,
    shape: AttentionShape,
    scale: float,
    out: Tensor,
    lse: Tensor,
    part_out: Tensor,
    part_lse: Tensor,
) -> None:
    """Write out and lse; for cut rows, write the results of their parts.

    Args:
        q: (batch, heads, query_length, dim) float16 or bfloat16.
        k, v: (batch, key_heads, key_length, dim).
        work: of the lists, for this batch and these heads.
        out: like q, its last dimension contiguous.
        lse: (batch, heads, query_length) float32.
        part_out: (slots, block_size, dim) float32.
        part_lse: (slots, block_size) float32.

    Raises:
        ImplementationError: the kernel cannot be compiled or launched here.
    """
    launch = known(lists, shape, q.dtype)
    if launch is None:
        launch = Launch(lists, work, shape, q)
        lists.keep_launch((shape, q.dtype), launch)
    launch(q, k, v, scale, out, lse, part_out, part_lse)


def known(lists: Lists, shape: AttentionShape, dtype: torch.dtype) -> Launch | None:
    """Return the cached kernel for these operands, or None."""
    launch = lists.launches.get((shape, dtype))
    return launch if isinstance(launch, Launch) else None


class Launch:
    """Kernel with all arguments set except its tensors."""

    def __init__(self, lists: Lists, work: WorkList | None, shape: AttentionShape, q: Tensor) -> None:
        size, dim = lists.block_size, shape.dim
        stages = _STAGES[size, dim]
        defines = {"BLOCK": size, "DIM": dim, "STAGES": stages, "BF16": int(q.dtype == torch.bfloat16)}
        kernel = nvrtc.compile_kernel(_SOURCE, "forward", defines, q.device)
        items = shape.batch * shape.heads * lists.block_rows if work is None else len(work.parts)
        streams = 128 // size
        processors = torch.cuda.get_device_properties(q.device).multi_processor_count
        # The lists own these tensors and live as long as the launch.
        self._problem = _Problem(
            row_ptr=lists.row_ptr.data_ptr(),
            full_end=lists.full_end.data_ptr(),
            columns=lists.columns.data_ptr(),
            mask_index=lists.mask.data_ptr(),
            bits=lists.bits.data_ptr(),
            parts=None if work is None else work.parts.data_ptr(),
            items=items,
            query_length=shape.query_length,
            key_length=shape.key_length,
            heads=shape.heads,
            group=shape.group,
            pattern_heads=lists.pattern_heads,
            block_rows=lists.block_rows,
        )
        self._work = work
        self._maps = tuple(_TensorMap(size) for _ in range(3))
        grid = (min(processors, -(-items // streams)), 1, 1)
        shared = 1024 + streams * size * dim * 2 * (1 + 2 * stages)
        arguments = (*(entry.memory for entry in self._maps), self._problem)
        self._launch = kernel.prepare(grid, _THREADS, arguments, shared)
        self._described = KernelLaunch(kernel.function, grid, (_THREADS, 1, 1), shared, b"", ())
        self._device = q.device.index
        self._lock = Lock()  # the arguments are shared by all threads that use the pattern

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        out: Tensor,
        lse: Tensor,
        part_out: Tensor,
        part_lse: Tensor,
    ) -> None:
        problem = self._problem
        with self._lock:
            for entry, tensor in zip(self._maps, (q, k, v), strict=True):
                entry.point_to(tensor, tensor.data_ptr())
            problem.point_to((q, k, v, out), [one.data_ptr() for one in (q, k, v, out)])
            problem.lse = lse.data_ptr()
            problem.part_out, problem.part_lse = part_out.data_ptr(), part_lse.data_ptr()
            problem.scale = scale * _LOG2E
            self._launch(torch_internals.raw_stream(self._device))

    def launcher(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float, out: Tensor, lse: Tensor | None = None
    ) -> Launcher | None:
        """Return a launcher for tensors of these strides at other addresses (q, k, v, out and lse if given).

        No row may be cut into parts. Returns None if launch plans are off.
        """
        problem, tensors = self._problem, (q, k, v, out)
        with self._lock:
            for entry, tensor in zip(self._maps, (q, k, v), strict=True):
                entry.point_to(tensor, tensor.data_ptr())
            problem.point_to(tensors, [one.data_ptr() for one in tensors])
            problem.lse = problem.part_out = problem.part_lse = None
            problem.scale = scale * _LOG2E
            arguments = (*(bytes(entry.memory) for entry in self._maps), bytes(problem))
        maps = [Place(index, 0, index, 0, in_map=True) for index in range(len(self._maps))]
        names = ("q", "k", "v", "out") if lse is None else ("q", "k", "v", "out", "lse")
        fields = [getattr(_Problem, name).offset for name in names]
        places = [Place(len(maps), offset, index, 0) for index, offset in enumerate(fields)]
        launch = self._described._replace(arguments=arguments)
        return make_launcher([KernelStep(launch, (*maps, *places))])


class _TensorMap:
    """Descriptor of (batch, heads, length, dim) tensors for bulk copies of ``rows`` x 64 boxes."""

    def __init__(self, rows: int) -> None:
        self._buffer = ctypes.create_string_buffer(192)
        start = -ctypes.addressof(self._buffer) % 64
        self.memory = (ctypes.c_char * 128).from_buffer(self._buffer, start)
        self._at = ctypes.addressof(self.memory)
        self._box = (ctypes.c_uint32 * 4)(64, rows, 1, 1)
        self._ones = (ctypes.c_uint32 * 4)(1, 1, 1, 1)
        self._address = 0
        self._strides: tuple[int, ...] = ()
        # Declared argument types convert faster than explicit ctypes objects.
        self._move = nvrtc.driver()["cuTensorMapReplaceAddress"]
        self._move.argtypes = (ctypes.c_void_p, ctypes.c_void_p)

    def point_to(self, tensor: Tensor, address: int) -> None:
        """Describe memory at an address with the layout of ``tensor``, which must be :func:`_mappable`."""
        strides = tensor.stride()
        if strides != self._strides:
            self._encode(tensor, address)
        elif address != self._address:
            _check_map(self._move(self._at, address), tensor)
        self._address, self._strides = address, strides

    def _encode(self, tensor: Tensor, address: int) -> None:
        sizes = (ctypes.c_uint64 * 4)(*reversed(tensor.shape))
        strides = (ctypes.c_uint64 * 3)(*(2 * stride for stride in reversed(tensor.stride()[:3])))
        status = nvrtc.driver().cuTensorMapEncodeTiled(
            ctypes.byref(self.memory),
            _DATA_TYPES[tensor.dtype],
            4,
            ctypes.c_void_p(address),
            sizes,
            strides,
            self._box,
            self._ones,
            0,
            _SWIZZLE_128,
            _PROMOTE_256,
            0,
        )
        _check_map(status, tensor)


def _check_map(status: int, tensor: Tensor) -> None:
    if status:
        raise ImplementationError(
            f"the driver refused a tensor map of shape {tuple(tensor.shape)}, strides {tensor.stride()}"
            f" with CUDA driver error {status}"
        )


def _mappable(tensor: Tensor) -> bool:
    """True if bulk copies can read the tensor: rows aligned to 16 bytes, no broadcast dimension."""
    if tensor.data_ptr() % 16 or tensor.stride(3) != 1:
        return False
    outer = zip(tensor.stride()[:3], tensor.shape[:3], strict=True)
    return all(stride % 8 == 0 and (stride > 0 or size == 1) for stride, size in outer)
