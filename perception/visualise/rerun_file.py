"""The .rrd file of a recording, whose failed writes become errors."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from sparse_core.common.files import GrowingFile

_PIECE_BYTES = 1 << 16


class RerunFile:
    """A file that Rerun fills through a pipe, because Rerun only logs failed writes and then hangs.

    Args:
        path: of the file; an existing file is replaced.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._error: OSError | None = None
        reading, self._writing = os.pipe()
        self._thread = threading.Thread(target=self._copy, args=(reading,), name="rerun-file", daemon=True)
        self._thread.start()
        #: Path that Rerun writes to.
        self.address = f"/dev/fd/{self._writing}"

    def check(self) -> None:
        """Raise the error of a failed write.

        Raises:
            OSError: a write failed; names the file.
        """
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Finish the file after Rerun has disconnected.

        Raises:
            OSError: a write failed; names the file.
        """
        os.close(self._writing)
        self._thread.join()
        self._file.close()
        self.check()

    def _copy(self, reading: int) -> None:
        with open(reading, "rb", buffering=0) as pipe:
            while piece := pipe.read(_PIECE_BYTES):
                # Keep reading after an error, because Rerun blocks on a full pipe.
                if self._error is None:
                    try:
                        self._file.write(piece)
                    except OSError as error:
                        self._error = error
