"""``recall query``: find memories."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli.add import read_vector
from memory.cli.console import add_command, counted, output, print_json, remark, split_words
from memory.cli.filters import add_filter_options, filter_values
from memory.cli.listing import hit_to_json, hits_table
from memory.query import ORDERS, Query
from memory.store import MemoryStore


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "query", "Find memories; all that is given must hold.", run)
    add_filter_options(parser)
    parser.add_argument("--like", type=int, metavar="ID", help="similar to this memory")
    parser.add_argument("--embedding", metavar="FILE", help="similar to a vector: .npy file or JSON list")
    parser.add_argument("--encoder", default="default", help="whose vectors are compared")
    parser.add_argument("--k", "-k", type=int, default=10, help="most hits (default: 10)")
    parser.add_argument("--order", choices=ORDERS, help="default: relevance where something is compared")
    parser.add_argument(
        "--aggregate", action="store_true", help="also attention: weights, what they add up to"
    )


def run(options: argparse.Namespace) -> int:
    """Print the hits."""
    folder, _ = split_words(options)
    query = Query(
        **filter_values(options),
        near=None if options.near is None else tuple(options.near),
        radius_m=options.radius,
        embedding=None if options.embedding is None else read_vector(options.embedding),
        like=options.like,
        encoder=options.encoder,
        k=options.k,
        order=options.order,
        aggregate=options.aggregate,
    )
    context = None
    with MemoryStore.open(folder, readonly=True) as store:
        if query.aggregate and (query.embedding is not None or query.like is not None):
            context = store.context(query)
            hits = context.hits
        else:
            hits = store.query(query)
    if options.json:
        answer: dict[str, Any] = {"hits": [hit_to_json(hit) for hit in hits]}
        if context is not None:
            answer |= {"context": context.vector.tolist(), "attended": len(context.ids)}
        print_json(answer)
    elif hits:
        if hits[0].reason:
            remark(hits[0].reason)
        output().print(hits_table(counted(len(hits)), hits))
        if context is not None:
            share = sum(hit.attention or 0.0 for hit in hits)
            output().print(
                f"{share:.0%} of the attention; the rest is on {len(context.ids) - len(hits)} others"
            )
    else:
        output().print("nothing found")
    return 0
