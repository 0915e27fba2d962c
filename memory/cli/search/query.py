"""``recall query``: find memories."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.cli.change.add import read_vector
from memory.cli.console import add_command, counted, output, print_json, say, split_words
from memory.cli.filters import add_filter_options, check_labels, check_map, filter_values
from memory.cli.listing import hit_to_json, hits_table
from memory.cli.search.looks import look_of_text
from memory.persistence.opening import open_checked
from memory.query import ORDERS, Query
from memory.store import MemoryStore
from sparse_core.common.console import LOG


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "query", run)
    add_filter_options(parser)
    parser.add_argument("--like", type=int, metavar="ID", help="similar to this memory")
    parser.add_argument("--embedding", metavar="FILE", help="similar to this vector: .npy file or JSON list")
    parser.add_argument(
        "--like-text",
        metavar="TEXT",
        help="images that match this text, compared by --encoder (default: class-names)",
    )
    parser.add_argument("--encoder", help="encoder whose vectors are compared")
    parser.add_argument("--k", "-k", type=int, default=10, help="maximum number of hits (default: 10)")
    parser.add_argument(
        "--order",
        choices=ORDERS,
        help="sort order (default: relevance for text and similarity, otherwise recency)",
    )
    parser.add_argument(
        "--aggregate",
        action="store_true",
        help="also weight the hits by attention and aggregate their vectors",
    )
    parser.add_argument("--plan", action="store_true", help="also print which index answered, and why")


def run(options: argparse.Namespace) -> int:
    """Print the hits."""
    folder, _ = split_words(options)
    encoder, vector = _compared(options)
    query = Query(
        **filter_values(options),
        near=None if options.near is None else tuple(options.near),
        radius_m=options.radius,
        embedding=vector,
        like=options.like,
        encoder=encoder,
        k=options.k,
        order=options.order,
        aggregate=options.aggregate,
    )
    context = None
    started_s = time.monotonic()
    with MemoryStore.open(folder, readonly=True) as store:
        opened_s = time.monotonic()
        if query.aggregate and (query.embedding is not None or query.like is not None):
            context = store.context(query)
            hits = context.hits
        else:
            hits = store.query(query)
        answered_s = time.monotonic()
        plan = store.explain(query) if options.plan else None
    LOG.debug("opened in %.3f s, answered in %.3f s", opened_s - started_s, answered_s - opened_s)
    if not hits and (options.label or options.map is not None):
        _say_unknown(folder, options.label, options.map)
    if options.json:
        answer: dict[str, Any] = {"hits": [hit_to_json(hit) for hit in hits]}
        if plan is not None:
            answer["plan"] = plan._asdict()
        if context is not None:
            answer |= {"context": context.vector.tolist(), "attended": len(context.ids)}
        print_json(answer)
        return 0
    if plan is not None:
        say(f"{plan.answered or 'no index'} ({plan.reason})")
    if hits:
        if hits[0].reason:
            LOG.info(hits[0].reason)
        output().print(hits_table(counted(len(hits)), hits))
        if context is not None:
            share = sum(hit.attention or 0.0 for hit in hits)
            output().print(
                f"{share:.0%} of the attention is on these hits, the rest on"
                f" {len(context.ids) - len(hits)} other memories"
            )
    else:
        output().print("no memory matches; recall stats shows what the store has")
    return 0


def _say_unknown(folder: Path | str, labels: Sequence[str] | None, map_id: str | None) -> None:
    """Warn about a label or map that no memory has."""
    with open_checked(folder, readonly=True) as database:
        try:
            check_map(database, map_id)
            check_labels(database, labels)
        except ValueError as error:
            LOG.warning("%s", error)


def _compared(options: argparse.Namespace) -> tuple[str, NDArray[np.float32] | None]:
    """Return the encoder name and the vector to compare with."""
    if options.like_text is None:
        vector = None if options.embedding is None else read_vector(options.embedding)
        return options.encoder or "default", vector
    if options.embedding is not None or options.like is not None:
        raise ValueError("--like-text, --like and --embedding exclude each other. Give one of them")
    return look_of_text(options.like_text, options.encoder)
