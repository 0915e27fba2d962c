"""Which of the library's algorithms may be tried.

Candidates cannot simply all be tried: for float16, version 0.8 offers more algorithms than for bfloat16,
number 36 ends the process's use of the GPU with an illegal instruction (the library's own search runs into
it too), and making a plan takes 170 ms where the other types take one. What was checked is listed here. For
other versions and GPUs only the library's first choice is used.
"""

from __future__ import annotations

import torch

from sparse_core.nm.cusparselt.library import load

#: (library version, compute capability, type): algorithms that were seen to run, with and without bias and
#: ReLU, on 8 to 65,536 rows; for float16 the first choice and those that were the fastest of 21 anywhere.
CHECKED: dict[tuple[tuple[int, int, int], tuple[int, int], torch.dtype], tuple[int, ...]] = {
    ((0, 8, 0), (9, 0), torch.bfloat16): tuple(range(21)),
    ((0, 8, 0), (9, 0), torch.float16): (0, 5, 6),
    ((0, 8, 0), (9, 0), torch.int8): tuple(range(25)),
}


def checked_algorithms(device_index: int, dtype: torch.dtype, offered: int) -> list[int]:
    """The algorithms that may be tried.

    Args:
        device_index: the CUDA device.
        dtype: of the operands.
        offered: how many the library has.

    Returns:
        Their numbers, rising.
    """
    version, capability = load().version, torch.cuda.get_device_capability(device_index)
    return [number for number in CHECKED.get((version, capability, dtype), (0,)) if number < offered]
