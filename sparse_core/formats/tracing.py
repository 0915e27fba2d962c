"""What ``torch.compile`` has to be told to trace ``matrix @ tensor``."""

from __future__ import annotations

import operator

import torch


@torch.compiler.assume_constant_result
def reversed_product_is_told() -> bool:
    """Make the tracer tell ``matrix @ tensor`` from ``tensor @ matrix``; run once, while it traces.

    Where the first operand of an operator is no tensor, the tracer exchanges both and takes the reversed
    method, ``Tensor.__rsub__`` for ``-``. Its table of these methods leaves out ``@`` (seen in torch 2.13),
    so that both products would look alike. The first product that is traced puts the method in and starts
    the analysis again.

    Raises:
        TypeError: another version of torch, without that table.
    """
    try:
        from torch._dynamo.exc import RestartAnalysis
        from torch._dynamo.variables import builtin

        reversed_methods = builtin.BUILTIN_TO_TENSOR_RFN_MAP
    except (ImportError, AttributeError) as error:
        raise TypeError(
            "this version of torch does not trace matrix @ tensor: write linalg.spmm(matrix, tensor)"
        ) from error
    if operator.matmul not in reversed_methods:
        reversed_methods[operator.matmul] = torch.Tensor.__rmatmul__
        raise RestartAnalysis(restart_reason="matrix @ tensor is traced for the first time")
    return True
