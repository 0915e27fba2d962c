"""Steps of a launch plan, made from the Triton kernels that an ordinary call launched.

:func:`sparse_core.kernels.launches.record` records the launches of a call. Tensors that change between calls
(operands, the result, scratch memory) are found among the arguments by their addresses; all others are fixed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from sparse_core.kernels.launch_plan import PROGRAMMATIC, KernelLaunch, KernelStep, Place, argument_sizes
from sparse_core.kernels.launches import RecordedLaunch

_PACKED = {"i32": "<i", "u32": "<I", "i64": "<q", "u64": "<Q", "fp32": "<f", "fp64": "<d"}


class BoundLaunch(NamedTuple):
    """A launch without the tensors that change.

    Attributes:
        launch: the launch with None for these tensors.
        places: their positions among the arguments.
        moving: for each place, number of the tensor and byte offset within it.
    """

    launch: RecordedLaunch
    places: tuple[int, ...]
    moving: tuple[tuple[int, int], ...]


def bind(
    launches: Sequence[RecordedLaunch], operands: Sequence[Tensor], scratch: Sequence[Tensor]
) -> list[BoundLaunch] | None:
    """Find the tensors that change among the arguments of launches.

    Args:
        launches: launches of one call.
        operands: operands and result of the call. A launch takes each at most once, and whole.
        scratch: memory that the launches use between them; a launch may take part of it.

    Returns:
        None if an argument is ambiguous, or a tensor is in no launch.
    """
    found = [_bind_launch(launch, operands, scratch) for launch in launches]
    bound = [one for one in found if one is not None]
    used = {which for one in bound for which, _ in one.moving}
    if len(bound) != len(found) or used != set(range(len(operands) + len(scratch))):
        return None
    return bound


def bind_by_identity(
    launches: Sequence[RecordedLaunch], operands: Sequence[Tensor], fixed: Sequence[Tensor]
) -> list[BoundLaunch] | None:
    """Find the operands among the arguments of launches, as the very objects; views may overlap.

    Args:
        launches: launches of one call.
        operands: tensors that change between calls.
        fixed: tensors that do not.

    Returns:
        None if a launch takes another tensor, or if an operand is in no launch.
    """
    numbers = {id(operand): number for number, operand in enumerate(operands)}
    still = set(map(id, fixed))
    bound: list[BoundLaunch] = []
    for launch in launches:
        tensors = {
            place: id(argument)
            for place, argument in enumerate(launch.arguments)
            if isinstance(argument, Tensor)
        }
        places = tuple(place for place, one in tensors.items() if one in numbers)
        known = all(one in numbers or one in still for one in tensors.values())
        if launch.compiled is None or not known:
            return None
        moving = tuple((numbers[tensors[place]], 0) for place in places)
        bound.append(BoundLaunch(launch.without(places), places, moving))
    used = {which for one in bound for which, _ in one.moving}
    return bound if used == set(range(len(operands))) else None


def are_same(launches: Sequence[BoundLaunch], others: Sequence[BoundLaunch]) -> bool:
    """Return True if two calls read the very same tensors and numbers."""
    return len(launches) == len(others) and all(
        (one.places, one.moving) == (other.places, other.moving) and _same_launch(one.launch, other.launch)
        for one, other in zip(launches, others, strict=True)
    )


def make_steps(launches: Sequence[BoundLaunch]) -> list[KernelStep] | None:
    """Return the launches as the driver takes them; None if Triton's launcher does more than pass them on."""
    steps = [_step(one) for one in launches]
    made = [one for one in steps if one is not None]
    return made if len(made) == len(steps) else None


def _bind_launch(
    launch: RecordedLaunch, operands: Sequence[Tensor], scratch: Sequence[Tensor]
) -> BoundLaunch | None:
    tensors = [*operands, *scratch]
    places: list[int] = []
    moving: list[tuple[int, int]] = []
    for place, argument in enumerate(launch.arguments):
        if not isinstance(argument, Tensor):
            continue
        address = argument.data_ptr()
        within = [
            (which, address - tensor.data_ptr())
            for which, tensor in enumerate(tensors)
            if 0 <= address - tensor.data_ptr() < tensor.numel() * tensor.element_size()
        ]
        if not within:
            continue
        which, shift = within[0]
        is_operand = which < len(operands)
        is_part = shift != 0 or argument.numel() != tensors[which].numel()
        is_second = which in {tensor for tensor, _ in moving}
        if len(within) > 1 or (is_operand and (is_part or is_second)):
            return None
        places.append(place)
        moving.append(within[0])
    if launch.compiled is None:
        return None
    return BoundLaunch(launch.without(tuple(places)), tuple(places), tuple(moving))


def _same_launch(launch: RecordedLaunch, other: RecordedLaunch) -> bool:
    return (
        launch.compiled is other.compiled
        and launch.grid == other.grid
        and launch.options == other.options
        and len(launch.arguments) == len(other.arguments)
        and all(
            one is another if isinstance(one, Tensor) else one == another
            for one, another in zip(launch.arguments, other.arguments, strict=True)
        )
    )


def _step(bound: BoundLaunch) -> KernelStep | None:
    launch, signature = bound.launch, bound.launch.kernel.signature
    named = {name: one for name, one in launch.options.items() if name in signature.parameters}
    arguments = signature.bind(*launch.arguments, **named)
    arguments.apply_defaults()
    width, height, depth = (*launch.grid, 1, 1)[:3]
    values = [one.data_ptr() if isinstance(one, Tensor) else one for one in arguments.arguments.values()]
    described = describe(launch.compiled, (width, height, depth), values)
    if described is None:
        return None
    as_driver, where = described
    places = zip(bound.places, bound.moving, strict=True)
    return KernelStep(
        as_driver, tuple(Place(where[place], 0, which, shift) for place, (which, shift) in places)
    )


def describe(
    compiled: Any, grid: tuple[int, int, int], arguments: Sequence[Any]
) -> tuple[KernelLaunch, dict[int, int]] | None:
    """Return a launch as the driver takes it, and the position of each of the function's arguments in it.

    Returns None if Triton's launcher does more than pass the arguments on.
    """
    types, settings = list(compiled.src.signature.values()), compiled.metadata
    more = ("launch_cooperative_grid", "global_scratch_size", "profile_scratch_size", "tensordesc_meta")
    if len(types) != len(arguments) or any(getattr(settings, name, None) for name in more):
        return None
    if getattr(settings, "num_ctas", 1) != 1:
        return None
    sizes = argument_sizes(compiled.function)
    packed: list[bytes] = []
    where: dict[int, int] = {}
    for place, (kind, value) in enumerate(zip(types, arguments, strict=True)):
        if kind == "constexpr":
            continue
        form = "<Q" if isinstance(kind, str) and kind.startswith("*") else _PACKED.get(kind)
        if form is None:
            return None
        where[place] = len(packed)
        packed.append(struct.pack(form, 0 if value is None else value))
    # The rest are addresses of scratch memory, which these kernels do not use.
    packed += [bytes(size) for size in sizes[len(packed) :]]
    if [len(one) for one in packed] != sizes:
        return None
    attributes = PROGRAMMATIC if getattr(settings, "launch_pdl", False) else b""
    block = (32 * settings.num_warps, 1, 1)
    return KernelLaunch(compiled.function, grid, block, settings.shared, attributes, tuple(packed)), where
