"""Triton kernels compiled side by side before they are needed, where a list says which these will be.

Triton compiles a kernel when it is first launched, one after the other: translating Python, LLVM, NVIDIA's
assembler and, in older versions, a C compiler for the launcher. A list of what a first frame compiled
elsewhere lets all cores do that at once, into the cache that Triton looks into anyway. What lies compiled
beside the list (:mod:`sparse_core.kernels.kernel_packs`) is put there, and only its launchers are made. What
the list lacks is compiled at its launch.

The process that compiles imports the kernels' modules and makes a copy of itself for each kernel::

    python -m sparse_core.kernels.ahead 90 < LIST       # 90: compute capability 9.0
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sparse_core.common.libraries import module_available
from sparse_core.kernels.kernel_packs import Job, pack_path, read_pack

_LOG = logging.getLogger(__name__)
#: Seconds after which the rest is left to be compiled when it is launched.
_LONGEST_S = 120.0
_WARP = 32
#: Below, compiling what a list has too many of takes as long as it saves.
_FEWEST_CORES = 4


@cache
def compile_ahead(listed: Path, device_index: int) -> Future[None]:
    """Begin to compile the kernels of a list for a GPU, once for each cache of Triton.

    Args:
        listed: what :func:`recorded` gave, as JSON; a pack of them may lie beside it.
        device_index: of the CUDA device.

    Returns:
        Done when it is; never fails.
    """
    import torch

    done: Future[None] = Future()
    if os.environ.get("TRITON_INTERPRET") == "1":
        done.set_result(None)
        return done
    major, minor = torch.cuda.get_device_capability(device_index)

    def work() -> None:
        try:
            _compile_list(listed, 10 * major + minor)
        except Exception:
            _LOG.debug("kernels are compiled when they are launched", exc_info=True)
        finally:
            done.set_result(None)

    threading.Thread(target=work, name="kernels-ahead", daemon=True).start()
    return done


def _compile_list(listed: Path, capability: int) -> None:
    import triton
    from triton import knobs

    text = listed.read_bytes()
    version = hashlib.sha256(text + f"{triton.__version__} {capability}".encode()).hexdigest()
    done = Path(knobs.cache.dir) / f"ahead-{version[:32]}"
    if done.exists():
        return
    pack = read_pack(pack_path(listed, capability))
    known, rest = [], []
    for entry in json.loads(text):
        job = job_of(entry, capability) if pack else None
        if job is not None and job.name in pack:
            job.put(pack[job.name])
            known.append(job)
        else:
            rest.append(entry)
    with ThreadPoolExecutor(_cores()) as pool:
        list(pool.map(_make_launcher, known))
    if rest and hasattr(os, "fork") and _cores() >= _FEWEST_CORES:
        _compile_beside(rest, capability)
    done.parent.mkdir(parents=True, exist_ok=True)
    done.touch()


def _compile_beside(entries: list[dict[str, Any]], capability: int) -> None:
    """By a process of its own, and its copies."""
    paths = os.pathsep.join(path for path in sys.path if path)
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", __name__, str(capability)],
            input=json.dumps(entries).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
            timeout=_LONGEST_S,
            check=False,
        )


@contextmanager
def recorded() -> Iterator[list[dict[str, Any]]]:
    """What Triton compiles within the block: kernel, types, constants and options of each, for a list.

    ``seconds`` are those since the one before: as long as it took, at most.
    """
    from triton import knobs

    found: list[dict[str, Any]] = []
    last = time.perf_counter()

    def note(*, fn: Any, compile: dict[str, Any], **others: object) -> None:
        nonlocal last
        now = time.perf_counter()
        data = json.loads(compile["specialization_data"])
        found.append(
            {
                "kernel": f"{fn.module}:{fn.name}",
                "signature": data["signature"],
                "constants": list(zip(data["constant_keys"], data["constant_vals"], strict=True)),
                "attributes": list(zip(data["attrs_keys"], data["attrs_vals"], strict=True)),
                # Options as they were given stand behind the types; those of the device are not for others.
                "options": ast.literal_eval(data["key"][data["key"].rindex("{") :]),
                "seconds": round(now - last, 3),
            }
        )
        last = now

    before, knobs.runtime.jit_post_compile_hook = knobs.runtime.jit_post_compile_hook, note
    try:
        yield found
    finally:
        knobs.runtime.jit_post_compile_hook = before


def kernel_of(entry: dict[str, Any]) -> Any:
    """Triton's function of an entry of a list, its module imported."""
    module, name = entry["kernel"].split(":")
    return getattr(importlib.import_module(module), name)


def job_of(entry: dict[str, Any], capability: int) -> Job:
    """Return an entry of a list as Triton compiles it.

    Args:
        entry: of :func:`recorded`.
        capability: compute capability, ten times the major plus the minor number.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    target = GPUTarget("cuda", capability, _WARP)
    source = ASTSource(
        kernel_of(entry),
        {name: _tuples(kind) for name, kind in entry["signature"].items()},
        {tuple(place): _constant(value) for place, value in entry["constants"]},
        {tuple(place): value for place, value in entry["attributes"]},
    )
    return Job(source, target, make_backend(target).parse_options(entry["options"]))


def _make_launcher(job: Job) -> None:
    """Compile a kernel into Triton's cache, which needs no GPU, and its launcher, where one is."""
    import torch

    compiled = job.compiled()
    if torch.cuda.is_available():
        from triton.backends.nvidia.driver import CudaLauncher

        CudaLauncher(compiled.src, compiled.metadata)


def _constant(value: Any) -> Any:
    """As Triton wrote it into JSON, back."""
    import triton.language as tl

    if isinstance(value, dict):
        return tl.constexpr(_tuples(value["constexpr"]))
    if isinstance(value, str) and tl.dtype.is_dtype(value):
        return tl.dtype(value)
    return _tuples(value)


def _tuples(value: Any) -> Any:
    """Lists within are tuples, which JSON has not."""
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


def main() -> int:
    """Compile the list on the standard input by as many processes as there are cores; 1 if one failed."""
    capability, entries = int(sys.argv[1]), json.load(sys.stdin)
    for entry in entries:
        kernel_of(entry)
    running, failed, most = 0, False, _cores()
    for entry in entries:
        if running == most:
            failed |= os.wait()[1] != 0
            running -= 1
        # Nothing has started a thread or opened a device yet: a copy is safe.
        if os.fork() == 0:
            _compile_and_end(entry, capability)
        running += 1
    for _ in range(running):
        failed |= os.wait()[1] != 0
    return int(failed)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compile_and_end(entry: dict[str, Any], capability: int) -> None:
    """In the copy; what its parent has yet to write or close is not for it."""
    code = 1
    try:
        _make_launcher(job_of(entry, capability))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    if not module_available("triton"):
        raise SystemExit("Triton is not installed")
    raise SystemExit(main())
