"""Files that are safe to hand to libraries that trust lengths in damaged data."""

from __future__ import annotations

import io
import os

#: Larger reads are limited to what is left of the file.
_LARGE_READ = 1 << 20


class BoundedReader(io.BufferedReader):
    """A file whose reads are limited to its size: a damaged length would allocate too much memory."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes."""
        if size is not None and size > _LARGE_READ:
            size = min(size, os.fstat(self.fileno()).st_size - self.tell())
        return super().read(size)
