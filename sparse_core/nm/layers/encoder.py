"""Support for packed layers in torch's Transformer encoder.

In evaluation ``nn.TransformerEncoderLayer`` does not call ``linear1`` and ``linear2`` but passes their
weights to one fused function, and ``nn.TransformerEncoder`` may give its layers nested tensors for that.
Either would unpack the weights in every call, so both are disabled while a layer holds a packed weight.

Nested tensors drop padded positions, which ``nn.TransformerEncoder`` fills with zeros afterwards, before its
final norm. Packed encoders do the same to the positions that they computed whenever the dense encoder would
have used nested tensors; so their outputs agree at padded positions too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sparse_core.nm.layers.coded_layer import CodedLayer

_KEPT = "_before_packing"


def call_packed_layers(model: nn.Module) -> list[str]:
    """Make encoder layers that hold packed layers call them; returns the names of changed modules.

    Padded positions of an encoder's output are those of the dense encoder.
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
            if type(module).forward is nn.TransformerEncoder.forward:
                module.register_forward_hook(fill_padding, with_kwargs=True)
            changed.append(name)
    return changed


def restore_fused_layers(model: nn.Module) -> None:
    """Undo :func:`call_packed_layers` in encoders without packed layers."""
    for module in model.modules():
        if not hasattr(module, _KEPT) or _holds_packed(module):
            continue
        kept = getattr(module, _KEPT)
        delattr(module, _KEPT)
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = kept
        elif isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = kept
            for key, hook in list(module._forward_hooks.items()):
                if hook is fill_padding:
                    del module._forward_hooks[key]
                    module._forward_hooks_with_kwargs.pop(key, None)


def fill_padding(
    encoder: nn.TransformerEncoder, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Tensor
) -> Tensor:
    """Forward hook of a packed encoder: set padded positions as the dense encoder does.

    ``output`` (batch, sequence, features) has padded positions computed like any other. They become zero, or
    the final norm of zero.
    """
    names = ("src", "mask", "src_key_padding_mask")
    given = {**dict(zip(names, arguments, strict=False)), **keywords}
    padding = given.get("src_key_padding_mask")
    if padding is None or given.get("mask") is not None:
        return output
    padded = padding != 0
    if not _dense_is_nested(encoder, given["src"], padded):
        return output
    filling = torch.zeros_like(output)
    if encoder.norm is not None:
        filling = encoder.norm(filling)
    return torch.where(padded[..., None], filling, output)


def _dense_is_nested(encoder: nn.TransformerEncoder, src: Tensor, padded: Tensor) -> bool:
    """Return True if ``nn.TransformerEncoder.forward`` would make a padded input a nested tensor."""
    first = encoder.layers[0]
    if first.training or src.is_nested or src.dim() != 3 or torch.is_autocast_enabled():
        return False
    if not torch.backends.mha.get_fastpath_enabled():
        return False
    if torch.is_grad_enabled() and any(one.requires_grad for one in (src, *first.parameters())):
        return False
    if not getattr(encoder, "mask_check", True):
        return True
    # Only sequences whose padding is at the end; not checked during tracing.
    return not torch.compiler.is_compiling() and not bool((padded[:, :-1] & ~padded[:, 1:]).any())


def _holds_packed(module: nn.Module) -> bool:
    return any(isinstance(part, CodedLayer) for part in module.modules())
