"""Parallel compilation of Triton kernels before their first launch, from a list.

Triton compiles each kernel at its first launch, one after the other: Python to LLVM to PTX to machine code.
Older versions also run a C compiler for the launcher. A list of the kernels that a first frame compiled
elsewhere lets all cores compile them at once into Triton's cache. Kernels in the pack next to the list
(:mod:`sparse_core.kernels.kernel_packs`) are copied to the cache, and only their launchers are built. Kernels
missing from the list are compiled at their launch.

The compiling process imports the kernels' modules and forks once per kernel::

    python -m sparse_core.kernels.precompile 90 < LIST       # 90: compute capability 9.0
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
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from sparse_core.common.libraries import module_available
from sparse_core.kernels.kernel_packs import Job, pack_path, read_pack

_LOG = logging.getLogger(__name__)
#: Seconds after which the remaining kernels are left for their first launch.
_LONGEST_S = 120.0
_WARP = 32
#: With fewer cores, compiling kernels that are never launched costs as much as this saves.
_FEWEST_CORES = 4


@cache
def compile_ahead(listed: Path, device_index: int) -> Future[None]:
    """Start compiling the kernels of a list for a GPU, once per Triton cache.

    Args:
        listed: JSON from :func:`record_compilations`, possibly with a pack next to it.
        device_index: CUDA device.

    Returns:
        A future that completes without an error.
    """
    import torch

    if os.environ.get("TRITON_INTERPRET") == "1":
        done: Future[None] = Future()
        done.set_result(None)
        return done
    major, minor = torch.cuda.get_device_capability(device_index)
    started = start_triton()

    def work() -> None:
        started.result()
        _compile_list(listed, 10 * major + minor)

    return _in_thread("kernels-ahead", work)


@cache
def start_triton() -> Future[None]:
    """Import Triton beside the caller, once per process, with what its first launch takes longest for.

    That is a hash of its compiler (half a gigabyte) and, once per machine, a run of the C compiler. Neither
    holds up other threads.

    Returns:
        A future that completes without an error.
    """

    def work() -> None:
        from triton.runtime.cache import triton_key
        from triton.runtime.driver import driver

        triton_key()
        _ = driver.active  # Makes the driver.

    return _in_thread("start-triton", work)


def _in_thread(name: str, work: Callable[[], None]) -> Future[None]:
    """Run a function in a thread; its errors are left for the first launch."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except Exception:
            _LOG.debug("%s failed: Triton does it at the first launch", name, exc_info=True)
        finally:
            done.set_result(None)

    threading.Thread(target=run, name=name, daemon=True).start()
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
    # Kernels with arguments of the same types share a launcher.
    distinct = {str(list(job.source.signature.values())): job for job in known}
    with ThreadPoolExecutor(_cores()) as pool:
        list(pool.map(_make_launcher, distinct.values()))
    if rest and hasattr(os, "fork") and _cores() >= _FEWEST_CORES:
        _compile_in_process(rest, capability)
    done.parent.mkdir(parents=True, exist_ok=True)
    done.touch()


def _compile_in_process(entries: list[dict[str, Any]], capability: int) -> None:
    """Compile entries in a separate process, which forks."""
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
def record_compilations() -> Iterator[list[dict[str, Any]]]:
    """Record what Triton compiles within the block: kernel, types, constants and options, for a list.

    ``seconds`` is the time since the entry before, an upper bound of the compile time.
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
                # The key ends with the options as given; those of this device do not apply to others.
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
    """Import the module of a list entry and return its Triton function."""
    module, name = entry["kernel"].split(":")
    return getattr(importlib.import_module(module), name)


def job_of(entry: dict[str, Any], capability: int) -> Job:
    """Return the compile job of a list entry for a compute capability (ten times major plus minor)."""
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
    """Compile a kernel into Triton's cache; build its launcher if there is a GPU."""
    import torch

    compiled = job.compiled()
    if torch.cuda.is_available():
        from triton.backends.nvidia.driver import CudaLauncher

        CudaLauncher(compiled.src, compiled.metadata)


def _constant(value: Any) -> Any:
    """Convert a constant back from Triton's JSON."""
    import triton.language as tl

    if isinstance(value, dict):
        return tl.constexpr(_tuples(value["constexpr"]))
    if isinstance(value, str) and tl.dtype.is_dtype(value):
        return tl.dtype(value)
    return _tuples(value)


def _tuples(value: Any) -> Any:
    """Convert nested lists to tuples, which JSON lacks."""
    return tuple(_tuples(one) for one in value) if isinstance(value, list) else value


def main() -> int:
    """Compile the list on standard input with one process per core; returns 1 if one failed."""
    capability, entries = int(sys.argv[1]), json.load(sys.stdin)
    for entry in entries:
        kernel_of(entry)
    running, failed, most = 0, False, _cores()
    for entry in entries:
        if running == most:
            failed |= os.wait()[1] != 0
            running -= 1
        # No thread has started and no device is open yet, so forking is safe.
        if os.fork() == 0:
            _compile_and_end(entry, capability)
        running += 1
    for _ in range(running):
        failed |= os.wait()[1] != 0
    return int(failed)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compile_and_end(entry: dict[str, Any], capability: int) -> None:
    """Compile in the forked process; exits without running the parent's cleanup."""
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
