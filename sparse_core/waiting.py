"""How the threads of torch wait for each other on a CPU.

The OpenMP library that torch's wheels bring lets threads that wait spin for some milliseconds before they
sleep. Where another program wants the core, what spins takes it from the thread that is waited for, and a
frame of many short operations takes several times as long. The library reads how to wait from the
environment when it is loaded, with torch, and never again, so this module must not load torch by itself.
"""

from __future__ import annotations

import os
import sys

#: What users set to choose how threads wait: of OpenMP, of GNU's library, of LLVM's and Intel's.
_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


def load_torch() -> bool:
    """Load torch so that its threads sleep while they wait.

    Does nothing to a torch that is loaded already, and nothing where the environment chooses a way of
    waiting. The environment is left as it was: programs started from here choose for themselves.

    Returns:
        Whether torch was loaded here and so.
    """
    if "torch" in sys.modules or any(name in os.environ for name in _CHOICES):
        return False
    os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        import torch  # noqa: F401
    finally:
        del os.environ["OMP_WAIT_POLICY"]
    return True
