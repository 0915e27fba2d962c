"""Sparse attention as the suite uses it: in the scene encoder by radius, and for the context of a query in a
store.

    python -m benchmarks.attention.attention_use                # both; a few minutes
    python -m benchmarks.attention.attention_use --device cuda  # the encoder on a GPU; stores stay on the CPU

The encoder reads scenes of random columns of equal density and is timed from the scene to its vector, the
pattern included. It is compared with the same encoder with dense attention, with and without the radius mask,
and with the attention alone for a cached pattern. The store holds noisy vectors of a hundred kinds of
situations, each with a reward. Kind and reward of new situations are predicted from the context, from a vote
of the ten nearest, and from dense attention over all of them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.timing import Summary, interleave
from memory import Memory, MemoryStore, Query
from memory.encode import STRUCTURE, SceneEncoder, SceneEncoderConfig, SceneTokens
from memory.search.attention import SHARPNESS, read_out
from sparse_core.attention import SparseAttention, from_distance, sparse_attention

_DIM, _SORTS, _NOISE, _VOTES = 128, 100, 2.0, 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    scenes = [
        scene_row(count, options, device) for count in ([256, 1024] if options.quick else options.tokens)
    ]
    stores = []
    if device.type == "cpu":
        sizes = [1000] if options.quick else options.memories
        stores = [context_row(count, options) for count in sizes]
    values = result("attention_use", device, asked(options), scenes=scenes, stores=stores)
    save(values, options)
    show(values, _tables(values), [], as_json=options.json)
    return 0


def scene_row(count: int, options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Times of one scene of so many columns."""
    generator = np.random.default_rng([options.seed, count])
    boxes = np.zeros((count, 7), np.float32)
    side = options.spread * np.sqrt(count / 4096)
    boxes[:, :2] = generator.uniform(-side / 2, side / 2, (count, 2))
    boxes[:, 3:6] = generator.uniform(0.3, 3.0, (count, 3))
    scene = SceneTokens((STRUCTURE,) * count, boxes, generator.random(count, np.float32))
    near = SceneEncoder(SceneEncoderConfig(radius_m=options.radius)).to(device).eval()
    dense = SceneEncoder(SceneEncoderConfig()).to(device).eval()
    places = torch.from_numpy(boxes[:, :2]).to(device)
    apart = torch.cdist(places, places) <= options.radius
    mask = torch.nn.functional.pad(apart, (1, 0, 1, 0), value=True)

    def masked() -> object:
        with attending_by(lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask)):
            return dense.encode([scene])

    order = torch.argsort((places[:, 0] / 4).floor() * 1e4 + places[:, 1])
    kept = from_distance(
        torch.cat([places[:1], places[order]]), radius=options.radius, block_size=32, count=1
    )
    q, k, v = (torch.randn(1, 4, count + 1, 24, device=device) for _ in range(3))
    sides = {
        "encoder, radius": lambda: near.encode([scene]),
        "encoder, dense with the mask": masked,
        "encoder, dense": lambda: dense.encode([scene]),
        "attention, radius": lambda: sparse_attention(q, k, v, kept),
        "attention, dense with the mask": lambda: scaled_dot_product_attention(q, k, v, attn_mask=mask),
        "attention, dense": lambda: scaled_dot_product_attention(q, k, v),
    }
    with torch.inference_mode():
        times = interleave(sides, device, rounds=options.rounds, budget_s=60, seed=options.seed)
    return {
        "tokens": count,
        "density": round(float(mask.float().mean()), 4),
        "sides": {name: Summary.of(samples).to_dict() for name, samples in times.items()},
    }


@contextmanager
def attending_by(product: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Iterator[None]:
    """Layers attend by another product meanwhile."""
    before = SparseAttention.attend
    SparseAttention.attend = lambda self, q, k, v, pattern, **lengths: product(q, k, v)  # type: ignore[method-assign]
    try:
        yield
    finally:
        SparseAttention.attend = before  # type: ignore[method-assign]


def context_row(count: int, options: argparse.Namespace) -> dict[str, Any]:
    """Answers and times of a store of so many memories."""
    generator = np.random.default_rng([options.seed, count, 1])
    centres = _units(generator.standard_normal((_SORTS, _DIM)))
    rewards = generator.uniform(-1, 1, _SORTS)

    def drawn(many: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        sorts = generator.integers(0, _SORTS, many)
        noise = _NOISE / np.sqrt(_DIM) * generator.standard_normal((many, _DIM))
        return sorts, _units(centres[sorts] + noise).astype(np.float32)

    sorts, vectors = drawn(count)
    got = rewards[sorts] + 0.5 * generator.standard_normal(count)
    new_sorts, questions = drawn(options.questions)
    tensor = torch.from_numpy(vectors)
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        MemoryStore.open(folder, dim=_DIM) as store,
    ):
        for start in range(0, count, 10_000):
            part = range(start, min(start + 10_000, count))
            store.add([Memory(time_ns=i, label=f"sort {sorts[i]}", embedding=vectors[i]) for i in part])

        def context(question: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            found = store.context(Query(embedding=question))
            return found.ids - 1, found.weights

        def vote(question: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            rows = np.array([hit.memory.id for hit in store.query(Query(embedding=question, k=_VOTES))]) - 1
            return rows, read_out(question, vectors[rows]).weights

        def dense(question: NDArray[np.float32]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
            weights = torch.softmax(SHARPNESS * (tensor @ torch.from_numpy(question)), 0)
            _ = weights @ tensor
            return np.arange(count), weights.numpy()

        ways = {"context": context, f"{_VOTES} nearest": vote, "dense": dense}
        answers = {}
        for name, way in ways.items():
            right, missed, held, read = 0, 0.0, 0.0, 0
            for sort, question in zip(new_sorts, questions, strict=True):
                rows, weights = way(question)
                right += int(np.bincount(sorts[rows], weights, _SORTS).argmax() == sort)
                missed += abs(float(np.average(got[rows], weights=weights)) - rewards[sort])
                held += float(dense(question)[1][rows].sum())
                read += len(rows)
            answers[name] = {
                "sort_right": round(right / len(questions), 4),
                "reward_error": round(missed / len(questions), 4),
                "attention_held": round(held / len(questions), 4),
                "attended": round(read / len(questions), 1),
            }
        turn = iter(range(10**9))

        def next_of(way: Callable[[NDArray[np.float32]], object]) -> Callable[[], object]:
            return lambda: way(questions[next(turn) % len(questions)])

        times = interleave(
            {name: next_of(way) for name, way in ways.items()},
            torch.device("cpu"),
            rounds=4 * options.rounds,
            budget_s=30,
            seed=options.seed,
        )
    sides = {name: {**answers[name], **Summary.of(samples).to_dict()} for name, samples in times.items()}
    return {"memories": count, "sides": sides}


def _units(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "attention_use", quick="256 and 1,024 tokens, 1,000 memories")
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--radius", type=float, default=8.0, help="metres")
    parser.add_argument(
        "--spread", type=float, default=100.0, help="side of the square of 4,096 tokens, metres"
    )
    parser.add_argument("--memories", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--questions", type=int, default=200, help="of each store")
    parser.add_argument("--rounds", type=int, default=10, help="measured calls of each side")
    parser.add_argument("--folder", type=Path, help="where stores are put for the while")
    return parse(parser, arguments)


def _tables(values: dict[str, Any]) -> list[Any]:
    made = [
        table(
            "Scenes, median ms",
            ["tokens", "density", *values["scenes"][0]["sides"]],
            [
                [
                    row["tokens"],
                    row["density"],
                    *(number(one["median_ms"], 2) for one in row["sides"].values()),
                ]
                for row in values["scenes"]
            ],
        )
    ]
    if values["stores"]:
        names = ("sort_right", "reward_error", "attention_held", "attended", "median_ms")
        rows = [
            [row["memories"], side, *(number(one[name], 3) for name in names)]
            for row in values["stores"]
            for side, one in row["sides"].items()
        ]
        made.append(table("Stores", ["memories", "side", *names], rows))
    return made


if __name__ == "__main__":
    raise SystemExit(main())
