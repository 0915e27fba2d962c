"""Files of which libraries read what damaged lengths say."""

from __future__ import annotations

import io
import os

#: Reads of more bytes than this are held against what the file has left.
_LARGE_READ = 1 << 20


class BoundedReader(io.BufferedReader):
    """A file that is never asked for more than it has: a damaged length would be allocated first."""

    def read(self, size: int | None = -1, /) -> bytes:
        """As many bytes as asked for, or all there are."""
        if size is not None and size > _LARGE_READ:
            size = min(size, os.fstat(self.fileno()).st_size - self.tell())
        return super().read(size)
