"""What one test has written into a database, the next that takes it does not find."""

from contextlib import closing

import psycopg
import pytest
from sqlalchemy import text

from resources.catalog import Catalog
from resources.registry.registered_models import create_model
from tests.backends import snapshot_row
from tests.lent_databases import LentDatabases
from tests.postgres import Postgres


def _content(server: Postgres, name: str) -> list[str]:
    """All of a database as text, but for the key that each dump has of its own."""
    return [line for line in server.dump(name).splitlines() if "restrict" not in line]


def test_a_database_that_is_taken_again_is_as_the_template_under_another_name(
    postgres: Postgres, catalog_template: str, lent_catalogs: LentDatabases
) -> None:
    name = lent_catalogs.take()
    with closing(Catalog(postgres.url(name))) as catalog, catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
        create_model(session, "small", actor="test")
        session.execute(text("DELETE FROM experiments"))
        session.execute(text("UPDATE run_index SET revision = 7"))
        session.execute(text("SELECT nextval(sequencename::regclass) FROM pg_sequences"))
    assert lent_catalogs.give_back(name)
    again = lent_catalogs.take()
    assert again != name
    assert _content(postgres, again) == _content(postgres, catalog_template)
    lent_catalogs.give_back(again)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE trials ADD COLUMN more int",
        "CREATE TABLE more (number int)",
        "DROP TABLE experiments CASCADE",
        "DROP TRIGGER registry_events_append_only ON registry_events",
        "ALTER DATABASE {name} SET timezone = 'Asia/Kolkata'",
        "UPDATE alembic_version SET version_num = '0001'",
        "ANALYZE run_index",
        "INSERT INTO forming_gangs (gang, since, until) SELECT n, 1, 2 FROM generate_series(1, 20000) n",
    ],
)
def test_a_database_that_is_no_longer_like_the_template_is_not_lent_again(
    postgres: Postgres, lent_catalogs: LentDatabases, statement: str
) -> None:
    name = lent_catalogs.take()
    with psycopg.connect(postgres.address_of(name), autocommit=True) as connection:
        connection.execute(statement.format(name=name))  # type: ignore[arg-type]
    assert not lent_catalogs.give_back(name)
