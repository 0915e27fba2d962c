"""``recall grant``: give database roles access to a store on a server."""

from __future__ import annotations

import argparse
from typing import Any

from memory.cli.console import UsageError, add_command, output, print_json, say, split_words
from memory.persistence.opening import open_database
from memory.persistence.postgres.address import without_password
from sparse_core.common.console import LOG
from sparse_core.common.table import Table


def add_parser(commands: Any) -> None:
    """Declare the options."""
    parser = add_command(commands, "grant", run, words="[ROLE]")
    parser.add_argument(
        "--write", action="store_true", help="also allow adding memories and changing its own"
    )
    parser.add_argument("--map", action="append", help="only this map; repeat for several")
    parser.add_argument("--revoke", action="store_true", help="remove all access of the role")


def run(options: argparse.Namespace) -> int:
    """Grant or revoke access; without a role, list the roles."""
    place, words = split_words(options, most=1)
    if options.revoke and (options.write or options.map or not words):
        raise UsageError("--revoke needs a ROLE and no other option")
    if not words and (options.write or options.map):
        raise UsageError("no ROLE given. Name it after the store: recall grant STORE ROLE")
    with open_database(place, create=False) as database:
        if not database.shared:
            raise UsageError("grants need a store on a server. For a folder, change the file permissions")
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
                say(f"{role} has no access any more" if known else f"{role} had no access")
            return 0
        address = database.grant(role, writes=options.write, maps=options.map)
        known_as = without_password(address or database.address)
    if options.json:
        print_json({"role": role, "writes": options.write, "maps": options.map, "address": address})
    elif address is None:
        say(f"{role} may {'write' if options.write else 'read'} {known_as} with its existing password")
    else:
        LOG.info("address with the new password, which is shown only once:")
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
    output().print(Table(("role", "access", "maps"), rows, title="roles"))
    return 0
