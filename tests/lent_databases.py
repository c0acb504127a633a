"""Databases that tests take one after another, each as if it had just been copied from the same template."""

import secrets
from typing import Any, LiteralString

import psycopg
from psycopg.sql import SQL, Identifier

from tests.postgres import Postgres

# What statements on tables, columns, indexes, triggers and functions leave a trace in.
_DEFINITIONS: list[LiteralString] = [
    "pg_attribute",
    "pg_constraint",
    "pg_namespace",
    "pg_proc",
    "pg_trigger",
    "pg_type",
]
_SCHEMA = SQL("SELECT {}, ARRAY(SELECT version_num FROM alembic_version), {}, {}").format(
    SQL(", ").join(
        SQL("(SELECT (count(*), sum(xmin::text::bigint))::text FROM {})").format(Identifier(name))
        for name in _DEFINITIONS
    ),
    SQL(
        "(SELECT count(*) FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace "
        "= 'public'::regnamespace))"
    ),
    SQL(
        "(SELECT count(*) FROM pg_db_role_setting JOIN pg_database d ON setdatabase = d.oid WHERE datname "
        "= current_database())"
    ),
)
_WRITTEN = """
    SELECT relname, pg_total_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
        AND pg_relation_size(oid) > 0 AND relname <> 'alembic_version'
"""
_LARGE = 1 << 20  # bytes of a table; what was deleted stays in its files, and is looked through
_SEQUENCES = (
    "SELECT sequencename, coalesce(last_value, start_value), last_value IS NOT NULL FROM pg_sequences "
    "ORDER BY 1"
)


class LentDatabases:
    """Copies of ``template``, which holds an empty catalog, lent to one test at a time.

    A copy takes Postgres 0.2 s of CPU and 500 files, for each of hundreds of tests; emptying one takes an
    eighth of that. Each test has it under a name of its own: what is left of an earlier test finds no
    database. One whose schema, settings or statistics are no longer those of the template is not lent again,
    nor one with a large table.
    """

    def __init__(self, server: Postgres, template: str) -> None:
        self._server = server
        self._template = template
        self._returned: list[str] = []
        with self._connect(template) as connection:
            self._schema = connection.execute(_SCHEMA).fetchall()
            self._sequences = connection.execute(_SEQUENCES).fetchall()
            self._rows = {
                name: _rows_of(connection, name) for name, _ in connection.execute(_WRITTEN).fetchall()
            }
        self._connection = self._connect("postgres")

    def close(self) -> None:
        self._connection.close()

    def take(self) -> str:
        """The name of a database as the template is."""
        if self._returned:
            return self._returned.pop()
        self._server.database(name := _new_name(), self._template)
        return name

    def give_back(self, name: str) -> bool:
        """Whether the next test can have it."""
        self._connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        renamed = _new_name()
        try:
            self._connection.execute(
                SQL("ALTER DATABASE {} RENAME TO {}").format(Identifier(name), Identifier(renamed))
            )
        except psycopg.errors.ObjectInUse:  # something that the test has started connects again and again
            self._connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
            return False
        with self._connect(renamed) as connection:
            as_before = self._empty(connection)
        if as_before:
            self._returned.append(renamed)
        else:
            self._connection.execute(SQL("DROP DATABASE {}").format(Identifier(renamed)))
        return as_before

    def _empty(self, connection: psycopg.Connection[Any]) -> bool:
        """Reset tables and sequences to the template's; returns False where the tables are others."""
        if connection.execute(_SCHEMA).fetchall() != self._schema:
            return False
        written = connection.execute(_WRITTEN).fetchall()
        if any(size > _LARGE for _, size in written):
            return False
        # neither foreign keys nor triggers that refuse
        connection.execute("SET session_replication_role = replica")
        for name, _ in written:
            # for small tables far less work than TRUNCATE
            connection.execute(SQL("DELETE FROM {}").format(Identifier(name)))
        for name, rows in self._rows.items():
            with (
                connection.cursor() as cursor,
                cursor.copy(SQL("COPY {} FROM STDIN").format(Identifier(name))) as copied,
            ):
                copied.write(rows)
        for before, after in zip(self._sequences, connection.execute(_SEQUENCES).fetchall(), strict=True):
            if before != after:
                connection.execute("SELECT setval(%s::regclass, %s, %s)", before)
        return True

    def _connect(self, name: str) -> psycopg.Connection[Any]:
        return psycopg.connect(self._server.address_of(name), autocommit=True)


def _new_name() -> str:
    return f"t{secrets.token_hex(6)}"


def _rows_of(connection: psycopg.Connection[Any], name: str) -> bytes:
    with (
        connection.cursor() as cursor,
        cursor.copy(SQL("COPY {} TO STDOUT").format(Identifier(name))) as rows,
    ):
        return b"".join(bytes(row) for row in rows)
