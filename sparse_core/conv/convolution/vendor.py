"""spconv for the modules of this package: same weights, same coordinates, spconv's own maps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from sparse_core.common.libraries import missing, module_available
from sparse_core.conv.geometry import output_shape
from sparse_core.conv.tensor import SparseTensor
from sparse_core.errors import ImplementationError

_HINT = "pip install 'sparsight[spconv]'"


def import_spconv() -> Any:
    """Return the module ``spconv.pytorch``, imported without its deprecation warnings."""
    if not module_available("spconv"):
        raise ImplementationError(f"impl='vendor' {missing('spconv', _HINT)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import spconv.pytorch as spconv
    return spconv


def make_layer(
    weight: nn.Parameter,
    *,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    submanifold: bool,
    on_cpu: bool,
) -> Any:
    """Make a spconv layer that shares ``weight`` (C_out, *kernel, C_in); on a CPU only Native runs."""
    spconv = import_spconv()
    from spconv.core import ConvAlgo

    dimensions = len(kernel_size)
    prefix = "SubMConv" if submanifold else "SparseConv"
    arguments: dict[str, Any] = {"bias": False, "padding": list(padding), "dilation": list(dilation)}
    if submanifold:
        arguments["indice_key"] = f"submanifold{tuple(kernel_size)}{tuple(dilation)}"
    else:
        arguments["stride"] = list(stride)
    if on_cpu:
        arguments["algo"] = ConvAlgo.Native
    layer = getattr(spconv, f"{prefix}{dimensions}d")(
        weight.shape[-1], weight.shape[0], list(kernel_size), **arguments
    )
    layer.weight = weight
    return layer


def run_layer(layer: Any, inputs: SparseTensor) -> SparseTensor:
    """Run a spconv layer; its maps are cached with the coordinates."""
    spconv = import_spconv()
    if len(inputs) == 0 or layer.conv1x1:
        return _product(layer, inputs)
    # spconv ignores strides; nonzero(), for example, returns columns.
    features, coordinates = inputs.features.contiguous(), inputs.coordinates.int().contiguous()
    tensor = spconv.SparseConvTensor(features, coordinates, list(inputs.spatial_shape), inputs.batch_size)
    tensor.indice_dict = inputs.cache.setdefault("spconv", {})
    output = layer(tensor)
    result: Tensor = output.features
    if layer.subm:
        return inputs.with_features(result)
    shape = tuple(int(size) for size in output.spatial_shape)
    return SparseTensor(result, output.indices, shape, inputs.batch_size, {"checked": True})


def _product(layer: Any, inputs: SparseTensor) -> SparseTensor:
    """Compute a layer that spconv cannot.

    It rejects inputs without cells (the result still has zero gradients), and reads the (C_out, 1, 1, C_in)
    weight of a kernel with one tap as (C_in, C_out).
    """
    features = inputs.features @ layer.weight.flatten(1, -2)[:, 0].T
    if layer.subm:
        return inputs.with_features(features)
    shape = output_shape(inputs.spatial_shape, layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    return SparseTensor(features, inputs.coordinates.int(), shape, inputs.batch_size, {"checked": True})
