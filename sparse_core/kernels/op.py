"""Ops: their implementations, the requirements of each, and the choice between them.

An op is declared once, next to its public function, with its implementations in the order in which ``"auto"``
tries them. A named implementation that cannot run raises with its reason and never falls back silently::

    SOLVE: Op[torch.dtype] = Op("solve", __package__, by_triton(), by_torch(), gradient=True)
    return SOLVE.pick(impl, b.device, b.dtype).solve(matrix, b)

``print(table())`` shows all ops of the loaded modules; ``[op.rows() for op in ops()]`` is the same for JSON.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Generic, Literal, get_args

import torch
from typing_extensions import TypeVarTuple, Unpack

import sparse_core.kernels.determinism  # noqa: F401  # before the first operator runs
from sparse_core.common.libraries import missing, module_available
from sparse_core.common.table import Table
from sparse_core.errors import ImplementationError

Impl = Literal["auto", "reference", "triton", "vendor", "cpu"]
"""Values of ``impl`` for most ops; an op raises for a name that it lacks."""

Case = TypeVarTuple("Case")
_OPS: dict[str, Op] = {}
_HEADS = ("op", "implementation", "auto", "gradient", "needs")


@dataclass(frozen=True)
class Implementation(Generic[Unpack[Case]]):
    """One implementation of an op.

    Attributes:
        name: its value of ``impl``.
        needs: its requirements, in words.
        supports: returns why it cannot run a case on a kind of device (``"cpu"``), in words that follow its
            name; None if it can.
        auto: kinds of devices on which ``"auto"`` uses it; None for all.
        prefers: returns True if ``"auto"`` should use it there for a case; None for always.
        module: its module, by default the one of its name in the op's folder.
    """

    name: str
    needs: str = ""
    supports: Callable[[str, Unpack[Case]], str | None] | None = None
    auto: tuple[str, ...] | None = None
    prefers: Callable[[str, Unpack[Case]], bool] | None = None
    module: str | None = None


def by_torch(module: str | None = None) -> Implementation[Unpack[Case]]:
    """Declare plain torch, which runs everywhere."""
    return Implementation("reference", module=module)


def by_triton(
    *,
    needs: str = "",
    supports: Callable[[str, Unpack[Case]], str | None] | None = None,
    prefers: Callable[[str, Unpack[Case]], bool] | None = None,
    module: str | None = None,
) -> Implementation[Unpack[Case]]:
    """Declare Triton kernels: on CUDA, where ``"auto"`` uses them, or on a CPU in Triton's interpreter.

    Arguments add to these conditions, see :class:`Implementation`.
    """

    def runs(kind: str, *case: Unpack[Case]) -> str | None:
        if not module_available("triton"):
            return missing("triton", "pip install triton")
        reason = None if supports is None else supports(kind, *case)
        if reason is None and kind != "cuda" and not interpreted():
            return f"needs CUDA tensors, got {kind} (TRITON_INTERPRET=1 in the environment runs it on a CPU)"
        return reason

    words = "triton; CUDA, or TRITON_INTERPRET=1" + (f"; {needs}" if needs else "")
    return Implementation("triton", words, runs, ("cuda",), prefers, module)


@cache
def interpreted() -> bool:
    """Return True if Triton's interpreter runs the kernels, which Triton decides at their definition."""
    from triton import JITFunction

    from sparse_core.kernels.launches import begin_next

    return not isinstance(begin_next, JITFunction)


class Op(Generic[Unpack[Case]]):
    """An operation with several implementations; registered in :func:`ops`.

    An implementation is the module of its name in ``package``. ``"auto"`` tries them in order.
    """

    def __init__(
        self, name: str, package: str, *implementations: Implementation[Unpack[Case]], gradient: bool
    ) -> None:
        self.name, self.gradient = name, gradient
        self.implementations = {one.name: one for one in implementations}
        self._automatic = tuple((one.auto, one.prefers, one.supports, one.name) for one in implementations)
        self._package = package
        self._loaded: dict[str, ModuleType] = {}
        _OPS[name] = self

    def choose(self, impl: str, device: torch.device, *case: Unpack[Case]) -> str:
        """Return the name of the implementation to run.

        Args:
            impl: ``"auto"`` or a name.
            device: device of the operands.
            case: further arguments of the implementations' conditions.

        Raises:
            ValueError: no op has such an implementation.
            ImplementationError: this op does not have it, or it cannot run here; the message gives the
                reason.
        """
        if impl == "auto":
            kind = device.type
            for kinds, prefers, supports, name in self._automatic:
                if (
                    (kinds is None or kind in kinds)
                    and (prefers is None or prefers(kind, *case))
                    and (supports is None or supports(kind, *case) is None)
                ):
                    return name
            raise ImplementationError(
                f"{self.name}: no implementation runs on {device}: {self.reasons(device, *case)}"
            )
        self.check(impl)
        supports = self.implementations[impl].supports
        reason = None if supports is None else supports(device.type, *case)
        if reason is not None:
            raise ImplementationError(f"{self.name}: impl={impl!r} {reason}")
        return impl

    def check(self, impl: str) -> None:
        """Raise as :meth:`choose` does unless ``impl`` is ``"auto"`` or an implementation of this op."""
        if impl == "auto" or impl in self.implementations:
            return
        names = ", ".join(("auto", *self.implementations))
        if impl in get_args(Impl):
            raise ImplementationError(f"{self.name} has no {impl} implementation: impl is one of {names}")
        raise ValueError(f"impl must be one of {names}; got {impl!r}")

    def pick(self, impl: str, device: torch.device, *case: Unpack[Case]) -> ModuleType:
        """Return the module of the implementation to run, see :meth:`choose`."""
        return self.load(self.choose(impl, device, *case))

    def reasons(self, device: torch.device, *case: Unpack[Case]) -> dict[str, str | None]:
        """Return why each implementation cannot run; None for those that can."""
        return {
            name: None if one.supports is None else one.supports(device.type, *case)
            for name, one in self.implementations.items()
        }

    def load(self, name: str) -> ModuleType:
        """Import and return the module of an implementation."""
        module = self._loaded.get(name)
        if module is None:
            path = self.implementations[name].module or f"{self._package}.{name}"
            module = self._loaded[name] = importlib.import_module(path)
        return module

    def rows(self) -> list[dict[str, str]]:
        """Return one row per implementation, in the order in which ``"auto"`` tries them."""
        rows = []
        for one in self.implementations.values():
            auto = "anywhere" if one.auto is None else ", ".join(one.auto) or "by name"
            gradient = "yes" if self.gradient else "no"
            rows.append(dict(zip(_HEADS, (self.name, one.name, auto, gradient, one.needs), strict=True)))
        return rows


def ops() -> list[Op]:
    """Return all ops of the loaded modules, by name."""
    return [_OPS[name] for name in sorted(_OPS)]


def table() -> Table:
    """Return a table of all ops of the loaded modules, one row per implementation."""
    rows = [row for op in ops() for row in op.rows()]
    return Table(_HEADS, [[row[head] for head in _HEADS] for row in rows])
