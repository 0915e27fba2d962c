"""Trace a model and find which channels of which parameters are tied."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from sparse_core.nm.permutation.axes import Axis, AxisSystem, Value
from sparse_core.nm.permutation.operations import RULES, SPLITS, apply_module
from sparse_core.nm.permutation.rules import Call, barrier, tensors_in
from sparse_core.nm.permutation.shapes import split

_Key = tuple[int, tuple[int, ...], tuple[int, ...]]


class ChannelGraph:
    """Axes of all parameters and buffers of a model, tied as its forward pass ties them.

    Args:
        model: traced with ``torch.fx``, or with ``torch.export`` if that fails; does not change.
        example_inputs: a tensor, positional arguments, or named arguments.

    Attributes:
        system: the axes.
        tensors: every parameter and buffer once, by its first name.
        values: their axes.
        tracer: ``"torch.fx"`` or ``"torch.export"``.
    """

    def __init__(self, model: nn.Module, example_inputs: Any) -> None:
        self.system = AxisSystem()
        self.tensors: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self.values: dict[str, Value] = {}
        self._by_key: dict[_Key, str] = {}
        self._reached: set[str] = set()
        for name, tensor in list(self.tensors.items()):
            self._add(name, tensor)
        self._lock_overlapping()
        graph, arguments, self.tracer = _trace(model, example_inputs)
        _Interpreter(graph, self).run(*arguments)
        for name, value in self.values.items():
            if name not in self._reached:
                self.system.lock_all([value], "the forward pass does not use it")

    def value_of(self, tensor: Tensor) -> Value:
        """Return the axes of a parameter or buffer; those of another tensor are locked."""
        name = self._by_key.get(_key(tensor))
        if name is None:
            lock = "a tensor that is no parameter"
            return Value(tuple(tensor.shape), tuple(self.system.fresh(size, lock) for size in tensor.shape))
        self._reached.add(name)
        return self.values[name]

    def _add(self, name: str, tensor: Tensor) -> None:
        if _key(tensor) in self._by_key:
            del self.tensors[name]
            return
        self._by_key[_key(tensor)] = name
        self.values[name] = Value(
            tuple(tensor.shape), tuple(self.system.fresh(size) for size in tensor.shape)
        )

    def _lock_overlapping(self) -> None:
        owners: dict[int, str] = {}
        for name, tensor in self.tensors.items():
            if tensor.numel() == 0:
                continue
            other = owners.setdefault(tensor.untyped_storage().data_ptr(), name)
            if other != name:
                shared = [self.values[name], self.values[other]]
                self.system.lock_all(shared, f"{name} and {other} share memory")


class _Interpreter(fx.Interpreter):
    """Runs the graph on the example and propagates axes with the numbers."""

    def __init__(self, graph: fx.GraphModule, channels: ChannelGraph) -> None:
        super().__init__(graph)
        self.channels = channels
        self.axes: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        args = fx.node.map_arg(n.args, self.axes.__getitem__)
        kwargs = fx.node.map_arg(n.kwargs, self.axes.__getitem__)
        self.axes[n] = self._axes_of(n, args, dict(kwargs), result)
        return result

    def _axes_of(self, n: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        system = self.channels.system
        if n.op == "get_attr":
            return self.channels.value_of(result) if isinstance(result, Tensor) else result
        if n.op == "placeholder":
            return _mapped(result, lambda tensor: _fixed(system, tensor, "the model's input"))
        name = _operation_name(n)
        shape = tuple(result.shape) if isinstance(result, Tensor) else ()
        call = Call(system, name, args, kwargs, shape)
        if n.op == "output":
            barrier(call, "the model's output")
            return args
        if n.op == "call_module":
            return self._module(n, call, result)
        return self._function(n, call, result)

    def _function(self, n: fx.Node, call: Call, result: Any) -> Any:
        name = call.name
        if name == "getitem" and not isinstance(call.args[0], Value):
            return call.args[0][call.args[1]]
        if not call.tensors or not _holds_tensor(result):
            return _mapped(result, lambda tensor: _fixed(call.system, tensor, f"{name} makes it"))
        if name in SPLITS:
            return split(call, [tuple(part.shape) for part in result])
        if name == "getattr":
            name = {"T": "t"}.get(call.args[1], call.args[1])
        if isinstance(n.target, torch._ops.OpOverload) and name == "embedding":
            name = "aten embedding"
        rule = RULES.get(name)
        if rule is None or not isinstance(result, Tensor):
            return _barrier(call, result)
        return rule(call)

    def _module(self, n: fx.Node, call: Call, result: Any) -> Any:
        module = self.fetch_attr(str(n.target))

        def parameter(name: str) -> Value | None:
            owner: Any = module
            for part in name.split("."):
                owner = getattr(owner, part, None)
            return self.channels.value_of(owner) if isinstance(owner, Tensor) else None

        first = result[0] if isinstance(module, nn.MultiheadAttention) else result
        value = None
        hooked = module._forward_hooks or module._forward_pre_hooks
        if isinstance(first, Tensor) and not hooked:
            call = Call(call.system, call.name, call.args, call.kwargs, tuple(first.shape))
            value = apply_module(module, call, parameter)
        if value is not None:
            rest = result[1:] if first is not result else ()
            others = (_mapped(item, lambda tensor: _fixed(call.system, tensor, call.name)) for item in rest)
            return value if first is result else (value, *others)
        kind = type(module).__name__
        why = "has hooks" if hooked else f"is a {kind}, which is not looked into"
        reason = f"{call.name} {why}"
        for tensor in (*module.parameters(), *module.buffers()):
            call.system.lock_all([self.channels.value_of(tensor)], reason)
        return _barrier(call, result, reason)


def _trace(model: nn.Module, example_inputs: Any) -> tuple[fx.GraphModule, Sequence[Any], str]:
    named = dict(example_inputs) if isinstance(example_inputs, Mapping) else {}
    positional = () if named else example_inputs
    positional = (positional,) if isinstance(positional, Tensor) else tuple(positional)
    try:
        bound = inspect.signature(model.forward).bind(*positional, **named)
        given = dict(bound.arguments)
        bound.apply_defaults()
        defaults = {name: value for name, value in bound.arguments.items() if name not in given}
        graph = fx.symbolic_trace(model, concrete_args=defaults or None)
        return graph, list(bound.arguments.values()), "torch.fx"
    except Exception as problem:  # The model's own code can raise any error here.
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    try:
        exported: Any = torch.export.export(model, positional, named, strict=False).module()
    except Exception as problem:
        raise ValueError(
            f"{type(model).__name__} can be traced neither by torch.fx ({reason}) nor by torch.export"
            f" ({problem}): its channels stay as they are"
        ) from problem
    return exported, [*positional, *named.values()], "torch.export"


def _operation_name(n: fx.Node) -> str:
    target = n.target
    if n.op == "call_module" or isinstance(target, str):
        name = str(target)
    elif isinstance(target, torch._ops.OpOverload):
        name = target._schema.name.rpartition("::")[2]
    else:
        name = getattr(target, "__name__", str(target))
    return name if n.op == "call_module" or name == "requires_grad_" else name.strip("_")


def _barrier(call: Call, result: Any, reason: str | None = None) -> Any:
    reason = reason or f"{call.name} may mix channels"
    barrier(call, reason)
    return _mapped(result, lambda tensor: _fixed(call.system, tensor, reason))


def _fixed(system: AxisSystem, tensor: Tensor, reason: str) -> Value:
    axes: tuple[Axis, ...] = tuple(system.fresh(size, reason) for size in tensor.shape)
    return Value(tuple(tensor.shape), axes)


def _mapped(tree: Any, change: Any) -> Any:
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, dict):
        return {key: _mapped(item, change) for key, item in tree.items()}
    if isinstance(tree, torch.Size) or not isinstance(tree, list | tuple):
        return tree
    return tuple(_mapped(item, change) for item in tree)


def _holds_tensor(tree: Any) -> bool:
    return bool(tensors_in(_mapped(tree, lambda tensor: Value(tuple(tensor.shape), ()))))


def _key(tensor: Tensor) -> _Key:
    # Empty tensors have no unique address.
    address = tensor.data_ptr() if tensor.numel() else id(tensor)
    return address, tuple(tensor.shape), tensor.stride()
