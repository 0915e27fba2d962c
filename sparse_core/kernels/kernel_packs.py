"""Packs of Triton kernels compiled elsewhere, stored next to their list and copied into Triton's cache.

The compiled code depends only on the kernel's source, types and constants, Triton's version and the kind of
device. A pack stores machine code and Triton's metadata under a hash of these. If one of them changes, no
entry matches, and Triton compiles as usual.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sparse_core.common.files import write_file

#: Length of the hash at the start of a member's name; the kernel's name follows.
_HASHED = 32


class Binary(NamedTuple):
    """Machine code of a kernel, and Triton's metadata as JSON."""

    code: bytes
    metadata: bytes


def pack_path(listed: Path, capability: int) -> Path:
    """Return the path of the pack for this Triton and a compute capability (ten times major plus minor)."""
    import triton

    return listed.with_name(f"{listed.stem}-sm_{capability}-triton-{triton.__version__}.tar.xz")


class Job:
    """An entry of a kernel list for one device, as :func:`triton.compile` takes it."""

    def __init__(self, source: Any, target: Any, options: Any) -> None:
        self.source, self.target, self.options = source, target, options

    @property
    def name(self) -> str:
        """Name in a pack."""
        import triton

        said = f"{triton.__version__}-{self.target}-{self.source.hash()}-{self.options.hash()}"
        return f"{hashlib.sha256(said.encode()).hexdigest()[:_HASHED]}-{self.source.name}"

    def compiled(self) -> Any:
        """Return Triton's kernel, from its cache or compiled into it."""
        import triton

        return triton.compile(self.source, target=self.target, options=self.options.__dict__)

    def put(self, binary: Binary) -> None:
        """Copy a kernel into Triton's cache unless one is there."""
        from triton.compiler import make_backend
        from triton.compiler.compiler import get_cache_invalidating_env_vars, get_cache_key
        from triton.runtime.cache import get_cache_manager

        backend = make_backend(self.target)
        key = get_cache_key(self.source, backend, self.options, env_vars=get_cache_invalidating_env_vars())
        place = hashlib.sha256(key.encode()).hexdigest()
        manager, described = get_cache_manager(place), f"{self.source.name}.json"
        if manager.get_group(described):
            return
        code = f"{self.source.name}.{backend.binary_ext}"
        metadata = json.dumps(json.loads(binary.metadata) | {"hash": place})
        files = {
            code: manager.put(binary.code, code),
            described: manager.put(metadata, described, binary=False),
        }
        manager.put_group(described, files)


def write_pack(path: Path, jobs: Sequence[Job]) -> int:
    """Compile the jobs, write their pack and return its bytes; repeats bit for bit for the same kernels."""
    binaries = {}
    for job in jobs:
        kernel = job.compiled()
        metadata = kernel.metadata._asdict() | {"target": job.target.__dict__}
        # The cache folder depends on the build of Triton.
        del metadata["hash"]
        metadata = json.dumps(metadata, sort_keys=True)
        binaries[job.name] = Binary(kernel.kernel, metadata.encode())
    # Variants of one kernel have similar machine code: side by side they compress well.
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in sorted(binaries, key=lambda name: (name[_HASHED:], name)):
            for suffix, data in zip((".cubin", ".json"), binaries[name], strict=True):
                member = tarfile.TarInfo(name + suffix)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    packed = lzma.compress(content.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    write_file(path, packed)
    return len(packed)


def read_pack(path: Path) -> Mapping[str, Binary]:
    """Return the kernels of a pack by name; none if the file does not exist."""
    if not path.exists():
        return {}
    found: dict[str, dict[str, bytes]] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                name, _, suffix = member.name.rpartition(".")
                found.setdefault(name, {})[suffix] = file.read()
    return {name: Binary(parts["cubin"], parts["json"]) for name, parts in found.items()}
