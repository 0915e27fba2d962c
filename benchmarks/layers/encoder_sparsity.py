"""Encoders of texts and images with 2:4 layers: what vectors lose, and on a GPU the time.

    python -m benchmarks.layers.encoder_sparsity --device cpu --conversations FOLDER
    python -m benchmarks.layers.encoder_sparsity --device cuda

Accuracy lost (extra 'text'; FOLDER with turns.jsonl and queries.jsonl of LoCoMo): questions about long
conversations find the turns that answer them, by vectors of :class:`memory.encode.TextEncoder`, dense in each
precision and 2:4 by magnitude, calibrated by sentences of docstrings, and by turns of conversations that no
question is asked of here. Time (transformers): encoders with random weights and the shapes of all-MiniLM-L6,
SigLIP base, ViT large and a SAM-like one of 4,096 positions, from 4,096 rows (positions of all sequences) on.
The dense baseline is the same pruned model in the same type. Both are called eagerly and in CUDA graphs, and
for the most rows in bfloat16 also compiled. The same holds for 2:4 layers in int8 (one activation scale per
call). Outputs are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.lib.graphs import captured, device_ms, microseconds
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.scenes import default_data
from benchmarks.lib.timing import Side, interleave, paired_ratio
from benchmarks.memory.real_embeddings import docstring_sentences
from memory.encode import TextEncoder
from memory.encode.two_four import Precision
from sparse_core.nm import prune, sparsify, tuning

#: Conversations, in order, that are only used for calibration.
_CALIBRATING = 2
#: Sums of half-precision numbers through a whole encoder, each side rounded in its own order.
_TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1}
#: Sides.
DENSE, TWO_FOUR, INT8 = "dense", "2:4", "2:4 int8"


class Shape(NamedTuple):
    """An encoder.

    Attributes:
        name: what it is like.
        width, layers, heads, inner: of its layers.
        tokens: positions of a sequence.
        batches: sequences at a time.
    """

    name: str
    width: int
    layers: int
    heads: int
    inner: int
    tokens: int
    batches: tuple[int, ...]


SHAPES = (
    Shape("MiniLM-L6 (text)", 384, 6, 12, 1536, 64, (64, 256, 1024)),
    Shape("SigLIP base (image)", 768, 12, 12, 3072, 196, (21, 84, 334)),
    Shape("ViT large (image)", 1024, 24, 16, 4096, 256, (16, 64, 256)),
    Shape("SAM-like (image)", 1024, 24, 16, 4096, 4096, (1, 4)),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    options = _options(arguments)
    device = torch.device(options.device)
    configure(device, options.threads)
    notes: list[str] = []
    settings = asked(options, "conversations")
    values = result("encoder_sparsity", device, settings, quality=[], cases=[], notes=notes)
    if options.conversations is not None:
        values["quality"] = _quality(options)
    if device.type == "cuda":
        with tempfile.TemporaryDirectory() as folder, tuning(folder=folder):
            values["cases"] = _times(device, options, notes)
    save(values, options)
    show(values, [_quality_table(values), _time_table(values)], notes, as_json=options.json)
    return 0 if all(row["agrees"] for row in values["cases"]) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = common_parser(__doc__, "encoder_sparsity", quick="the smallest encoder and batch, few turns")
    known = default_data().parent / "locomo"
    parser.add_argument(
        "--conversations", type=Path, default=known if known.is_dir() else None, help="folder of LoCoMo"
    )
    parser.add_argument("--calibration", type=int, help="texts that weights are chosen by (512; 32)")
    parser.add_argument("--rounds", type=int, help="measured calls of each side (15; 3)")
    parser.add_argument("--budget-s", type=float, default=300.0, help="start no further encoder after this")
    options = parse(parser, arguments)
    if options.device == "cpu" and options.conversations is None:
        parser.error("--conversations is missing: name a folder with turns.jsonl and queries.jsonl")
    options.calibration = options.calibration or (32 if options.quick else 512)
    options.rounds = options.rounds or (3 if options.quick else 15)
    return options


def _quality(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of recall: of each way to encode."""
    turns, questions = (_read(options.conversations / name) for name in ("turns.jsonl", "queries.jsonl"))
    names = list(dict.fromkeys(_conversation(turn["id"]) for turn in turns))
    own = [turn["content"] for turn in turns if _conversation(turn["id"]) in names[:_CALIBRATING]]
    kept = names[_CALIBRATING:]
    turns = [turn for turn in turns if _conversation(turn["id"]) in kept]
    questions = [one for one in questions if _conversation(one["id"]) in kept]
    if options.quick:
        questions = questions[:10]
    docstrings = docstring_sentences(8 * options.calibration)[::8]
    half: Precision = "bfloat16" if options.device == "cpu" else "float16"
    sides: dict[str, Callable[[], TextEncoder]] = {
        "dense": lambda: TextEncoder(device=options.device),
        f"dense, {half}": lambda: TextEncoder(device=options.device, precision=half),
        "2:4, largest weights": lambda: TextEncoder(device=options.device, sparsify="2:4"),
        "2:4, calibrated by docstrings": lambda: TextEncoder(
            device=options.device, sparsify="2:4", calibration=docstrings
        ),
        "2:4, calibrated by conversations": lambda: TextEncoder(
            device=options.device,
            sparsify="2:4",
            calibration=own[:: max(1, len(own) // options.calibration)][: options.calibration],
        ),
    }
    rows: list[dict[str, Any]] = []
    first: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    for name, make in sides.items():
        begin = time.perf_counter()
        encoder = make()
        made_s = time.perf_counter() - begin
        texts = [[turn["content"] for turn in turns], [one["query"] for one in questions]]
        vectors, asked_for = (encoder.encode(part) for part in texts)
        first = first or (vectors, asked_for)
        row = {"name": name, "made_s": round(made_s, 1), "questions": len(questions), "turns": len(turns)}
        rows.append(row | _recall(turns, questions, vectors, asked_for, first))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def _recall(
    turns: list[dict[str, Any]],
    questions: list[dict[str, Any]],
    vectors: NDArray[np.float32],
    asked_for: NDArray[np.float32],
    first: tuple[NDArray[np.float32], NDArray[np.float32]],
) -> dict[str, float]:
    place = {turn["id"]: number for number, turn in enumerate(turns)}
    held = np.array([_conversation(turn["id"]) for turn in turns])
    hits: list[float] = []
    found: list[float] = []
    same: list[float] = []
    for question, query, dense in zip(questions, asked_for, first[1], strict=True):
        own = np.flatnonzero(held == _conversation(question["id"]))
        best = own[np.argsort(-(vectors[own] @ query), kind="stable")]
        before = own[np.argsort(-(first[0][own] @ dense), kind="stable")]
        wanted = {place[entry["corpus_item_id"]] for entry in question["relevant"]}
        hits.append(float(best[0] in wanted))
        found.append(len(wanted & set(best[:10])) / len(wanted))
        same.append(len(set(best[:10]) & set(before[:10])) / 10)
    cosine = (vectors * first[0]).sum(axis=1).mean()
    shares = {"hit_at_1": hits, "recall_at_10": found, "same_of_10": same}
    return {name: round(float(np.mean(part)), 4) for name, part in shares.items()} | {
        "cosine": round(float(cosine), 4)
    }


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _conversation(name: str) -> str:
    """Text of a turn, ``conv-26:D1:3``, or of a question, ``conv-26_q0``."""
    return name.split(":")[0].split("_")[0]


def _times(device: torch.device, options: argparse.Namespace, notes: list[str]) -> list[dict[str, Any]]:
    start, rows = time.perf_counter(), []
    for shape in SHAPES[:1] if options.quick else SHAPES:
        for dtype in (torch.float16, torch.bfloat16):
            if time.perf_counter() - start > options.budget_s:
                notes.append(f"left out after {options.budget_s:.0f} s: {shape.name}, {dtype}")
                continue
            torch.manual_seed(options.seed)
            dense = _encoder(shape).to(device, dtype).eval().requires_grad_(False)
            prune(dense)
            sparse = sparsify(copy.deepcopy(dense)).model
            whole = sparsify(copy.deepcopy(dense), quantise=True).model
            models = {DENSE: dense, TWO_FOUR: sparse, INT8: whole}
            for batch in shape.batches[:1] if options.quick else shape.batches:
                rows.append(_timed(shape, batch, models, options, notes))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            del dense, sparse, whole, models
            torch.cuda.empty_cache()
    return rows


def _encoder(shape: Shape) -> nn.Module:
    """Layers as BERT has them, with random weights; those of SigLIP and ViT norm before instead of after."""
    library = import_module("transformers")
    config = library.BertConfig(
        vocab_size=8, hidden_size=shape.width, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, intermediate_size=shape.inner,
        max_position_embeddings=shape.tokens,
    )  # fmt: skip
    # Its layers alone: in a CUDA graph the model around them makes a mask that allows everything, with which
    # attention takes three times as long.
    layers: nn.Module = library.BertModel(config, add_pooling_layer=False).encoder
    return layers


@torch.inference_mode()
def _timed(
    shape: Shape,
    batch: int,
    models: dict[str, nn.Module],
    options: argparse.Namespace,
    notes: list[str],
) -> dict[str, Any]:
    weight = next(models[DENSE].parameters())
    dtype = str(weight.dtype).removeprefix("torch.")
    x = torch.randn(batch, shape.tokens, shape.width, device=weight.device, dtype=weight.dtype)

    def run(model: nn.Module) -> Tensor:
        hidden: Tensor = model(x).last_hidden_state
        return hidden

    # The first call of the sparse one measures which products to take.
    expected = run(models[DENSE]).float()
    errors = {
        name: float((run(model).float() - expected).norm() / expected.norm())
        for name, model in models.items()
        if name != DENSE
    }
    sides: dict[str, Side] = {}
    for name, model in models.items():
        forward = _calling(run, model)
        sides[f"{name}, eager"] = forward
        ways: dict[str, Callable[[], Side]] = {"graph": partial(captured, forward)}
        if batch == shape.batches[-1] and dtype == "bfloat16":
            # Compiling takes longer than all the rest.
            ways["compiled"] = partial(_compiled, run, model)
        for way, make in ways.items():
            try:
                sides[f"{name}, {way}"] = make()
            except Exception as problem:  # what compilers and the driver raise
                said = (str(problem).splitlines() or [""])[0]
                notes.append(f"{shape.name}, {dtype}, {name}, {way}: {type(problem).__name__}: {said}")
    for side in sides.values():
        device_ms(side)
    times = interleave(
        sides, weight.device, rounds=options.rounds, budget_s=20.0, clock="device", seed=options.seed
    )
    pairs = [
        (name, way)
        for name in (TWO_FOUR, INT8)
        for way in ("eager", "graph", "compiled")
        if {f"{DENSE}, {way}", f"{name}, {way}"} <= set(times)
    ]
    return {
        "encoder": shape.name,
        "dtype": dtype,
        "batch": batch,
        "rows": batch * shape.tokens,
        "errors": {name: round(error, 6) for name, error in errors.items()},
        # Whole numbers of 8 bits are rounded far more: what that does is in the errors.
        "agrees": errors[TWO_FOUR] <= _TOLERANCE[dtype],
        "microseconds": {
            name: microseconds([1e3 * value for value in samples]) for name, samples in times.items()
        },
        "over_dense": {
            f"{name}, {way}": paired_ratio(times[f"{DENSE}, {way}"], times[f"{name}, {way}"])
            for name, way in pairs
        },
    }


def _calling(run: Callable[[nn.Module], Tensor], model: nn.Module) -> Side:
    return lambda: run(model)


def _compiled(run: Callable[[nn.Module], Tensor], model: nn.Module) -> Side:
    """In a CUDA graph, compiled before."""
    compiled: Any = torch.compile(model, dynamic=False)
    run(compiled)
    return captured(_calling(run, compiled))


def _quality_table(values: dict[str, Any]) -> Any:
    lines = [
        [
            row["name"],
            number(row["recall_at_10"], 3),
            number(row["hit_at_1"], 3),
            number(row["same_of_10"], 2),
            number(row["cosine"], 3),
            number(row["made_s"], 0),
        ]
        for row in values["quality"]
    ]
    heads = ["encoder", "recall@10", "hit@1", "same of ten", "cosine", "made in s"]
    return table("Questions about conversations", heads, lines)


def _time_table(values: dict[str, Any]) -> Any:
    lines = [
        [
            row["encoder"],
            row["dtype"],
            f"{row['rows']:,}",
            *(
                number(row["microseconds"].get(f"{DENSE}, {way}", {}).get("median"), 0)
                for way in ("graph", "compiled")
            ),
            *(
                number(row["over_dense"].get(f"{name}, {way}", {}).get("median"), 2)
                for name in (TWO_FOUR, INT8)
                for way in ("eager", "graph", "compiled")
            ),
            number(row["errors"][INT8], 3),
        ]
        for row in values["cases"]
    ]
    heads = ["encoder", "type", "rows", "dense graph µs", "dense compiled µs"]
    heads += [f"{name} {way} x" for name in (TWO_FOUR, INT8) for way in ("eager", "graph", "compiled")]
    heads.append("int8 error")
    return table("Time: 2:4 over dense", heads, lines)


if __name__ == "__main__":
    sys.exit(main())
