"""Tokens per second of a Llama with 2:4 layers, against the same model dense: prefill and decoding.

    python -m benchmarks.language.generation --device cuda

The model is a Llama of transformers with random weights, pruned to 2:4 by magnitude; speed does not depend on
the values. All sides have the same numbers: dense in bfloat16, packed in bfloat16, and packed in int8. A call
is the whole forward pass with a static cache. `prefill` reads a prompt; `decode` adds a token per sequence.
On a GPU each call is one CUDA graph; rows with "compiled" were optimised by `torch.compile` before.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.lib.graphs import call_microseconds, microseconds
from benchmarks.lib.options import asked, common_parser, configure, parse
from benchmarks.lib.results import number, result, save, show, table
from benchmarks.lib.timing import paired_ratio
from sparse_core.nm import prune, sparsify

#: Widths of Llama 3.1 8B; fewer layers, because all layers take the same time.
_FULL = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8}
_QUICK = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
#: Kind, sequences, tokens of the prompt or in the cache.
_PREFILL = (("prefill", 1, 2048), ("prefill", 4, 2048))
_DECODE = (("decode", 1, 1024), ("decode", 8, 1024), ("decode", 16, 1024))
_QUICK_CASES = (("prefill", 1, 16), ("decode", 2, 8))
#: Relative error of the logits in the norm, against the dense model with the same weights.
_TOLERANCE = {"2:4": 0.05, "2:4 int8": 0.2}


class Step:
    """One forward pass with a static cache, the same at every call.

    Args:
        model: a Llama of transformers.
        sequences: size of the batch.
        tokens: tokens that a call adds to each sequence.
        held: tokens that the cache holds before.
        seed: of the tokens.
    """

    def __init__(self, model: Any, sequences: int, tokens: int, held: int, seed: int) -> None:
        from transformers import StaticCache

        device = next(model.parameters()).device
        generator = torch.Generator().manual_seed(seed)
        size = (sequences, held + tokens)
        ids = torch.randint(model.config.vocab_size, size, generator=generator).to(device)
        self.model, self.held = model, held
        self.cache = StaticCache(config=model.config, max_cache_len=held + tokens)
        # transformers renamed the argument in 2026.
        named = inspect.signature(type(model).forward).parameters
        self.cache_name = "cache" if "cache" in named else "past_key_values"
        self.ids = ids[:, held:].contiguous()
        self.positions = torch.arange(held, held + tokens, device=device)[None].expand(sequences, -1)
        if held:
            before = torch.arange(held, device=device)[None].expand(sequences, -1)
            self._run(ids[:, :held].contiguous(), before)

    def __call__(self) -> Tensor:
        """Return the logits (sequences, vocabulary) of the last token."""
        for layer in self.cache.layers:
            length = getattr(layer, "cumulative_length", None)
            if isinstance(length, Tensor):
                length.fill_(self.held)
        return self._run(self.ids, self.positions)

    def _run(self, ids: Tensor, positions: Tensor) -> Tensor:
        with torch.no_grad():
            output = self.model(
                input_ids=ids, position_ids=positions, logits_to_keep=1, use_cache=True,
                **{self.cache_name: self.cache},
            )  # fmt: skip
        logits: Tensor = output.logits[:, -1]
        return logits


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 1 if a side does not agree with the dense one."""
    parser = common_parser(__doc__, "generation", quick="a tiny model and few rounds")
    parser.add_argument("--layers", type=int, default=4, help="layers of the model (4)")
    parser.add_argument("--rounds", type=int, help="measured turns of each side (15; 3 with --quick)")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--budget-s", type=float, default=130, help="start no case after so long (130)")
    options = parse(parser, arguments)
    options.rounds = options.rounds or (3 if options.quick else 15)
    device = torch.device(options.device)
    configure(device, options.threads)
    started = time.perf_counter()
    models = _models(options, device)
    cases = _QUICK_CASES if options.quick else (*_PREFILL, *_DECODE)
    jobs = [partial(_case, models, *case, False, options) for case in cases]
    if not options.no_compile:
        jobs += [partial(_case, models, *case, True, options) for case in reversed(cases)]
    found: list[dict[str, Any]] = []
    notes: list[str] = []
    for job in jobs:
        if time.perf_counter() - started > options.budget_s:
            notes.append(f"time ran out: {len(jobs) - len(found)} of {len(jobs)} cases were left out")
            break
        found.append(job())
        save(_values(found, notes, options, device), options)
    values = _values(found, notes, options, device)
    save(values, options)
    show(values, [_table(found)], values["notes"], as_json=options.json)
    return 0 if all(side["agrees"] for case in found for side in case["sides"].values()) else 1


def _models(options: argparse.Namespace, device: torch.device) -> dict[str, nn.Module]:
    """Return the dense model, pruned, and its copies with packed layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = _QUICK if options.quick else _FULL
    torch.manual_seed(options.seed)
    config = LlamaConfig(
        **sizes, num_hidden_layers=options.layers, vocab_size=256 if options.quick else 32000,
        max_position_embeddings=8192, attn_implementation="sdpa",
    )  # fmt: skip
    with torch.device(device):
        dense = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    prune(dense, 2, 4, select=_in_layers)
    packed, int8 = copy.deepcopy(dense), copy.deepcopy(dense)
    sparsify(packed, select=_in_layers)
    sparsify(int8, select=_in_layers, quantise=True)
    return {"dense": dense, "2:4": packed, "2:4 int8": int8}


def _in_layers(name: str, module: nn.Module) -> bool:
    """True for the projections of attention and feed-forward layers, not for the vocabulary."""
    return name.endswith("_proj")


def _case(
    models: dict[str, nn.Module], kind: str, sequences: int, length: int, compiled: bool,
    options: argparse.Namespace,
) -> dict[str, Any]:  # fmt: skip
    tokens, held = (length, 0) if kind == "prefill" else (1, length)
    steps = {name: Step(model, sequences, tokens, held, options.seed) for name, model in models.items()}
    expected = steps["dense"]().float()
    sides: dict[str, dict[str, Any]] = {}
    runs: dict[str, Callable[[], object]] = {}
    for name, step in steps.items():
        if compiled:
            step.model = torch.compile(step.model, dynamic=False)
        logits = step().float()
        error = float((logits - expected).norm() / expected.norm())
        agrees = error <= _TOLERANCE.get(name, 0.02)
        sides[name] = {"error": round(error, 4), "agrees": agrees}
        runs[name] = step
    budget = 2.0 if options.device == "cuda" else 20.0
    device = torch.device(options.device)
    samples = call_microseconds(runs, device, rounds=options.rounds, budget_s=budget, seed=options.seed)
    for name, times in samples.items():
        sides[name]["microseconds"] = microseconds(times)
        rate = sequences * tokens / sides[name]["microseconds"]["median"] * 1e6
        sides[name]["tokens_per_second"] = round(rate, 1)
        sides[name]["speed_up"] = paired_ratio(samples["dense"], times)
    torch._dynamo.reset()
    return {
        "case": kind, "sequences": sequences, "tokens": length, "compiled": compiled, "sides": sides,
    }  # fmt: skip


def _values(
    found: list[dict[str, Any]], notes: list[str], options: argparse.Namespace, device: torch.device
) -> dict[str, Any]:
    import transformers

    versions = {"transformers": transformers.__version__}
    return result("generation", device, asked(options) | versions, cases=found, notes=notes)


def _table(found: list[dict[str, Any]]) -> Any:
    rows = []
    for case in found:
        what = f"{case['case']}, {case['sequences']} x {case['tokens']}"
        sides = case["sides"]
        speeds = [number(side["tokens_per_second"], 0) for side in sides.values()]
        gains = [number(sides[name]["speed_up"]["median"], 2) for name in ("2:4", "2:4 int8")]
        rows.append((what + (", compiled" if case["compiled"] else ""), *speeds, *gains))
    columns = ("case", "dense, tokens/s", "2:4", "2:4 int8", "2:4 / dense", "int8 / dense")
    return table("Llama with 2:4 layers", columns, rows)


if __name__ == "__main__":
    raise SystemExit(main())
