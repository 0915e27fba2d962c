"""Triton kernels that were compiled elsewhere, kept in a file beside their list and put where Triton looks.

What a kernel compiles to follows from its source, its types and constants, Triton's version and the kind of
device, and from nothing else; a pack holds machine code and Triton's description of it under a hash of these.
Where one of them has changed, nothing in the pack fits, and Triton compiles as it does without.
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

#: Of a member's name; the rest of it is the kernel's.
_HASHED = 32


class Binary(NamedTuple):
    """A compiled kernel.

    Attributes:
        code: for the device.
        metadata: JSON, as Triton keeps it.
    """

    code: bytes
    metadata: bytes


def pack_path(listed: Path, capability: int) -> Path:
    """Return the pack beside a list for this Triton and a compute capability (ten times major plus minor)."""
    import triton

    return listed.with_name(f"{listed.stem}-sm_{capability}-triton-{triton.__version__}.tar.xz")


class Job:
    """An entry of a list (:func:`sparse_core.kernels.ahead.recorded`) as Triton compiles it for one device.

    Args:
        source, target, options: as :func:`triton.compile` takes them.
    """

    def __init__(self, source: Any, target: Any, options: Any) -> None:
        self.source, self.target, self.options = source, target, options

    @property
    def name(self) -> str:
        """In a pack."""
        import triton

        said = f"{triton.__version__}-{self.target}-{self.source.hash()}-{self.options.hash()}"
        return f"{hashlib.sha256(said.encode()).hexdigest()[:_HASHED]}-{self.source.name}"

    def compiled(self) -> Any:
        """Triton's kernel, out of its cache or compiled into it."""
        import triton

        return triton.compile(self.source, target=self.target, options=self.options.__dict__)

    def put(self, binary: Binary) -> None:
        """Put a kernel where Triton looks for it, unless one is there."""
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
    """Compile and write a pack; the same to the bit for the same kernels.

    Returns:
        Bytes of the file.
    """
    binaries = {}
    for job in jobs:
        kernel = job.compiled()
        metadata = kernel.metadata._asdict() | {"target": job.target.__dict__}
        # The place in a cache, which depends on the build of Triton.
        del metadata["hash"]
        metadata = json.dumps(metadata, sort_keys=True)
        binaries[job.name] = Binary(kernel.kernel, metadata.encode())
    # Machine code of one kernel with other constants is alike: side by side, it is stored once.
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
    """Return the kernels of a pack by name; none where there is no such file."""
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
