"""Support of ``torch.compile`` for ``tensor @ matrix``."""

from __future__ import annotations

import operator

import torch


@torch.compiler.assume_constant_result
def register_reversed_matmul() -> bool:
    """Register ``Tensor.__rmatmul__`` with the tracer of ``torch.compile``; runs once, during tracing.

    If the first operand of an operator is not a tensor, the tracer exchanges both and calls the reversed
    method. Its table of these methods lacks ``@`` (seen in torch 2.13), so ``matrix @ tensor`` and
    ``tensor @ matrix`` would look alike. The first traced product adds the entry and restarts tracing.
    """
    try:
        from torch._dynamo.exc import RestartAnalysis
        from torch._dynamo.variables import builtin

        reversed_methods = builtin.BUILTIN_TO_TENSOR_RFN_MAP
    except (ImportError, AttributeError) as error:
        raise TypeError(
            "this version of torch cannot trace matrix @ tensor: write linalg.spmm(matrix, tensor)"
        ) from error
    if operator.matmul not in reversed_methods:
        reversed_methods[operator.matmul] = torch.Tensor.__rmatmul__
        raise RestartAnalysis(restart_reason="matrix @ tensor is traced for the first time")
    return True
