"""The memory's index compared with faiss on the same GPU: three kinds of vectors, several counts.

    python -m benchmarks.memory.memory_cuda_peers --device cuda --sentences FILE.npy --budget-s 500

Our index runs with a target recall (.95 and .99 of the ten nearest), with default cells, with a scan of all
codes, and exactly. faiss runs flat and IVF in half precision, and IVF-PQ with codes of 64 bytes, alone and
refined by exact scores.

The vectors have 256 numbers. They lie around 1,000 centres, or they have no clusters and a spectrum that
falls with the inverse square root. A third kind are embeddings of real sentences
(``python -m benchmarks.memory.real_embeddings``).

The calls are those of a user, with queries on the device. Times are device times from the call to its answer.
On a CPU the same code runs with faiss-cpu, to test this file.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.lib.graphs import call_microseconds, microseconds
from benchmarks.lib.options import asked as asked_for
from benchmarks.lib.options import common_parser, configure, parse
from benchmarks.lib.results import result, save, show, table
from memory.index import recall
from memory.index.cuda import CudaIndex, rerank_top
from memory.index.cuda.exact import exact_top
from memory.index.cuda.index import Method

KINDS = ("clustered", "spectrum", "sentences")
AIMS = (0.95, 0.99)
_DIM, _K, _ROWS_AT_ONCE, _ASKED_AT_ONCE = 256, 10, 1 << 18, 64
#: Lists that faiss reads, and rows that are compared exactly behind its product codes.
_PROBES = (1, 4, 16, 64, 256)
_REFINED = 256
#: Product codes of 64 bytes.
_CODES = "PQ64x8"
#: Scratch space of faiss on the device, which does not count as memory of an index.
_SCRATCH = 256 << 20


class Data(NamedTuple):
    """(rows, dim) float16 unit vectors, and (queries, dim) float32 of the same kind, none of them a row."""

    vectors: Tensor
    queries: Tensor


class Side(NamedTuple):
    """One side: a search that returns (queries, 10) ids, and its description."""

    name: str
    effort: str
    search: Callable[[Tensor], Tensor]


def draw(
    kind: str, rows: int, queries: int, generator: torch.Generator, *, dim: int, sentences: Path | None
) -> Data:
    """Vectors of a kind: around 1,000 centres, of a spectrum that falls without clusters, or real ones.

    Args:
        kind: one of :data:`KINDS`.
        rows, queries: how many; of sentences as many as the file has.
        generator: on the device.
        dim: of what is drawn.
        sentences: .npy file with (rows, dim) unit vectors.

    Raises:
        ValueError: no file for sentences.
    """
    device = generator.device
    if kind == "sentences":
        if sentences is None:
            raise ValueError(
                "sentences need --sentences FILE.npy: run python -m benchmarks.memory.real_embeddings"
            )
        found = torch.from_numpy(np.load(sentences, allow_pickle=False).astype(np.float32)).to(device)
        order = torch.randperm(len(found), generator=generator, device=device)
        found = found[order] / found[order].norm(dim=1, keepdim=True)
        held = min(queries, len(found) // 10)
        return Data(found[held:].half(), found[:held])
    centres = torch.randn(min(1000, max(1, rows // 100)), dim, generator=generator, device=device)
    centres /= centres.norm(dim=1, keepdim=True)
    scale = torch.arange(1, dim + 1, device=device).rsqrt()
    out = torch.empty((rows + queries, dim), dtype=torch.float16, device=device)
    for first in range(0, len(out), _ROWS_AT_ONCE):
        some = out[first : first + _ROWS_AT_ONCE]
        drawn = torch.randn(some.shape, generator=generator, device=device)
        if kind == "clustered":
            own = torch.randint(0, len(centres), (len(some),), generator=generator, device=device)
            drawn = centres[own] + 0.05 * drawn
        else:
            drawn *= scale
        some.copy_(drawn / drawn.norm(dim=1, keepdim=True))
    asked = out[rows:].float()
    return Data(out[:rows], asked / asked.norm(dim=1, keepdim=True))


def truth_of(data: Data) -> np.ndarray[Any, Any]:
    """(queries, 10) the nearest by exact scores in single precision."""
    every = torch.arange(len(data.vectors), device=data.vectors.device)
    parts = [
        exact_top(data.vectors, some, every, _K, impl="reference").rows.cpu().numpy()
        for some in data.queries.split(_ASKED_AT_ONCE)
    ]
    return np.concatenate(parts)


def ours(data: Data, seed: int) -> Iterator[tuple[dict[str, Any], list[Side]]]:
    """Built, and by aim, by the usual cells, by the scan, and exactly."""
    device = data.vectors.device
    before, start = _taken(device), time.perf_counter()
    index = CudaIndex(data.vectors.shape[1], device=device, seed=seed)
    index.add_tensor(data.vectors, np.arange(len(data.vectors)))
    index.merge()
    _wait(device)
    built = {"build_s": round(time.perf_counter() - start, 3)}
    built["bytes_a_row"] = round(_taken(device, before, index.nbytes) / len(data.vectors), 1)
    start = time.perf_counter()
    for aim in AIMS:
        index.search_tensor(data.queries[:1], _K, aim=aim)
    built["measure_s"] = round(time.perf_counter() - start, 3)
    sides = []
    for aim in AIMS:
        by_aim = partial(_by_aim, index, aim)
        sides.append(Side(f"ours, aim {aim:g}", index.describe(aim), by_aim))
    sides.append(Side("ours, cells", "as made", partial(_by_method, index, "cells")))
    sides.append(Side("ours, scan", "all codes", partial(_by_method, index, "scan")))
    sides.append(Side("ours, exact", "all rows", partial(_by_aim, index, 1.0)))
    yield built, sides


def _by_aim(index: CudaIndex, aim: float, asked: Tensor) -> Tensor:
    return index.search_tensor(asked, _K, aim=aim).ids


def _by_method(index: CudaIndex, method: Method, asked: Tensor) -> Tensor:
    return index.search_tensor(asked, _K, method=method).ids


def faiss_flat(data: Data, seed: int) -> Iterator[tuple[dict[str, Any], list[Side]]]:
    """All rows, in half precision on a GPU."""
    yield from _faiss(data, "faiss, flat", "Flat", seed)


def faiss_lists(data: Data, seed: int) -> Iterator[tuple[dict[str, Any], list[Side]]]:
    """Inverted lists in half precision."""
    yield from _faiss(data, "faiss, IVF", f"IVF{_lists(len(data.vectors))},SQfp16", seed)


def faiss_codes(data: Data, seed: int) -> Iterator[tuple[dict[str, Any], list[Side]]]:
    """Inverted lists of product codes of 64 bytes, as they are and with rows compared exactly behind them."""
    yield from _faiss(data, "faiss, IVF-PQ", f"IVF{_lists(len(data.vectors))},{_CODES}", seed)


#: Sides by the order in which they are measured; each is freed before the next is built.
SIDES = {"ours": ours, "flat": faiss_flat, "IVF": faiss_lists, "IVF-PQ": faiss_codes}


def _lists(rows: int) -> int:
    """A power of two of about twice the square root."""
    return 1 << max(4, round(math.log2(2 * math.sqrt(rows))))


def _faiss(data: Data, name: str, factory: str, seed: int) -> Iterator[tuple[dict[str, Any], list[Side]]]:
    import faiss
    import faiss.contrib.torch_utils

    device, vectors = data.vectors.device, data.vectors
    before, start = _taken(device), time.perf_counter()
    index: Any = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    code_bytes = index.code_size
    if factory != "Flat":
        index.cp.seed, index.cp.min_points_per_centroid = seed + 1, 1
    resources = None
    if device.type == "cuda":
        resources = faiss.StandardGpuResources()
        resources.setTempMemory(_SCRATCH)
        options = faiss.GpuClonerOptions()
        options.useFloat16 = True
        index = faiss.index_cpu_to_gpu(resources, 0, index, options)
    if not index.is_trained:
        sample = vectors[:: max(1, len(vectors) // (64 * _lists(len(vectors))))]
        index.train(sample.float().contiguous())
    for some in vectors.split(_ROWS_AT_ONCE):
        index.add(some.float())
    _wait(device)
    built = {"build_s": round(time.perf_counter() - start, 3)}
    scratch = _SCRATCH if device.type == "cuda" else 0
    taken = _taken(device, before + scratch, len(vectors) * (code_bytes + 8))
    built["bytes_a_row"] = round(taken / len(vectors), 1)
    if factory == "Flat":
        yield built, [Side(name, "all rows", partial(_flat, index))]
        return
    sides = []
    for probes in [probes for probes in _PROBES if probes <= _lists(len(vectors))]:
        sides.append(Side(name, f"{probes} lists", partial(_probed, index, probes, _K)))
        if "PQ" in factory:
            refined = partial(_refined, vectors, index, probes)
            sides.append(Side(f"{name}, refined", f"{probes} lists, {_REFINED} rows compared", refined))
    yield built, sides
    del index, resources  # In this order.


def _flat(index: Any, asked: Tensor) -> Tensor:
    found: Tensor = index.search(asked, _K)[1]
    return found


def _probed(index: Any, probes: int, k: int, asked: Tensor) -> Tensor:
    index.nprobe = probes
    found: Tensor = index.search(asked, k)[1]
    return found


def _refined(vectors: Tensor, index: Any, probes: int, asked: Tensor) -> Tensor:
    """Recall of product codes, reranked exactly by our kernel."""
    found = _probed(index, probes, min(_REFINED, len(vectors)), asked).to(torch.int32)
    return rerank_top(vectors, asked, found, _K).rows


def compare(
    data: Data, facts: dict[str, Any], options: Any, enough: Callable[[], bool], notes: list[str]
) -> list[dict[str, Any]]:
    """Return recall, time and memory of all sides; a side that fails or finds no time left becomes a note.

    Args:
        data: to search.
        facts: of the data, for each row of the result.
        options: ``batches``, ``rounds``, ``cell_s`` and ``seed``.
        enough: whether the time is spent.
        notes: added to.
    """
    device, truth = data.vectors.device, truth_of(data)
    rows = []
    for name, make in SIDES.items():
        if enough():
            notes.append(f"left out for time: {facts['data']}, {facts['rows']} rows, {name}")
            continue
        try:
            for built, sides in make(data, options.seed):
                for side in sides:
                    rows += _timed(side, data, truth, facts | built, device, options)
        except Exception as error:  # one side must not cost the others their results
            line = (str(error).splitlines() or [""])[0][:200].replace(str(Path.cwd()), ".")
            notes.append(f"failed: {facts['data']}, {name}: {type(error).__name__}: {line}")
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return rows


def _timed(
    side: Side,
    data: Data,
    truth: np.ndarray[Any, Any],
    facts: dict[str, Any],
    device: torch.device,
    options: Any,
) -> list[dict[str, Any]]:
    rows = []
    parts = [side.search(some).cpu().numpy() for some in data.queries.split(_ASKED_AT_ONCE)]
    quality = round(recall(np.concatenate(parts), truth), 4)
    for batch in [batch for batch in options.batches if batch <= len(data.queries)]:
        asked = data.queries[:batch].contiguous()
        samples = call_microseconds(
            {side.name: partial(side.search, asked)},
            device,
            rounds=options.rounds,
            budget_s=options.cell_s,
            seed=options.seed,
            eager=(side.name,),
        )
        spent = microseconds(samples[side.name])
        row: dict[str, Any] = {"side": side.name, "effort": side.effort, "batch": batch, "recall": quality}
        rows.append(
            facts | row | {"microseconds": spent, "queries_per_s": round(batch * 1e6 / spent["median"])}
        )
        words = f"{facts['data']}, {facts['rows']:,} rows, {side.name} ({side.effort}), batch {batch}"
        print(f"{words}: {spent['median']:.1f} µs, recall {quality:.4f}", file=sys.stderr)
    return rows


def _taken(device: torch.device, before: int = 0, reckoned: int = 0) -> int:
    """Bytes of the device in use beyond those before; on a CPU what is reckoned."""
    if device.type != "cuda":
        return reckoned
    _wait(device)
    torch.cuda.empty_cache()
    free, whole = torch.cuda.mem_get_info(device)
    return whole - free - before


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    configure(device, options.threads)
    torch.set_float32_matmul_precision("highest")
    start, notes = time.perf_counter(), list[str]()

    def enough() -> bool:
        return options.budget_s is not None and time.perf_counter() - start > options.budget_s

    searches: list[dict[str, Any]] = []
    for rows in options.rows:
        for kind in options.data:
            if kind == "sentences" and rows != options.rows[0]:
                continue  # There are as many as there are.
            if enough():
                notes.append(f"left out for time: {kind}, {rows} rows")
                continue
            generator = torch.Generator(device).manual_seed(options.seed)
            try:
                data = draw(
                    kind, rows, options.queries, generator, dim=options.dim, sentences=options.sentences
                )
            except (OSError, ValueError) as error:
                notes.append(f"left out: {kind}: {error}")
                continue
            facts = {"data": kind, "rows": len(data.vectors), "dim": data.vectors.shape[1]}
            searches += compare(data, facts, options, enough, notes)
            del data
    values = result(
        "memory_cuda_peers", device, asked_for(options, "sentences"), searches=searches, notes=notes
    )
    save(values, options)
    heads = ["data", "rows", "side", "effort", "batch", "µs", "recall@10", "bytes a row", "build, s"]
    show(values, [table("Searches", heads, _cells(searches))], notes, as_json=options.json)
    return 1 if any(note.startswith("failed: ") for note in notes) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "memory_cuda_peers", quick="few rows")
    parser.add_argument("--rows", type=int, nargs="+", help="vectors (1 and 10 million)")
    parser.add_argument("--data", nargs="+", choices=KINDS, default=list(KINDS), help="of vectors (all)")
    parser.add_argument("--sentences", type=Path, help=".npy file with (rows, dim) vectors of real sentences")
    parser.add_argument("--dim", type=int, default=_DIM, help="of drawn vectors (256)")
    parser.add_argument("--queries", type=int, help="queries for the recall (1,024)")
    parser.add_argument("--batches", type=int, nargs="+", help="queries a call (1 64 1024)")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (20; 2 with --quick)")
    parser.add_argument("--cell-s", type=float, default=2.0, help="no further round of a call after this")
    parser.add_argument("--budget-s", type=float, help="build no further side after this long")
    options = parse(parser, arguments)
    quick = options.quick
    options.rows = options.rows or ([3000] if quick else [1_000_000, 10_000_000])
    options.queries = options.queries or (32 if quick else 1024)
    options.batches = options.batches or ([1, 16] if quick else [1, 64, 1024])
    options.rounds = options.rounds or (2 if quick else 20)
    if min(options.rows) < 1000 or options.queries < 1:
        parser.error("--rows must be at least 1000 and --queries at least 1")
    return options


def _cells(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a table row for each measured call."""
    return [
        [
            row["data"], f"{row['rows']:,}", row["side"], row["effort"], str(row["batch"]),
            f"{row['microseconds']['median']:,.1f}", f"{row['recall']:.4f}", f"{row['bytes_a_row']:.0f}",
            f"{row['build_s']:.1f}",
        ]
        for row in rows
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
