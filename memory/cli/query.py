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
    parser.add_argument("--aggregate", action="store_true", help="also the attention that each hit gets")
    parser.add_argument("--plan", action="store_true", help="also say which index answered, and how")


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
    with MemoryStore.open(folder, readonly=True) as store:
        hits = store.query(query)
        plan = store.explain(query) if options.plan else None
    if options.json:
        told = {} if plan is None else {"plan": plan._asdict()}
        print_json({"hits": [hit_to_json(hit) for hit in hits], **told})
        return 0
    if plan is not None:
        remark(f"{plan.answered or 'no index'} ({plan.reason})")
    if hits:
        if hits[0].reason:
            remark(hits[0].reason)
        output().print(hits_table(counted(len(hits)), hits))
    else:
        output().print("nothing found")
    return 0
