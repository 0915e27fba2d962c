"""Base of the layers with a packed n:m weight: state, loading, moving, and caches between calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from sparse_core.nm.layers.coded_layer import CodedLayer, dense_linear, own_bias, own_copy
from sparse_core.nm.linear import Activation, LinearImpl
from sparse_core.nm.linear.launch_plans import LayerPlan
from sparse_core.nm.linear.product import NM_LINEAR, find_plan
from sparse_core.nm.packing.packed_weight import DENSE_VERSION, PackedNM
from sparse_core.nm.packing.positions import unpack_positions
from sparse_core.nm.pattern import NMPattern

KeepDense = Literal["auto"] | bool
"""Keep a dense copy for row counts at which dense is faster; ``"auto"``: on CUDA."""

#: Number of input shapes for which a layer keeps plans.
_MOST_SHAPES = 256

LAYER_FORMAT = 1
"""Version of the packed state, the first number of a layer's extra state."""


class LayerCache:
    """A packed weight with the implementations' plans and the dense copy.

    Attributes:
        packed: the weight; its values are those of the layer, so gradients reach them.
        version: in-place version of the values at creation; ``None`` for inference tensors.
        device_type: device type of the values.
        keeps_dense: True if a dense copy is wanted.
        dense: the copy, made at the first use.
        casts: the weight in the types of autocast.
        layer_plans: plans by input shape and activation.
    """

    __slots__ = ("casts", "dense", "device_type", "keeps_dense", "layer_plans", "packed", "version")

    def __init__(self, packed: PackedNM, keeps_dense: bool) -> None:
        self.packed = packed
        self.version = None if packed.values.is_inference() else packed.values._version
        self.device_type = packed.device.type
        self.keeps_dense = keeps_dense
        self.dense: Tensor | None = None
        self.casts: dict[torch.dtype, LayerCache] = {}
        self.layer_plans: dict[tuple[torch.Size, str | None], LayerPlan] = {}

    def renew(self) -> bool:
        """Update after in-place changes of the values: plans that follow them stay, copies are dropped.

        Returns False for inference tensors, which count no changes.
        """
        values = self.packed.values
        if self.version is None or values.is_inference():
            return False
        self.packed.drop_stale_plans()
        self.version = values._version
        self.dense = None
        self.casts.clear()
        self.layer_plans.clear()
        if self.keeps_dense and not values.requires_grad:
            self.dense_copy()
        return True

    def dense_copy(self) -> Tensor:
        """Return the detached (out, in) weight; unpacked once."""
        if self.dense is None:
            # A tensor made in inference mode could not be used for gradients of the input later.
            with torch.inference_mode(False), torch.no_grad():
                self.dense = self.packed.to_dense()
            if self.version is not None:
                self.packed.plans[DENSE_VERSION] = self.version
        return self.dense

    def plan(self, x: Tensor, bias: Tensor | None, dense: Tensor | None, activation: str | None) -> None:
        """Make a plan for inputs like ``x``, just multiplied on CUDA, once its product is settled."""
        key = (x.shape, activation)
        if self.version is None or key in self.layer_plans or len(self.layer_plans) >= _MOST_SHAPES:
            return
        call = find_plan(x, self.packed, bias, activation, dense, None, None)
        if call is not None and call.is_settled:
            self.layer_plans[key] = LayerPlan(call, x, self.packed.values, bias, dense, activation)

    def cast(self, dtype: torch.dtype) -> LayerCache:
        """Return the detached weight in another type; converted once."""
        if self.packed.dtype == dtype:
            return self
        if dtype not in self.casts:
            with torch.inference_mode(False), torch.no_grad():
                self.casts[dtype] = LayerCache(self.packed.to(dtype), self.keeps_dense)
        return self.casts[dtype]


class PackedLayer(CodedLayer):
    """Base of the layers whose weight is a :class:`PackedNM`.

    The packed weight with its plans and dense copy is cached until ``values`` is replaced, changed in place,
    cast, moved or loaded. A change through ``values.data`` is not detected: write to ``values`` under
    ``torch.no_grad()``, or call :meth:`refresh`.

    Attributes:
        in_features, out_features: as in ``nn.Linear``.
        pattern: n and m.
        activation: ``"relu"``, ``"gelu"`` or ``None``, applied to the result.
        values: (out, in * n / m), kept weights in column order.
        metadata: (out, bytes) uint8, see :class:`PackedNM`.
        bias: (out,) or ``None``.
        keep_dense: see :data:`KeepDense`.
        impl: implementation of the product, see :func:`sparse_core.nm.linear.nm_linear`.
    """

    values: Tensor
    metadata: Tensor
    _cache: LayerCache | None

    def __init__(
        self,
        packed: PackedNM,
        bias: Tensor | None,
        *,
        activation: Activation | None,
        keep_dense: KeepDense,
        impl: LinearImpl,
    ) -> None:
        super().__init__()
        NM_LINEAR.check(impl)
        if keep_dense not in ("auto", True, False):
            raise ValueError(f"keep_dense must be 'auto', True or False, got {keep_dense!r}")
        if activation not in (None, "relu", "gelu"):
            raise ValueError(f"activation must be None, 'relu' or 'gelu', got {activation!r}")
        self.out_features, self.in_features = packed.shape
        self.pattern = NMPattern(packed.pattern.n, packed.pattern.m)
        self.activation = activation
        self.keep_dense = keep_dense
        self.impl = impl
        self._cache = None
        self.register_buffer("metadata", own_copy(packed.metadata))
        self.register_parameter("bias", own_bias(bias, self.out_features))

    @property
    def packed(self) -> PackedNM:
        """Weight as it is multiplied; gradients reach ``values``."""
        return self._current().packed

    def refresh(self) -> LayerCache:
        """Discard plans and copies; needed only after a change that torch does not record."""
        keeps = self.values.is_cuda if self.keep_dense == "auto" else self.keep_dense
        self._cache = ready = LayerCache(self._pack(), keeps)
        # A compiled graph cannot make the copy, so a frozen layer makes it before it is traced.
        if keeps and not self.values.requires_grad and ready.device_type != "meta":
            ready.dense_copy()
        return ready

    def _pack(self) -> PackedNM:
        return PackedNM(self.values, self.metadata, (self.out_features, self.in_features), self.pattern)

    def _current(self) -> LayerCache:
        ready, values = self._cache, self.values
        if ready is None or ready.packed.values is not values or values.is_inference():
            return self.refresh()
        if ready.version == values._version or ready.renew():
            return ready
        return self.refresh()

    def to_dense(self) -> nn.Linear:
        """Return an ``nn.Linear`` with the same weight and bias, without ``activation``."""
        return dense_linear(
            own_copy(self.weight), self.bias, requires_grad=self.values.requires_grad, training=self.training
        )

    def extra_repr(self) -> str:
        """Return sizes, pattern and options for ``print(model)``."""
        activation = f", activation={self.activation}" if self.activation else ""
        return (
            f"in_features={self.in_features}, out_features={self.out_features},"
            f" bias={self.bias is not None}, pattern={self.pattern}{activation}"
        )

    # Methods for moving, copying and loading.

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PackedLayer:
        # Module.to replaces the data of a Parameter, which changes neither identity nor version.
        super()._apply(fn, recurse)
        self.refresh()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": None}

    def get_extra_state(self) -> Tensor:
        """Return (3,) int64: format version, n, m."""
        return torch.tensor([LAYER_FORMAT, self.pattern.n, self.pattern.m])

    def set_extra_state(self, state: Tensor) -> None:
        """Check that a stored state has this format and pattern."""
        self._check_extra_state(state, type(self).__name__)

    def _check_extra_state(self, state: Tensor, name: str) -> None:
        version, n, m = (int(number) for number in state)
        if version != LAYER_FORMAT:
            raise ValueError(
                f"{name}: the stored weight has format version {version}, this release reads {LAYER_FORMAT}"
            )
        if (n, m) != (self.pattern.n, self.pattern.m):
            raise ValueError(
                f"{name}: the stored weight is {n}:{m} but the layer is {self.pattern};"
                f" convert the model with NMPattern({n}, {m}) first"
            )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any, **options: Any
    ) -> None:
        name = prefix[:-1] or type(self).__name__
        if f"{prefix}weight" in state_dict and f"{prefix}values" not in state_dict:
            state_dict = dict(state_dict)
            state_dict.update(self._entries_of_dense(state_dict.pop(f"{prefix}weight"), prefix, name))
        if f"{prefix}_extra_state" in state_dict:
            self._check_extra_state(state_dict[f"{prefix}_extra_state"], name)
        values = state_dict.get(f"{prefix}values")
        if values is not None and (values.dtype == torch.int8) != (self.values.dtype == torch.int8):
            raise ValueError(
                f"{name}: the stored values are {values.dtype} but those of the layer {self.values.dtype};"
                " convert the model the same way, with or without quantise=True"
            )
        metadata = state_dict.get(f"{prefix}metadata")
        if metadata is not None and metadata.shape == self.metadata.shape:
            self._check_metadata(metadata, name)
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)
        self.refresh()

    def _check_metadata(self, metadata: Tensor, name: str) -> None:
        """Check that stored positions rise within their groups, which kernels assume."""
        if metadata.device.type == "meta":
            return
        groups = self.in_features // self.pattern.m
        try:
            unpack_positions(metadata, groups, self.pattern, "slots")
        except ValueError as error:
            raise ValueError(f"{name}: the metadata of the packed weight are damaged ({error})") from error

    def _entries_of_dense(self, weight: Tensor, prefix: str, name: str) -> dict[str, Tensor]:
        """Return the state dict entries for a dense ``weight``."""
        raise ValueError(
            f"{name}: {type(self).__name__} cannot load the dense weight {prefix}weight;"
            " load it before the model is converted"
        )
