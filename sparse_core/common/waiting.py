"""How the threads of torch wait for each other on a CPU.

The OpenMP library that torch's wheels bring lets threads that wait spin for some milliseconds before they
sleep. Where another program wants the core, what spins takes it from the thread that is waited for, and a
frame of many short operations takes several times as long. Threads that sleep at once have to be woken for
each of these operations, which takes a fifth of a frame on cores that are free. So they spin for some
20 microseconds, and then sleep.

The library reads how to wait from the environment when it is loaded, with torch, and never again. So the
packages say it before: the moment at which torch is loaded is that of whoever needs it first, and a program
that does not never waits for it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

#: What users set to choose how threads wait: of OpenMP, of GNU's library, of LLVM's and Intel's.
_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
#: Rounds that a thread of GNU's library spins before it sleeps, and what other libraries are told: at once.
_SOON = {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "passive"}


def sleep_while_waiting() -> None:
    """Let the threads of torch sleep soon while they wait, whoever loads it.

    Does nothing to a torch that is loaded already, and nothing where the environment chooses a way of
    waiting when it is loaded. The environment is left as it was: programs started from here choose for
    themselves.
    """
    if "torch" not in sys.modules and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


class _TorchFinder(MetaPathFinder):
    """Finds torch as others do, once, and has it loaded with the environment that says how to wait."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As of the base class; ``None`` for all but torch."""
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None or any(name in os.environ for name in _CHOICES):
            return spec
        loader = spec.loader
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # The class's own is as it was.
            os.environ.update(_SOON)
            try:
                load(module)
            finally:
                for name in _SOON:
                    os.environ.pop(name, None)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_FINDER = _TorchFinder()
