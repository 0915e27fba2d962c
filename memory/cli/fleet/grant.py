"""``recall grant``: who may read a store on a server, and write to it."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli.console import UsageError, add_command, output, print_json, remark, say, split_words
from memory.persistence.opening import open_database
from memory.persistence.postgres.address import without_password
from sparse_core.table import Table


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "grant", run, words="[ROLE]")
    parser.add_argument("--write", action="store_true", help="it also adds, and changes what it added")
    parser.add_argument("--map", action="append", help="only this map; give it again for more of them")
    parser.add_argument("--revoke", action="store_true", help="it may do nothing any more")


def run(options: argparse.Namespace) -> int:
    """Let a role in or keep it out; without one, list them."""
    place, words = split_words(options, most=1)
    if options.revoke and (options.write or options.map or not words):
        raise UsageError("--revoke takes a ROLE and nothing else")
    if not words and (options.write or options.map):
        raise UsageError("which ROLE?")
    with open_database(place, create=False) as database:
        if not database.shared:
            raise UsageError("a folder has no roles: the rights of its files say who may read and write it")
        from memory.persistence.postgres.upkeep import Upkeep

        assert isinstance(database, Upkeep)
        if not words:
            return _list(database.roles(), options.json)
        role = words[0]
        if options.revoke:
            known = database.revoke(role)
            if options.json:
                print_json({"role": role, "revoked": known})
            else:
                say(f"{role} may do nothing any more" if known else f"{role} was not let in")
            return 0
        address = database.grant(role, writes=options.write, maps=options.map)
        known_as = without_password(address or database.address)
    if options.json:
        print_json({"role": role, "writes": options.write, "maps": options.map, "address": address})
    elif address is None:
        say(f"{role} may {'write' if options.write else 'read'} {known_as}, with the password that it has")
    else:
        remark("with its password, which nobody can ask for again:")
        say(address)
    return 0


def _list(found: list[Any], as_json: bool) -> int:
    if as_json:
        print_json([each._asdict() for each in found])
        return 0
    rows = [
        [
            each.role,
            "writer" if each.writes else "reader",
            "all" if each.maps is None else ", ".join(each.maps),
        ]
        for each in found
    ]
    output().print(Table(("role", "is a", "maps"), rows, title="Beside the owner"))
    return 0
