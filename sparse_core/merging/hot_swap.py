"""New weights for a module that is in use, with no forward pass that sees half of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sparse_core.common.surgery import shapes_of
from sparse_core.merging.task_vector import check_same_tensors


class HotSwap:
    """Swaps the weights of a module between its forward passes.

    Hooks on the module count the forward passes under way, in any thread. A swap waits until they are done,
    new ones wait until the swap is done, and so each pass sees one set of weights.

    Args:
        module: called as a whole, ``module(x)``; submodules called on their own are not guarded.
        copy: write into the module's own tensors, which CUDA graphs and optimisers need; without it the
            module refers to the new tensors, where type and device fit, which takes no time and no memory.
    """

    def __init__(self, module: nn.Module, *, copy: bool = False) -> None:
        self.module = module
        self._copy = copy
        self._state = threading.Condition()
        self._running = 0
        self._swapping = False
        self._depth = threading.local()
        self._hooks = [
            module.register_forward_pre_hook(self._enter),
            module.register_forward_hook(self._leave, always_call=True),
        ]

    @torch.no_grad()
    def swap(self, state: Mapping[str, Tensor]) -> None:
        """Put other weights in; all of them or, when they do not fit, none.

        Args:
            state: for every tensor of the module's state dict one of its shape.

        Raises:
            ValueError: other tensors or shapes.
            RuntimeError: called within a forward pass of the module, which would wait for itself.
        """
        if getattr(self._depth, "value", 0):
            raise RuntimeError("swap was called within a forward pass of the module: call it after the pass")
        own = self.module.state_dict(keep_vars=True)
        check_same_tensors(shapes_of(own), shapes_of(state), "the new state", "the module")
        # Whatever moves or converts is done before anybody has to wait.
        ready = {name: state[name].detach().to(value.device, value.dtype) for name, value in own.items()}
        with self._state:
            while self._swapping:
                self._state.wait()
            self._swapping = True
            while self._running:
                self._state.wait()
        try:
            for name, value in own.items():
                if self._copy:
                    value.copy_(ready[name])
                else:
                    value.data = ready[name]
        finally:
            with self._state:
                self._swapping = False
                self._state.notify_all()

    def close(self) -> None:
        """Take the hooks off; the weights stay as they are."""
        for hook in self._hooks:
            hook.remove()

    def __enter__(self) -> HotSwap:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        depth = getattr(self._depth, "value", 0)
        if depth == 0:
            with self._state:
                # A waiting swap goes first, or a busy module would never be swapped.
                while self._swapping:
                    self._state.wait()
                self._running += 1
        self._depth.value = depth + 1

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        depth = getattr(self._depth, "value", 0)
        if depth == 0:  # a pass that began before the hooks were there
            return
        self._depth.value = depth - 1
        if depth == 1:
            with self._state:
                self._running -= 1
                self._state.notify_all()
