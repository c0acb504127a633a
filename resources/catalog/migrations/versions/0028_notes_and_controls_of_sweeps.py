"""notes, controls of sweeps, and indexes by time for the journal"""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

REFUSED = "notes is append-only: what was written down stays written"
BY_TIME = {
    "sweeps_by_creation": ("sweeps", ["created_at"]),
    "sweeps_by_end": ("sweeps", ["finished_at"]),
    "intents_by_time": ("intents", ["created_at"]),
    "reports_by_time": ("reports", ["created_at"]),
    "registry_events_by_time": ("registry_events", ["at"]),
}
LONE_RUNS = {
    "lone_runs_by_start": ["started", "project", "run"],
    "lone_runs_by_end": ["ended", "project", "run"],
    "lone_runs_of_project_by_start": ["project", "started", "run"],
    "lone_runs_of_project_by_end": ["project", "ended", "run"],
}


def upgrade() -> None:
    ordered = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "notes",
        sa.Column("id", number, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("project", ordered, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", ordered, nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("notes_by_time", "notes", ["at"])
    op.create_index("notes_of_project", "notes", ["project", "at"])
    op.create_index("notes_of_subject", "notes", ["kind", "subject", "at"])
    op.create_table(
        "sweep_controls",
        sa.Column("id", number, nullable=False),
        sa.Column("sweep", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("control", sa.Text(), nullable=False),
        sa.Column("max_trials", sa.Integer(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["sweep"], ["sweeps.id"]),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("sweep_controls_by_time", "sweep_controls", ["at"])
    op.create_index("sweep_controls_of_sweep", "sweep_controls", ["sweep", "at"])
    for name, (table, columns) in BY_TIME.items():
        op.create_index(name, table, columns)
    has_failed = sa.text("outcome IN ('fail', 'retry')")
    op.create_index(
        "attempts_that_failed", "attempts", ["ended_at"], sqlite_where=has_failed, postgresql_where=has_failed
    )
    is_alone = sa.text("coalesce(sweep, '') = '' AND lifecycle NOT IN ('archived', 'deleted')")
    for name, columns in LONE_RUNS.items():
        op.create_index(name, "runs", columns, sqlite_where=is_alone, postgresql_where=is_alone)
    _refuse_changes(op.get_bind().dialect.name)


def _refuse_changes(dialect: str) -> None:
    if dialect == "sqlite":
        for what in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER notes_no_{what.lower()} BEFORE {what} ON notes BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
            )
        # INSERT OR REPLACE deletes without a trigger on deletion.
        op.execute(
            "CREATE TRIGGER notes_no_replace BEFORE INSERT ON notes "
            f"WHEN EXISTS (SELECT 1 FROM notes WHERE id = NEW.id) BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
        )
        return
    op.execute(
        f"CREATE FUNCTION refuse_change_of_notes() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION '{REFUSED}'; END $$ LANGUAGE plpgsql"
    )
    op.execute(
        "CREATE TRIGGER notes_append_only BEFORE UPDATE OR DELETE ON notes "
        "FOR EACH ROW EXECUTE FUNCTION refuse_change_of_notes()"
    )
    op.execute(
        "CREATE TRIGGER notes_no_truncate BEFORE TRUNCATE ON notes "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_notes()"
    )


def downgrade() -> None:
    for name in LONE_RUNS:
        op.drop_index(name, "runs")
    op.drop_index("attempts_that_failed", "attempts")
    for name, (table, _) in BY_TIME.items():
        op.drop_index(name, table)
    op.drop_table("sweep_controls")
    op.drop_table("notes")
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION refuse_change_of_notes()")
