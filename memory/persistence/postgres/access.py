"""Access to a store on a server: roles, and the maps that each of them sees.

The owner of the tables may do everything. A *reader* reads. A *writer* also adds memories, and changes and
forgets its own. Both see the memories of their maps, or of all maps. The server's row-level security enforces
it for every program.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import sql

from memory.persistence.postgres.images import COLUMNS
from memory.persistence.sql import Migration

_SEES = '((SELECT sees_all()) OR map_id = ANY ((SELECT seen_maps())::text[] COLLATE "C"))'
# A value query, not EXISTS, for which the server would first build a table of all memories.
_SEES_MEMORY = "((SELECT sees_all()) OR (SELECT true FROM memory AS m WHERE m.id = {}.id))"
_OWN = "writer = session_user"
_OWN_MEMORY = "EXISTS (SELECT FROM memory AS m WHERE m.id = embedding.id AND m.writer = session_user)"
#: Columns that only the writer of a row may change; counts of observations and accesses are open to all who
#: see it.
_KEPT = (
    "id", "time_ns", "map_id", "kind", "label", "confidence", "reward", "marked", "state", "importance", "x",
    "y", "z", "yaw", "covariance", "caption", "payload", "evidence", "provenance", "words", "writer",
)  # fmt: skip
#: Tables that readers read, and tables that writers also write.
_READ = ("meta", "part", "memory", "embedding", "visited", "slot", "vocabulary", "log", "log_row", "log_pose")
_WRITTEN = ("embedding", "visited", "vocabulary")
_APPENDED = ("slot",)
#: All columns of these tables but those that record the writer of a row, and what it is about.
_SIGNED = {
    "memory": COLUMNS,
    "log": ("generation", "time_ns", "operation", "first_id", "next_id", "undoes", "detail", "token", "crc"),
    "log_row": ("row", "generation", "id", "what", "before", "crc"),
    "log_pose": ("row", "generation", "first_id", "last_id", "ids", "poses", "covariances", "crc"),
}

GUARDED = Migration(
    "roles",
    (
        'CREATE TABLE access (role name PRIMARY KEY, writes boolean NOT NULL, maps text[] COLLATE "C")',
        *(
            f"ALTER TABLE {table} ADD COLUMN writer name NOT NULL DEFAULT session_user"
            for table in ("memory", "log", "log_row", "log_pose")
        ),
        'ALTER TABLE log_row ADD COLUMN map_id text COLLATE "C", ADD COLUMN memory_of name',
        """CREATE FUNCTION sees_all() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER AS
            $$ SELECT EXISTS (SELECT FROM access WHERE role = session_user AND maps IS NULL) $$""",
        """CREATE FUNCTION seen_maps() RETURNS text[] LANGUAGE sql STABLE SECURITY DEFINER AS
            $$ SELECT maps FROM access WHERE role = session_user $$""",
        """CREATE FUNCTION last_log_row() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER AS
            $$ SELECT coalesce(max(row), 0) FROM log_row $$""",
        # The map of a log row's memory decides who sees the row.
        """CREATE FUNCTION log_row_told() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            SELECT map_id, writer INTO NEW.map_id, NEW.memory_of FROM memory WHERE id = NEW.id;
            IF NEW.map_id IS NULL THEN
                SELECT map_id, memory_of INTO NEW.map_id, NEW.memory_of FROM log_row
                    WHERE id = NEW.id AND map_id IS NOT NULL ORDER BY row DESC LIMIT 1;
            END IF;
            RETURN NEW;
        END $$""",
        "CREATE TRIGGER log_row_told BEFORE INSERT ON log_row FOR EACH ROW WHEN (NEW.map_id IS NULL)"
        " EXECUTE FUNCTION log_row_told()",
        """CREATE FUNCTION own_only() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF row_security_active('memory'::regclass) THEN
                RAISE EXCEPTION 'memory % was added by %', OLD.id, OLD.writer
                    USING ERRCODE = 'insufficient_privilege';
            END IF;
            IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
            RETURN NEW;
        END $$""",
        f"CREATE TRIGGER own_only BEFORE DELETE OR UPDATE OF {', '.join(_KEPT)} ON memory FOR EACH ROW"
        " WHEN (OLD.writer <> session_user) EXECUTE FUNCTION own_only()",
        # Function names refer to this schema, not to what the caller created elsewhere.
        """DO $$ DECLARE each text; BEGIN
            FOREACH each IN ARRAY
                ARRAY['sees_all', 'seen_maps', 'last_log_row', 'log_row_told', 'own_only'] LOOP
                EXECUTE format('ALTER FUNCTION %I() SET search_path = %I, pg_temp', each, current_schema());
            END LOOP;
        END $$""",
        *(
            f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY"
            for table in ("memory", "embedding", "visited", "log", "log_row", "log_pose")
        ),
        f"CREATE POLICY sees ON memory USING {_SEES}",
        f"CREATE POLICY own ON memory AS RESTRICTIVE FOR INSERT WITH CHECK ({_OWN})",
        f"CREATE POLICY sees ON visited USING {_SEES_MEMORY.format('visited')}",
        f"CREATE POLICY sees ON embedding USING {_SEES_MEMORY.format('embedding')}",
        f"CREATE POLICY own ON embedding AS RESTRICTIVE FOR INSERT WITH CHECK ({_OWN_MEMORY})",
        f"CREATE POLICY own_changed ON embedding AS RESTRICTIVE FOR UPDATE USING ({_OWN_MEMORY})",
        f"CREATE POLICY own_gone ON embedding AS RESTRICTIVE FOR DELETE USING ({_OWN_MEMORY})",
        "CREATE POLICY sees ON log FOR SELECT USING (true)",
        f"CREATE POLICY own ON log FOR INSERT WITH CHECK ({_OWN})",
        f"CREATE POLICY sees ON log_row FOR SELECT USING ({_OWN} OR {_SEES})",
        f"CREATE POLICY own ON log_row USING ({_OWN})",
        f"CREATE POLICY sees ON log_pose FOR SELECT USING ({_OWN} OR (SELECT sees_all()) OR"
        " EXISTS (SELECT FROM memory AS m WHERE m.id BETWEEN first_id AND last_id))",
        f"CREATE POLICY own ON log_pose USING ({_OWN})",
    ),
)  # fmt: skip

#: Only the owner sets trust and alignments, and undoes them. An undo may concern one of these through other
#: undos, so nobody else's undo can be undone either.
SETTLED = Migration(
    "alignments and trust are the owner's",
    (
        """CREATE FUNCTION is_settled(bigint) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER AS
            $$ SELECT EXISTS (SELECT FROM log WHERE generation = $1 AND writer <> session_user
                AND operation IN ('align', 'trust', 'undo')) $$""",
        """DO $$ BEGIN
            EXECUTE format('ALTER FUNCTION is_settled SET search_path = %I, pg_temp', current_schema());
        END $$""",
        "CREATE POLICY settled ON log AS RESTRICTIVE FOR INSERT"
        " WITH CHECK (operation NOT IN ('align', 'trust') AND (undoes IS NULL OR NOT is_settled(undoes)))",
    ),
)


#: Areas change the answers of everybody, so only the owner sets them too.
AREAS = Migration(
    "areas are the owner's",
    (
        """CREATE OR REPLACE FUNCTION is_settled(bigint) RETURNS boolean
            LANGUAGE sql STABLE SECURITY DEFINER AS
            $$ SELECT EXISTS (SELECT FROM log WHERE generation = $1 AND writer <> session_user
                AND operation IN ('align', 'area', 'trust', 'undo')) $$""",
        """DO $$ BEGIN
            EXECUTE format('ALTER FUNCTION is_settled SET search_path = %I, pg_temp', current_schema());
        END $$""",
        "DROP POLICY settled ON log",
        "CREATE POLICY settled ON log AS RESTRICTIVE FOR INSERT"
        " WITH CHECK (operation NOT IN ('align', 'area', 'trust')"
        " AND (undoes IS NULL OR NOT is_settled(undoes)))",
    ),
)


#: Columns that were added later are granted to the writers of then.
MOVING = Migration(
    "velocities",
    (
        "ALTER TABLE memory ADD COLUMN velocity text",
        "DROP TRIGGER own_only ON memory",
        f"CREATE TRIGGER own_only BEFORE DELETE OR UPDATE OF {', '.join((*_KEPT, 'velocity'))} ON memory"
        " FOR EACH ROW WHEN (OLD.writer <> session_user) EXECUTE FUNCTION own_only()",
        """DO $$ DECLARE each name; BEGIN
            FOR each IN SELECT role FROM access WHERE writes LOOP
                EXECUTE format('GRANT INSERT (velocity), UPDATE (velocity) ON memory TO %I', each);
            END LOOP;
        END $$""",
    ),
)


class Access(NamedTuple):
    """Rights of a role.

    Attributes:
        maps: maps that it sees; ``None`` for all.
    """

    role: str
    writes: bool
    maps: tuple[str, ...] | None


def read_access(connection: Any) -> list[Access]:
    """Return all roles but the owner, by name; within the owner's transaction."""
    rows = connection.execute("SELECT role, writes, maps FROM access ORDER BY role").fetchall()
    return [Access(role, writes, None if maps is None else tuple(maps)) for role, writes, maps in rows]


def grant(raw: Any, role: str, *, writes: bool, maps: Sequence[str] | None) -> str | None:
    """Give a role access, or change it; a missing role is created.

    Args:
        maps: maps that it sees; ``None`` for all.

    Returns:
        The password of a new role.

    Raises:
        ValueError: the role owns the tables, and would lose rights.
    """
    owner = "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'log'::regclass"
    if raw.execute(owner).fetchone()[0] == role:
        raise ValueError(f"{role} owns the store and already has all rights")
    name, password = sql.Identifier(role), None
    if raw.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone() is None:
        password = secrets.token_urlsafe(24)
        raw.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(password)))
    _revoke_tables(raw, name)
    raw.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(_schema(raw), name))
    _allow(raw, "SELECT", _READ, name)
    if writes:
        _allow(raw, "INSERT, UPDATE, DELETE", _WRITTEN, name)
        _allow(raw, "INSERT", _APPENDED, name)
        for table, columns in _SIGNED.items():
            named = ", ".join(columns)
            _allow(raw, f"INSERT ({named})", (table,), name)
            if table != "log":
                _allow(raw, f"DELETE, UPDATE ({named})", (table,), name)
        (database,) = raw.execute("SELECT current_database()").fetchone()
        raw.execute(sql.SQL("GRANT TEMPORARY ON DATABASE {} TO {}").format(sql.Identifier(database), name))
    raw.execute(
        "INSERT INTO access (role, writes, maps) VALUES (%s, %s, %s) ON CONFLICT (role)"
        " DO UPDATE SET writes = excluded.writes, maps = excluded.maps",
        (role, writes, None if maps is None else list(maps)),
    )
    return password


def revoke(raw: Any, role: str) -> bool:
    """Remove a role's access, also for its open connections; return True if it had access.

    Args:
        role: role of the server, which is not deleted.
    """
    known = raw.execute("DELETE FROM access WHERE role = %s RETURNING role", (role,)).fetchone()
    if known is not None:
        _revoke_tables(raw, sql.Identifier(role))
    return known is not None


def _revoke_tables(raw: Any, name: sql.Identifier) -> None:
    # Keep the schema open, so that the server reports missing rights instead of missing tables.
    raw.execute(sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA {} FROM {}").format(_schema(raw), name))


def _allow(raw: Any, what: str, tables: Sequence[str], name: sql.Identifier) -> None:
    named = sql.SQL(", ").join(map(sql.Identifier, tables))
    raw.execute(sql.SQL("GRANT {} ON {} TO {}").format(sql.SQL(what), named, name))


def _schema(raw: Any) -> sql.Identifier:
    return sql.Identifier(raw.execute("SELECT current_schema()").fetchone()[0])
