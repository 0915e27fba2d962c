"""Replacement of a module's weights in use, so that no forward pass mixes old and new ones."""

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

    Hooks on the module count the running forward passes of all threads. A swap waits until they end, and new
    passes wait until the swap ends, so each pass sees one set of weights.

    Args:
        module: called as a whole, ``module(x)``; direct calls of submodules are not guarded.
        copy: write into the module's own tensors, which CUDA graphs and optimisers need. Otherwise the module
            refers to the new tensors if type and device fit, without time or memory.
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
        """Replace all weights, or none if they do not fit.

        Args:
            state: one tensor of the same shape for each tensor of the module's state dict.

        Raises:
            ValueError: other tensors or shapes.
            RuntimeError: called within a forward pass of the module, which would deadlock.
        """
        if getattr(self._depth, "value", 0):
            raise RuntimeError("swap was called within a forward pass of the module: call it after the pass")
        own = self.module.state_dict(keep_vars=True)
        check_same_tensors(shapes_of(own), shapes_of(state), "the new state", "the module")
        # Move and convert before anything has to wait.
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
        """Remove the hooks; the weights stay."""
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
                # A waiting swap goes first, or a busy module would never swap.
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
