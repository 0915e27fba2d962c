"""Mapping from operations of a traced graph to their rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from sparse_core.nm.permutation import rules, shapes
from sparse_core.nm.permutation.axes import Value
from sparse_core.nm.permutation.rules import Call, Rule

_ELEMENTWISE = """
    abs add addcdiv addcmul alias alpha_dropout and ceil celu clamp clamp_max clamp_min clip clone
    contiguous cos detach div dropout dropout1d dropout2d dropout3d elu eq erf exp expm1 feature_dropout
    float floor floordiv floor_divide fmod ge gelu gt half bfloat16 double hardshrink hardsigmoid hardswish
    hardtanh invert isub iadd imul itruediv le leaky_relu lerp lift_fresh_copy log log1p log_softmax
    logical_and logical_not logical_or logsigmoid lt masked_fill maximum minimum mish mod mul multiply
    nan_to_num ne neg or pos pow reciprocal relu relu6 remainder requires_grad_ round rsqrt rsub selu
    sigmoid sign silu sin softmax softmin softplus softshrink softsign sqrt square sub subtract tan tanh
    tanhshrink threshold to to_copy true_divide truediv trunc type type_as where
"""

RULES: dict[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE.split(), rules.elementwise),
    **{f"conv{d}d": partial(rules.convolution, spatial=d) for d in (1, 2, 3)},
    **{
        f"{kind}_pool{d}d": partial(shapes.pooling, spatial=d)
        for d in (1, 2, 3)
        for kind in ("max", "avg", "adaptive_max", "adaptive_avg", "lp")
    },
    **dict.fromkeys(("sum", "mean", "amax", "amin", "prod", "std", "var", "logsumexp"), rules.reduction),
    "addmm": rules.addmm,
    "batch_norm": rules.channel_norm,
    "instance_norm": rules.channel_norm,
    "bmm": rules.matmul,
    "matmul": rules.matmul,
    "mm": rules.matmul,
    "cat": shapes.concatenate,
    "concat": shapes.concatenate,
    "embedding": partial(rules.embedding, indices=0),
    "aten embedding": partial(rules.embedding, indices=1),
    "expand": rules.elementwise,
    "expand_as": lambda call: rules.elementwise(_first_only(call)),
    "flatten": shapes.reshape,
    "getitem": shapes.get_item,
    "glu": shapes.glu,
    "group_norm": rules.group_norm,
    "interpolate": shapes.interpolate,
    "layer_norm": rules.layer_norm,
    "rms_norm": rules.layer_norm,
    "linear": rules.linear,
    "mT": lambda call: shapes.transpose(_first_only(call)),
    "narrow": shapes.slice_along,
    "pad": shapes.resize,
    "permute": shapes.permute,
    "reshape": shapes.reshape,
    "scaled_dot_product_attention": rules.attention,
    "select": shapes.select,
    "slice": shapes.slice_along,
    "squeeze": shapes.reshape,
    "swapaxes": shapes.transpose,
    "t": lambda call: shapes.transpose(_first_only(call)),
    "transpose": shapes.transpose,
    "unflatten": shapes.reshape,
    "unsafe_view": shapes.reshape,
    "unsqueeze": shapes.reshape,
    "view": shapes.reshape,
}

SPLITS = ("chunk", "split", "split_with_sizes", "tensor_split")

_POINTWISE_MODULES = (
    nn.CELU, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.ELU, nn.GELU,
    nn.Hardshrink, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.LogSigmoid,
    nn.LogSoftmax, nn.Mish, nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softmax, nn.Softplus,
    nn.Softshrink, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Threshold,
)  # fmt: skip

_POOLS = {
    getattr(nn, f"{kind}Pool{d}d"): d
    for d in (1, 2, 3)
    for kind in ("Max", "Avg", "AdaptiveMax", "AdaptiveAvg")
}

_PADS = tuple(
    getattr(nn, f"{kind}Pad{d}d")
    for d in (1, 2, 3)
    for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular")
)

Parameter = Callable[[str], Value | None]


def apply_module(module: nn.Module, call: Call, parameter: Parameter) -> Value | None:
    """Apply the rule of a torch.nn module; None if it has no rule.

    ``parameter`` returns the value of one of the module's parameters or buffers by name.
    """
    kind = type(module)
    if kind in _POINTWISE_MODULES:
        return rules.elementwise(call)
    if kind in _POOLS:
        return shapes.pooling(call, spatial=_POOLS[kind])
    if kind in _PADS:
        return shapes.resize(call)
    if kind in (nn.Flatten, nn.Unflatten):
        return shapes.reshape(call)
    if kind in (nn.Upsample, nn.UpsamplingBilinear2d, nn.UpsamplingNearest2d):
        return shapes.interpolate(call)
    if kind is nn.GLU:
        return shapes.glu(_function_call(call, module.dim))
    if kind is nn.MultiheadAttention:
        return _multi_head(call, parameter)
    return _apply_layer(module, call, parameter)


def _apply_layer(module: nn.Module, call: Call, parameter: Parameter) -> Value | None:
    kind = type(module)
    weight, bias = parameter("weight"), parameter("bias")
    if kind in (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return rules.linear(_function_call(call, weight, bias))
    for spatial, (plain, transposed) in enumerate(_CONVOLUTIONS, start=1):
        if kind in (plain, transposed):
            arguments = (weight, bias, None, None, None, module.groups)
            other_way = kind is transposed
            return rules.convolution(_function_call(call, *arguments), spatial=spatial, transposed=other_way)
    if kind in _CHANNEL_NORMS:
        running = parameter("running_mean"), parameter("running_var")
        return rules.channel_norm(_function_call(call, *running, weight, bias))
    if kind in (nn.LayerNorm, nn.RMSNorm):
        return rules.layer_norm(_function_call(call, module.normalized_shape, weight, bias))
    if kind is nn.GroupNorm:
        return rules.group_norm(_function_call(call, module.num_groups, weight, bias))
    if kind is nn.Embedding:
        return rules.embedding(_function_call(call, weight), indices=0)
    if kind is nn.PReLU and weight is not None:
        if weight.shape[0] > 1:
            call.system.unify(call.x.axes[1], weight.axes[0])
        return Value(call.shape, call.x.axes)
    return None


_CONVOLUTIONS = (
    (nn.Conv1d, nn.ConvTranspose1d),
    (nn.Conv2d, nn.ConvTranspose2d),
    (nn.Conv3d, nn.ConvTranspose3d),
)
_CHANNEL_NORMS = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip


def _multi_head(call: Call, parameter: Parameter) -> Value | None:
    """Tie inputs and output to the residual stream; heads keep their order."""
    streams = call.tensors[:3]
    packed = parameter("in_proj_weight")
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    found = [packed or parameter(name) for name in names]
    weights = [weight for weight in found if weight is not None]
    out, bias = parameter("out_proj.weight"), parameter("out_proj.bias")
    if out is None or len(streams) < 3 or len(weights) < 3:
        return None
    reason = f"{call.name} splits channels into heads"
    system = call.system
    for stream, weight in zip(streams, weights, strict=True):
        system.unify(stream.axes[-1], weight.axes[1])
        system.lock(weight.axes[0], reason)
    system.lock(out.axes[1], reason)
    if bias is not None:
        system.unify(out.axes[0], bias.axes[0])
    for value in (parameter("bias_k"), parameter("bias_v"), parameter("in_proj_bias")):
        system.lock_all([] if value is None else [value], reason)
    lead = tuple(map(call.fixed, call.shape[:-1]))
    return Value(call.shape, (*lead, out.axes[0]))


def _function_call(call: Call, *arguments: Any) -> Call:
    """Return the call of the function that a module stands for."""
    return Call(call.system, call.name, (call.x, *arguments), {}, call.shape)


def _first_only(call: Call) -> Call:
    return Call(call.system, call.name, (call.x,), {}, call.shape)
