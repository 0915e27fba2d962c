"""Ops: what implementations each has, what these need, and which one runs.

An op is declared once, beside its public function, with its implementations in the order in which ``"auto"``
tries them. A named implementation that cannot run raises with its reason and never falls back silently::

    SOLVE: Op[torch.dtype] = Op("solve", __package__, by_triton(), by_torch(), gradient=True)
    return SOLVE.pick(impl, b.device, b.dtype).solve(matrix, b)

``print(table())`` shows all ops of the modules that are loaded, ``[op.rows() for op in ops()]`` is the same
for JSON.
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

Impl = Literal["auto", "reference", "triton", "vendor"]
"""What most ops take as ``impl``; a name that an op lacks raises."""

Case = TypeVarTuple("Case")
_OPS: dict[str, Op] = {}
_HEADS = ("op", "implementation", "auto", "gradient", "needs")


@dataclass(frozen=True)
class Implementation(Generic[Unpack[Case]]):
    """One way to run an op.

    Attributes:
        name: what ``impl`` calls it.
        needs: what it cannot run without, in words.
        supports: why it cannot run on a kind of device (``"cpu"``) for a case, in words that follow its name;
            None where it can.
        auto: kinds of devices on which ``"auto"`` takes it; None: all.
        prefers: whether ``"auto"`` takes it there for a case; None: wherever it runs.
        module: that holds it, if not the one of its name in the op's folder.
    """

    name: str
    needs: str = ""
    supports: Callable[[str, Unpack[Case]], str | None] | None = None
    auto: tuple[str, ...] | None = None
    prefers: Callable[[str, Unpack[Case]], bool] | None = None
    module: str | None = None


def by_torch(module: str | None = None) -> Implementation[Unpack[Case]]:
    """Plain torch, which runs everywhere."""
    return Implementation("reference", module=module)


def by_triton(
    *,
    needs: str = "",
    supports: Callable[[str, Unpack[Case]], str | None] | None = None,
    prefers: Callable[[str, Unpack[Case]], bool] | None = None,
    module: str | None = None,
) -> Implementation[Unpack[Case]]:
    """Triton kernels: on CUDA, where ``"auto"`` takes them, and on a CPU in Triton's interpreter.

    Args:
        needs, supports, prefers, module: what goes beyond that, as in :class:`Implementation`.
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
    """Whether Triton's interpreter runs the kernels, which Triton decides when they are defined."""
    from triton import JITFunction

    from sparse_core.kernels.launches import begin_next

    return not isinstance(begin_next, JITFunction)


class Op(Generic[Unpack[Case]]):
    """An operation with several implementations; kept in the table of :func:`ops`.

    Args:
        name: of the public function.
        package: folder of the op; an implementation is its module of the same name.
        implementations: in the order in which ``"auto"`` tries them.
        gradient: whether the op has one.

    Attributes:
        name, implementations, gradient: as given; the implementations by name.
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
        """The name of the implementation that runs.

        Args:
            impl: as the caller got it; ``"auto"`` or a name.
            device: of the operands.
            case: what else decides.

        Raises:
            ValueError: no such implementation of any op.
            ImplementationError: the named one does not exist or cannot run here; the message tells why.
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
            raise ImplementationError(f"{self.name}: nothing runs on {device}: {self.reasons(device, *case)}")
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
        """The module of the implementation that runs, see :meth:`choose`."""
        return self.load(self.choose(impl, device, *case))

    def reasons(self, device: torch.device, *case: Unpack[Case]) -> dict[str, str | None]:
        """Why each implementation cannot run; None for those that can."""
        return {
            name: None if one.supports is None else one.supports(device.type, *case)
            for name, one in self.implementations.items()
        }

    def load(self, name: str) -> ModuleType:
        """The module of an implementation, imported when it is first asked for."""
        module = self._loaded.get(name)
        if module is None:
            path = self.implementations[name].module or f"{self._package}.{name}"
            module = self._loaded[name] = importlib.import_module(path)
        return module

    def rows(self) -> list[dict[str, str]]:
        """A row an implementation, in the order in which ``"auto"`` tries them."""
        rows = []
        for one in self.implementations.values():
            auto = "anywhere" if one.auto is None else ", ".join(one.auto) or "by name"
            gradient = "yes" if self.gradient else "no"
            rows.append(dict(zip(_HEADS, (self.name, one.name, auto, gradient, one.needs), strict=True)))
        return rows


def ops() -> list[Op]:
    """All ops of the modules that are loaded, by name."""
    return [_OPS[name] for name in sorted(_OPS)]


def table() -> Table:
    """All ops of the modules that are loaded, a row an implementation."""
    rows = [row for op in ops() for row in op.rows()]
    return Table(_HEADS, [[row[head] for head in _HEADS] for row in rows])
