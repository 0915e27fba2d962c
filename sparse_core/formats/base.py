"""What every sparse container shares: shape, values, caches, conversions and operators."""

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
    """``torch.int32`` when every size (a dimension, or a number of entries) fits it, else ``torch.int64``."""
    return torch.int32 if max(sizes, default=0) <= torch.iinfo(torch.int32).max else torch.int64


class SparseMatrix(Operators):
    """A sparse matrix of ``shape[0]`` rows and ``shape[1]`` columns.

    The structure (shape and index tensors) is fixed at construction. Values may be exchanged with
    :meth:`with_values`, which keeps the structure and everything cached on it. Gradients flow from
    ``values`` through :meth:`to_dense`, :meth:`to`, ``.T`` and products.

    Attributes:
        shape: rows, columns.
        values: stored values; float16, bfloat16, float32, float64, complex64 or complex128. Its layout
            is the format's own.
    """

    shape: tuple[int, int]
    values: Tensor
    _structure_cache: dict[str, Any]
    _values_cache: dict[str, tuple[tuple[Tensor, ...], tuple[int, ...], Any]]
    #: Launch plans of products, by the layout of the dense operand: sparse_core.linalg.products.launch_plans.
    _plans: PlanCache

    def __init__(self, shape: tuple[int, int]) -> None:
        """Set what all formats have; called by the constructors of the formats."""
        self.shape = check_shape(shape)
        self._structure_cache = {}
        self._values_cache = {}
        self._plans = PlanCache()

    # Each format defines these.

    @property
    @abstractmethod
    def nnz(self) -> int:
        """Stored entries, explicit zeros among them; padding is not counted."""

    @property
    @abstractmethod
    def T(self) -> Self:
        """The transposed matrix, in the same format."""

    @classmethod
    @abstractmethod
    def from_csr(cls, csr: Any, **options: Any) -> Self:
        """Convert from CSR; the options are the format's own."""

    @abstractmethod
    def row_lengths(self) -> Tensor:
        """(M,) integer, stored entries of each row."""

    @abstractmethod
    def validate(self) -> None:
        """Check everything, element by element.

        Constructors do so unless they are told ``validate=False``: the caller then vouches for the elements,
        and a wrong one may give a wrong result or end the process. The arrays are read, so that a CUDA device
        is waited for; constructors leave the check out where nothing can be read: on the meta device, inside
        ``torch.compile`` and while a CUDA graph is captured.

        Raises:
            ValueError: names the array, the position and what is wrong there.
        """

    @abstractmethod
    def _index_tensors(self) -> dict[str, Tensor]:
        """Index tensors by attribute name; the first tells ``index_dtype``."""

    def _check(self, validate: bool) -> None:
        # The last step of every constructor.
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
        """Bytes of all tensors that make up the matrix; cached plans are not counted."""
        return sum(tensor.nbytes for tensor in (*self._index_tensors().values(), *self._value_tensors()))

    @property
    def sparsity(self) -> float:
        """Share of positions without a stored entry; 1.0 when the matrix has no positions."""
        rows, columns = self.shape
        return 1.0 - self.nnz / (rows * columns) if rows and columns else 1.0

    @property
    def requires_grad(self) -> bool:
        """Whether gradients are recorded for the values."""
        return any(tensor.requires_grad for tensor in self._value_tensors())

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        rows, columns = self.shape
        # Counting may have to wait for the device; a repr must not.
        count = self.nnz if not self.values.is_cuda or self._nnz_known() else "?"
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{type(self).__name__}({rows}x{columns}, nnz={count}, {dtype}, {self.device})"

    def _nnz_known(self) -> bool:
        return True

    # Same structure, other values.

    def with_values(self, values: Tensor) -> Self:
        """The same structure with other values.

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
            raise ValueError(f"values are on {values.device}, the structure is on {current.device}")
        clone = self._clone()
        clone._set_values(values)
        return clone

    def detach(self) -> Self:
        """The same matrix without its gradient history (the values share memory)."""
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
        """What ``build`` returned the first time it was asked for under ``key``.

        For work plans that depend on the structure alone: they are shared by all matrices made with
        :meth:`with_values`, so ``build`` must not read the values.
        """
        if key not in self._structure_cache:
            # What is made in inference mode could not be used for gradients later.
            with torch.inference_mode(False):
                self._structure_cache[key] = build()
        found: Plan = self._structure_cache[key]
        return found

    def cached_values(self, key: str, build: Callable[[], Plan]) -> Plan:
        """Like :meth:`cached` for plans that depend on the values too.

        The plan is built again when ``values`` is another tensor or was changed in place.
        """
        tensors = self._value_tensors()
        if any(tensor.is_inference() for tensor in tensors):
            return build()  # Inference tensors do not record changes, so nothing may be kept.
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
        """Store the nonzero entries of a dense matrix (NaN is one).

        Args:
            dense: (M, N) floating point or complex; a tensor, or what ``torch.as_tensor`` accepts.
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
            raise TypeError(f"expected a COO matrix, got {type(coo).__name__} (from_dense takes a tensor)")
        return cls._from_matrix(coo, options)

    @classmethod
    def _from_matrix(cls, matrix: SparseMatrix, options: dict[str, Any]) -> Self:
        # The same format without options keeps what it has: block size, order, duplicates.
        if isinstance(matrix, cls) and not options:
            return matrix
        return cls.from_csr(matrix._to_csr(), **options)

    @overload
    def to(self, target: type[Matrix], **options: Any) -> Matrix: ...

    @overload
    def to(self, target: torch.device | torch.dtype | str) -> Self: ...

    def to(self, target: Any, **options: Any) -> Any:
        """Another format, device or dtype.

        Args:
            target: a format class, a device (or its name), or a dtype for the values.
            options: options of the target format, e.g. ``block_size`` for BSR. Without options a matrix
                that has the format already is returned as it is.

        Raises:
            TypeError: ``target`` is none of these, or an option is not the format's.
            ValueError: the matrix does not fit the format.
        """
        if isinstance(target, type) and issubclass(target, SparseMatrix):
            return target._from_matrix(self, options)
        if options:
            raise TypeError(f"options {sorted(options)} go with a format class, not with {target!r}")
        if isinstance(target, torch.dtype):
            return self if target == self.dtype else self.with_values(self.values.to(target))
        if isinstance(target, str | torch.device):
            device = torch.device(target)
            same = device == self.device or (device.type == self.device.type and device.index is None)
            return self if same else self._moved(device)
        raise TypeError(f"expected a format class, a device or a dtype, got {target!r}")

    def to_dense(self) -> Tensor:
        """(M, N) tensor on the same device; positions without an entry are 0."""
        dense: Tensor = self._to_csr().to_dense()
        return dense

    def to_scipy(self) -> Any:
        """A ``scipy.sparse`` array: ``coo_array``, ``bsr_array`` (see :class:`BSR`) or ``csr_array``.

        NaN and explicit zeros are kept; float16 and bfloat16, which scipy lacks, become float32.
        """
        return self._to_csr().to_scipy()

    def to_torch(self) -> Tensor:
        """A torch sparse tensor: COO, CSR or BSR (see :class:`BSR`) as they are, else CSR."""
        tensor: Tensor = self._to_csr().to_torch()
        return tensor

    def describe(self) -> Description:
        """Sparsity, row lengths, bytes in each format and the recommended one; ``str()`` prints them."""
        description: Description = operations.describe(self)
        return description

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Products with tensors as ``torch.compile`` looks for them; else as if this method did not exist."""
        if torch.compiler.is_compiling() and getattr(func, "__name__", "") in ("matmul", "__rmatmul__"):
            from sparse_core.formats.tracing import reversed_product_is_told

            reversed_product_is_told()
            # Reversed, the operands come in the order in which the method of a tensor takes them.
            first, second = args if func.__name__ == "matmul" else (args[1], args[0])
            return first.__matmul__(second) if isinstance(first, cls) else second.__rmatmul__(first)
        with torch_internals.ignore_subclasses():
            return func(*args, **(kwargs or {}))
