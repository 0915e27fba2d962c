"""Program that writes to a store or reads it until its input is closed; it runs in old and new releases.

Arguments: ``write`` or ``read``, the store, the length of vectors, the memories to add to an empty store,
and the number of the first memory after these. It imports only ``memory`` and numpy, which every release has.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import numpy as np

from memory import Memory, MemoryStore, Query

LABELS = ("Car", "Door", "Chair", "Table")
PAUSE_S = 0.05


def memories(first: int, count: int, dim: int) -> list[Memory]:
    """Return memories whose captions name them."""
    vectors = np.random.default_rng(first).standard_normal((count, dim)).astype(np.float32)
    return [
        Memory(
            time_ns=(first + at) * 10**9, position=(float((first + at) % 100), 0.0, 0.0),
            label=LABELS[at % len(LABELS)], caption=f"number{first + at}", embedding=vectors[at],
        )
        for at in range(count)
    ]  # fmt: skip


def main() -> None:
    """Work until the input is closed; print what happened as the last line."""
    what, place, dim = sys.argv[1], sys.argv[2], int(sys.argv[3])
    ended = threading.Event()
    threading.Thread(target=_wait_for_end, args=(ended,), daemon=True).start()
    begun = time.perf_counter()
    store = MemoryStore.open(place, dim=dim) if what == "write" else MemoryStore.open(place, readonly=True)
    opened_s = time.perf_counter() - begun
    rows, number = int(sys.argv[4]), int(sys.argv[5])
    if what == "write" and len(store) == 0:
        for first in range(0, rows, 5000):
            store.add(memories(first, min(5000, rows - first), dim))
    if what == "read":
        store.search(np.eye(1, dim, dtype=np.float32), 1)  # Makes the index.
    print(json.dumps({"opened_s": opened_s}), flush=True)
    errors: list[str] = []
    acknowledged: list[int] = []
    done, longest = 0, 0.0
    while not ended.wait(PAUSE_S):
        start = time.perf_counter()
        try:
            if what == "write":
                store.add(memories(number, 1, dim))
                acknowledged.append(number)
                number += 1
            else:
                vector = np.random.default_rng(done).standard_normal(dim).astype(np.float32)
                query = (
                    Query(embedding=vector, k=10), Query(text=f"number{done % 1000}", k=3),
                    Query(labels=["Door"], between_ns=(0, 10**15), k=10),
                )[done % 3]  # fmt: skip
                if not store.query(query):
                    errors.append(f"nothing found by {query}"[:200])
        except Exception as error:  # An error is a figure here.
            errors.append(f"{type(error).__name__}: {error}"[:300])
        done += 1
        longest = max(longest, 1e3 * (time.perf_counter() - start))
    try:
        store.close()
    except Exception as error:
        errors.append(f"close: {type(error).__name__}: {error}"[:300])
    print(json.dumps({
        "calls": done, "longest_ms": round(longest, 1), "errors": errors, "acknowledged": acknowledged,
    }), flush=True)  # fmt: skip


def _wait_for_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main()
