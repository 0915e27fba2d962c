"""What ``recall --help`` says of each command, and which module is imported when it is called."""

from __future__ import annotations

from sparse_core.common.commands import Command

#: By name.
COMMANDS = {
    "demo": Command(
        "memory.cli.demo", "The first minute: two drives through a town, remembered and asked about."
    ),
    "init": Command("memory.cli.files.init", "Make a store."),
    "add": Command("memory.cli.change.add", "Store one memory; prints its id once it is on the disk."),
    "import": Command(
        "memory.cli.change.importing",
        "Import JSONL or Parquet with memories, or the detections of perceive (JSONL, or a folder of"
        " Parquet); - reads lines from standard input as they come. A store is made where there is none, for"
        " vectors as long as the file's. Run it again after an interruption, or when the file has grown:"
        " lines that were imported are passed over.",
    ),
    "query": Command("memory.cli.search.query", "Find memories; all that is given must hold."),
    "ask": Command(
        "memory.cli.search.ask",
        "Ask in plain words, such as 'where is the car?', 'how many cars are there near (3, 1)?', 'what"
        " changed since yesterday?' or 'have I seen this before?'; or by name: last-seen WHAT, first-seen"
        " WHAT, near (--near --radius), between (--between), changed (--since), how-often WHAT, how-many"
        " WHAT, still-there WHAT, summarise [--near --radius | --polygon | --map], similar [ID],"
        " seen-before [ID], been-here [ID], go-to WHAT. WHAT is a label, words or the id of a memory;"
        " --embedding stands for one too. 'This', and a question without its [ID], mean the newest memory"
        " that has a vector, or --like ID; --like FILE asks it of all that a scan shows.",
    ),
    "explain": Command("memory.cli.search.explain", "Say why a memory was kept, merged or forgotten."),
    "forget": Command("memory.cli.change.forget", "Forget memories; recall undo takes it back."),
    "mark": Command(
        "memory.cli.change.mark", "Say whether things are still there; recall undo takes it back."
    ),
    "undo": Command("memory.cli.change.undo", "Take operations back, or list the last ones."),
    "consolidate": Command(
        "memory.cli.change.consolidate", "Merge memories of the same thing, forget over capacity."
    ),
    "stats": Command("memory.cli.files.stats", "Count what is in a store."),
    "export": Command(
        "memory.cli.files.export", "Write memories to a file, or JSONL to - (standard output)."
    ),
    "check": Command("memory.cli.files.check", "Look for damage; exit status 1 if there is any (left)."),
    "backup": Command(
        "memory.cli.files.backup",
        "Copy a store, as it is now, into a folder without one; of a server by pg_dump.",
    ),
    "sync": Command(
        "memory.cli.fleet.sync",
        "Bring what a store has to another: a folder, a server or a service. Run it again after a break, and"
        " for what is new since; or with --follow.",
    ),
    "align": Command(
        "memory.cli.fleet.align",
        "Bring a robot's map together with the store's, by the things that both saw; recall undo takes it"
        " back.",
    ),
    "robots": Command(
        "memory.cli.fleet.robots",
        "List the robots of a store: what they saw, their trust, how their maps lie.",
    ),
    "trust": Command(
        "memory.cli.fleet.trust",
        "Say how far a robot is believed, from 0 to 1, where robots contradict each other; recall undo takes"
        " it back.",
    ),
    "archive": Command(
        "memory.cli.fleet.archive", "Write old months of a store on a server into files, and drop them there."
    ),
    "grant": Command(
        "memory.cli.fleet.grant",
        "Let a role read a store on a server, or write to it; it is made where there is none. Without a role,"
        " list them.",
    ),
    "indexes": Command("memory.cli.indexes", "List the kinds of index: what each does and needs."),
    "bench": Command("memory.cli.bench", "Time inserts and queries on a temporary store; a self-test."),
    "serve": Command("memory.cli.service.serve", "Serve a store over HTTP, with a page and live updates."),
    "up": Command(
        "memory.cli.fleet.up", "Start a PostgreSQL server with pgvector on this computer; prints its address."
    ),
    "mcp": Command(
        "memory.cli.service.mcp",
        "Tools for language models, by the Model Context Protocol on stdin and stdout.",
    ),
    "completion": Command(
        "sparse_core.common.completion", "Print a script that completes commands and options in a shell."
    ),
}
