"""events of the registry, by which each version was judged, and what of it is in the store"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

OF_VERSIONS: list[tuple[str, Any]] = [("gates", sa.JSON()), ("judged_against", sa.Text()), ("manifest", sa.Text())]
REFUSED = "registry_events is append-only: what happened stays written"
BEGUN = "champion when the registry began to keep events"


def upgrade() -> None:
    events = op.create_table(
        "registry_events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("before", sa.Text(), nullable=True),
        sa.Column("after", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("report", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("registry_events_by_model", "registry_events", ["model", "id"])
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        for name, kind in OF_VERSIONS:
            batch_op.add_column(sa.Column(name, kind, nullable=True))
    op.create_table(
        "published_models",
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("model"),
    )
    _begin(op.get_bind(), events)
    _refuse_changes(op.get_bind().dialect.name)


def _begin(connection: sa.Connection, events: sa.Table) -> None:
    """The champions that there are: by what they were promoted is not known, and a rollback must find them."""
    versions = sa.Table("model_versions", sa.MetaData(), autoload_with=connection)
    champions = sa.select(versions).where(versions.c.stage == "champion").order_by(versions.c.model)
    for row in connection.execute(champions).all():
        values = {"model": row.model, "version": row.version, "kind": "promoted", "actor": "halving", "at": row.created_at}
        connection.execute(sa.insert(events).values(**values, after="champion", note=BEGUN, report=row.report))


def _refuse_changes(dialect: str) -> None:
    if dialect == "sqlite":
        for what in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER registry_events_no_{what.lower()} BEFORE {what} ON registry_events BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
            )
        # INSERT OR REPLACE deletes without a trigger on deletion.
        op.execute(
            "CREATE TRIGGER registry_events_no_replace BEFORE INSERT ON registry_events "
            f"WHEN EXISTS (SELECT 1 FROM registry_events WHERE id = NEW.id) BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
        )
        return
    op.execute(
        f"CREATE FUNCTION refuse_change_of_registry_events() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION '{REFUSED}'; END $$ LANGUAGE plpgsql"
    )
    op.execute(
        "CREATE TRIGGER registry_events_append_only BEFORE UPDATE OR DELETE ON registry_events "
        "FOR EACH ROW EXECUTE FUNCTION refuse_change_of_registry_events()"
    )
    op.execute(
        "CREATE TRIGGER registry_events_no_truncate BEFORE TRUNCATE ON registry_events "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_registry_events()"
    )


def downgrade() -> None:
    op.drop_table("registry_events")
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION refuse_change_of_registry_events()")
    op.drop_table("published_models")
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        batch_op.drop_index("one_champion")  # a copy of the table would not have its condition
        for name, _ in OF_VERSIONS:
            batch_op.drop_column(name)
    champion = sa.text("stage = 'champion'")
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        batch_op.create_index("one_champion", ["model"], unique=True, sqlite_where=champion, postgresql_where=champion)
