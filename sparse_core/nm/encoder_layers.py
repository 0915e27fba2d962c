"""torch's own Transformer encoder beside packed layers.

In evaluation ``nn.TransformerEncoderLayer`` does not call ``linear1`` and ``linear2`` but hands their weights
to one fused function, and ``nn.TransformerEncoder`` may give its layers nested tensors for that. Either
would unpack the weights in every call, so both ways are closed while a layer holds a packed weight.
"""

from __future__ import annotations

from torch import nn

from sparse_core.nm.blocks import BlockSparseLinear
from sparse_core.nm.packed_layer import PackedLayer

_KEPT = "_before_packing"


def call_packed_layers(model: nn.Module) -> list[str]:
    """Make encoder layers of ``model`` that hold packed layers call them.

    Padded positions of an encoder's output are then computed like any other instead of being zero.

    Returns:
        Names of the encoders and encoder layers that were changed.
    """
    changed = []
    for name, module in model.named_modules():
        if not _holds_packed(module):
            continue
        if isinstance(module, nn.TransformerEncoderLayer) and module.activation_relu_or_gelu:
            setattr(module, _KEPT, module.activation_relu_or_gelu)
            module.activation_relu_or_gelu = 0
            changed.append(name)
        elif isinstance(module, nn.TransformerEncoder) and module.use_nested_tensor:
            setattr(module, _KEPT, module.use_nested_tensor)
            module.use_nested_tensor = False
            changed.append(name)
    return changed


def restore_fused_layers(model: nn.Module) -> None:
    """Undo :func:`call_packed_layers` in encoders that hold no packed layer any more."""
    for module in model.modules():
        if not hasattr(module, _KEPT) or _holds_packed(module):
            continue
        kept = getattr(module, _KEPT)
        delattr(module, _KEPT)
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = kept
        elif isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = kept


def _holds_packed(module: nn.Module) -> bool:
    return any(isinstance(part, PackedLayer | BlockSparseLinear) for part in module.modules())
