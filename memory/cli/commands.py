"""The commands of ``recall``: the help of each, and the module that is imported when it is called."""

from __future__ import annotations

from sparse_core.common.commands import Command

#: By name.
COMMANDS = {
    "demo": Command(
        "memory.cli.demo", "Quick start: store two drives through a small town and ask questions about them."
    ),
    "init": Command("memory.cli.files.init", "Create an empty store."),
    "add": Command("memory.cli.change.add", "Store one memory and print its id once it is on disk."),
    "import": Command(
        "memory.cli.change.import_files",
        "Import memories (JSONL, Parquet) or detections of perceive (JSONL, or a folder of Parquet). Creates"
        " the store if there is none. Run it again after an interruption or when the file has grown: it"
        " skips lines that it imported before. FILE '-' reads lines from standard input.",
    ),
    "query": Command(
        "memory.cli.search.query",
        "Find memories by text, similarity, label, place and time. Hits match all given options.",
    ),
    "ask": Command(
        "memory.cli.search.ask",
        "Ask a question in plain English, such as 'where is the car?', 'how many cars are near (3, 1)?',"
        " 'what changed since yesterday?' or 'have I seen this before?'.",
    ),
    "locate": Command(
        "memory.cli.search.locate",
        "Estimate where a robot without a pose is, from one scan, or report that this is ambiguous or"
        " unknown.",
    ),
    "explain": Command("memory.cli.search.explain", "Explain why a memory was kept, merged or forgotten."),
    "forget": Command("memory.cli.change.forget", "Forget memories. recall undo reverts it."),
    "mark": Command(
        "memory.cli.change.mark", "Mark objects as present, moved, gone or unknown. recall undo reverts it."
    ),
    "undo": Command("memory.cli.change.undo", "Undo operations, or list the latest ones."),
    "consolidate": Command(
        "memory.cli.change.consolidate", "Merge duplicate memories and delete those over capacity."
    ),
    "stats": Command("memory.cli.files.stats", "Count the memories of a store by map, kind and label."),
    "export": Command(
        "memory.cli.files.export",
        "Export memories as JSONL, Parquet or GeoJSON. FILE '-' writes JSONL to standard output.",
    ),
    "check": Command(
        "memory.cli.files.check", "Check a store for damage. The exit status is 1 if damage is found or left."
    ),
    "backup": Command(
        "memory.cli.files.backup",
        "Copy a store into a new folder, also while it is in use. Dump a database server with pg_dump.",
    ),
    "sync": Command(
        "memory.cli.fleet.sync",
        "Send new memories to another store: a folder, a database server or a recall serve address. Run it"
        " again to resume or to send what is new, or use --follow.",
    ),
    "area": Command(
        "memory.cli.change.area",
        "Name a part of a map, such as kitchen or 'bay 3', for queries and questions. Without NAME, list the"
        " areas.",
    ),
    "align": Command(
        "memory.cli.fleet.align",
        "Align a robot's map and clock with the store, using objects that both saw. recall undo reverts it.",
    ),
    "robots": Command(
        "memory.cli.fleet.robots",
        "List the robots of a store: their memories, trust, clocks and map alignment.",
    ),
    "trust": Command(
        "memory.cli.fleet.trust",
        "Set how much a robot is trusted, from 0 to 1, when robots disagree. recall undo reverts it.",
    ),
    "archive": Command(
        "memory.cli.fleet.archive",
        "Move old months of a store on a database server into files.",
    ),
    "grant": Command(
        "memory.cli.fleet.grant",
        "Give a database role access to a store on a server. Creates the role if needed. Without ROLE, list"
        " the roles.",
    ),
    "indexes": Command(
        "memory.cli.indexes", "List the vector indexes with their properties and requirements."
    ),
    "bench": Command("memory.cli.bench", "Time inserts and queries on a temporary store."),
    "serve": Command("memory.cli.service.serve", "Serve a store over HTTP with a web page and live updates."),
    "up": Command(
        "memory.cli.fleet.up",
        "Start a local PostgreSQL server with pgvector and print its address.",
    ),
    "mcp": Command(
        "memory.cli.service.mcp",
        "Serve a store to language models over the Model Context Protocol (standard input and output).",
    ),
    "completion": Command(
        "sparse_core.common.completion", "Print a script that completes commands and options in a shell."
    ),
}
