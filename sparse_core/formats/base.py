"""Base class of all sparse matrices: shape, values, caches, conversions and operators."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, overload

import torch
from torch import Tensor
from typing_extensions import Self

from sparse_core.common.matrix_operations import operations
from sparse_core.formats.description import Description
from sparse_core.formats.operators import Operators
from sparse_core.formats.validation import can_read, check_shape, check_values_dtype
from sparse_core.kernels import torch_internals
from sparse_core.kernels.plan_cache import PlanCache

Plan = TypeVar("Plan")
Matrix = TypeVar("Matrix", bound="SparseMatrix")


def index_dtype_for(*sizes: int) -> torch.dtype:
    """Return ``torch.int32`` if every size (a dimension or an entry count) fits, else ``torch.int64``."""
    return torch.int32 if max(sizes, default=0) <= torch.iinfo(torch.int32).max else torch.int64


def _device_named(name: str | torch.device) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"{name!r} is no device: give a device such as 'cuda', a dtype, or a format class such as CSR"
        ) from None


class SparseMatrix(Operators):
    """A sparse matrix of ``shape[0]`` rows and ``shape[1]`` columns.

    The structure (shape and index tensors) is fixed at construction. :meth:`with_values` replaces the values
    and keeps the structure with its caches. Gradients flow from ``values`` through :meth:`to_dense`,
    :meth:`to`, ``.T`` and products. Constructors keep their arguments as attributes. They raise ``TypeError``
    for wrong dtypes, and ``ValueError`` for wrong shapes or devices, or a wrong element.

    Attributes:
        shape: rows, columns.
        values: stored values; float16, bfloat16, float32, float64, complex64 or complex128. Their layout
            depends on the format.
    """

    shape: tuple[int, int]
    values: Tensor
    _structure_cache: dict[str, Any]
    _values_cache: dict[str, tuple[tuple[Tensor, ...], tuple[int, ...], Any]]
    #: Launch plans of products by the layout of the dense operand, see
    #: sparse_core.linalg.products.launch_plans.
    _plans: PlanCache

    def __init__(self, shape: tuple[int, int]) -> None:
        """Set the attributes of all formats."""
        self.shape = check_shape(shape)
        self._structure_cache = {}
        self._values_cache = {}
        self._plans = PlanCache()

    # Abstract methods of a format.

    @property
    @abstractmethod
    def nnz(self) -> int:
        """Number of stored entries, including explicit zeros but not padding."""

    @property
    @abstractmethod
    def T(self) -> Self:
        """Transposed matrix in the same format."""

    @classmethod
    @abstractmethod
    def from_csr(cls, csr: Any, **options: Any) -> Self:
        """Convert from CSR, with options of the format."""

    @abstractmethod
    def row_lengths(self) -> Tensor:
        """Return the stored entries of each row, (M,) integer."""

    @abstractmethod
    def validate(self) -> None:
        """Check every element.

        Constructors call this unless ``validate=False``. Then the caller guarantees valid elements: a wrong
        one may give a wrong result or crash the process. The check reads the arrays and therefore waits for a
        CUDA device. Constructors skip it where nothing can be read: on the meta device, inside
        ``torch.compile`` and during CUDA graph capture.

        Raises:
            ValueError: names the array, the position and the error.
        """

    @abstractmethod
    def _index_tensors(self) -> dict[str, Tensor]:
        """Return index tensors by attribute name; the first one defines ``index_dtype``."""

    def _check(self, validate: bool) -> None:
        # Every constructor ends with this call.
        if validate and can_read(next(iter(self._index_tensors().values()))):
            self.validate()

    # Numbers.

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Device of all tensors."""
        return self.values.device

    @property
    def index_dtype(self) -> torch.dtype:
        """Type of the indices, ``torch.int32`` or ``torch.int64``."""
        return next(iter(self._index_tensors().values())).dtype

    @property
    def nbytes(self) -> int:
        """Size of all tensors of the matrix in bytes, without cached plans."""
        return sum(tensor.nbytes for tensor in (*self._index_tensors().values(), *self._value_tensors()))

    @property
    def sparsity(self) -> float:
        """Share of positions without a stored entry; 1.0 for a matrix without positions."""
        rows, columns = self.shape
        return 1.0 - self.nnz / (rows * columns) if rows and columns else 1.0

    @property
    def requires_grad(self) -> bool:
        """True if gradients are recorded for the values."""
        return any(tensor.requires_grad for tensor in self._value_tensors())

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        rows, columns = self.shape
        # Counting may wait for the device, which a repr must not do.
        count = self.nnz if not self.values.is_cuda or self._nnz_known() else "?"
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{type(self).__name__}({rows}x{columns}, nnz={count}, {dtype}, {self.device})"

    def _nnz_known(self) -> bool:
        return True

    # Values.

    def with_values(self, values: Tensor) -> Self:
        """Return the same structure with other values.

        Args:
            values: same shape and device as ``self.values``; may have another dtype and require grad.

        Returns:
            A matrix that shares the index tensors and everything cached with :meth:`cached`.

        Raises:
            TypeError: integer or bool values.
            ValueError: another shape or device.
        """
        current = self.values
        check_values_dtype(values)
        if values.shape != current.shape:
            raise ValueError(
                f"values must have shape {tuple(current.shape)} like the values they replace,"
                f" got {tuple(values.shape)}"
            )
        if values.device != current.device:
            raise ValueError(
                f"values are on {values.device} but the structure is on {current.device}: move one with .to"
            )
        clone = self._clone()
        clone._set_values(values)
        return clone

    def detach(self) -> Self:
        """Return the matrix without its gradient history; the values share memory."""
        return self.with_values(self.values.detach())

    def _clone(self) -> Self:
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        clone._values_cache = {}
        clone._plans = PlanCache()
        return clone

    def _set_values(self, values: Tensor) -> None:
        self.values = values

    def _value_tensors(self) -> tuple[Tensor, ...]:
        return (self.values,)

    def _moved(self, device: torch.device) -> Self:
        clone = self._clone()
        clone._structure_cache = {}
        for name, tensor in self._index_tensors().items():
            setattr(clone, name, tensor.to(device))
        clone.values = self.values.to(device)
        return clone

    # Caches.

    def cached(self, key: str, build: Callable[[], Plan]) -> Plan:
        """Return the cached result of ``build`` for ``key``.

        For plans that depend only on the structure: all matrices made with :meth:`with_values` share them, so
        ``build`` must not read the values.
        """
        if key not in self._structure_cache:
            # Tensors made in inference mode or under a transform of torch.func would be useless later.
            outside = torch_internals.outside_transforms(self._index_tensors().values())
            with torch.inference_mode(False), outside:
                self._structure_cache[key] = build()
        found: Plan = self._structure_cache[key]
        return found

    def cached_values(self, key: str, build: Callable[[], Plan]) -> Plan:
        """Like :meth:`cached`, for plans that also depend on the values.

        It builds the plan again when ``values`` is another tensor or was changed in place.
        """
        tensors = self._value_tensors()
        if any(tensor.is_inference() for tensor in tensors):
            return build()  # Inference tensors do not record changes, so a cache could be stale.
        versions = tuple(tensor._version for tensor in tensors)
        entry = self._values_cache.get(key)
        if entry is not None and entry[1] == versions and all(map(operator.is_, entry[0], tensors)):
            found: Plan = entry[2]
            return found
        built = build()
        self._values_cache[key] = (tensors, versions, built)
        return built

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_structure_cache": {}, "_values_cache": {}}
        state.pop("_plans")
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._plans = PlanCache()

    # Conversions.

    @classmethod
    def from_dense(cls, dense: Tensor, **options: Any) -> Self:
        """Store the nonzero entries (including NaN) of a dense matrix.

        Args:
            dense: (M, N) floating point or complex; a tensor, or an argument of ``torch.as_tensor``.
            options: options of the format.
        """
        return cls.from_csr(operations.from_dense(dense), **options)

    @classmethod
    def from_scipy(cls, matrix: Any, **options: Any) -> Self:
        """Convert any scipy sparse matrix or 2-D sparse array; duplicates are summed, zeros are kept."""
        return cls._from_matrix(operations.from_scipy(matrix), options)

    @classmethod
    def from_torch(cls, tensor: Tensor, **options: Any) -> Self:
        """Convert a 2-D torch tensor of any layout: strided, COO, CSR, CSC, BSR or BSC."""
        return cls._from_matrix(operations.from_torch(tensor), options)

    @classmethod
    def from_coo(cls, coo: SparseMatrix, **options: Any) -> Self:
        """Convert from COO; duplicates are summed in input order.

        Raises:
            TypeError: not a sparse matrix.
        """
        if not isinstance(coo, SparseMatrix):
            raise TypeError(
                f"expected a COO matrix, got {type(coo).__name__}: convert tensors with from_dense"
            )
        return cls._from_matrix(coo, options)

    @classmethod
    def _from_matrix(cls, matrix: SparseMatrix, options: dict[str, Any]) -> Self:
        # Without options, a matrix of this format keeps its block size, order and duplicates.
        if isinstance(matrix, cls) and not options:
            return matrix
        return cls.from_csr(matrix._to_csr(), **options)

    @overload
    def to(self, target: type[Matrix], **options: Any) -> Matrix: ...

    @overload
    def to(self, target: torch.device | torch.dtype | str) -> Self: ...

    def to(self, target: Any, **options: Any) -> Any:
        """Convert to another format, device or dtype.

        Args:
            target: a format class, a device (or its name), or a dtype for the values.
            options: options of the target format, for example ``block_size`` for BSR. Without options, a
                matrix that already has the format is returned unchanged.

        Raises:
            TypeError: ``target`` is none of these, or the format has no such option.
            ValueError: the format cannot hold the matrix, or no device has this name.
        """
        if isinstance(target, type) and issubclass(target, SparseMatrix):
            return target._from_matrix(self, options)
        if options:
            raise TypeError(f"options {sorted(options)} need a format class as target, got {target!r}")
        if isinstance(target, torch.dtype):
            return self if target == self.dtype else self.with_values(self.values.to(target))
        if isinstance(target, str | torch.device):
            device = _device_named(target)
            same = device == self.device or (device.type == self.device.type and device.index is None)
            return self if same else self._moved(device)
        raise TypeError(f"expected a format class, a device or a dtype, got {target!r}")

    def to_dense(self) -> Tensor:
        """Return a dense (M, N) tensor on the same device."""
        dense: Tensor = self._to_csr().to_dense()
        return dense

    def to_scipy(self) -> Any:
        """Convert to a ``scipy.sparse`` array: ``coo_array``, ``bsr_array`` or ``csr_array``.

        NaN and explicit zeros are kept; float16 and bfloat16, which scipy lacks, become float32.
        """
        return self._to_csr().to_scipy()

    def to_torch(self) -> Tensor:
        """Convert to a torch sparse tensor: COO, CSR or BSR for these formats, else CSR."""
        tensor: Tensor = self._to_csr().to_torch()
        return tensor

    def describe(self) -> Description:
        """Measure sparsity, row lengths and bytes per format, and recommend one; ``str()`` gives a table."""
        description: Description = operations.describe(self)
        return description

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Dispatch ``@`` with tensors under ``torch.compile``; otherwise change nothing."""
        # The tracer of torch 2.15 calls __rmatmul__ "wrapped". It restarts at the first product and must then
        # take the same steps, so nothing is skipped: `|` in place of `or`.
        is_reversed = func is Tensor.__rmatmul__
        is_product = is_reversed | (getattr(func, "__name__", "") == "matmul")
        if torch.compiler.is_compiling() and is_product:
            from sparse_core.formats.tracing import register_reversed_matmul

            register_reversed_matmul()
            # __rmatmul__ gets its operands in the order of the tensor's method.
            first, second = (args[1], args[0]) if is_reversed else args
            return first.__matmul__(second) if isinstance(first, cls) else second.__rmatmul__(first)
        with torch_internals.ignore_subclasses():
            return func(*args, **(kwargs or {}))
