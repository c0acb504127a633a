"""alerts: their channels and rules, the outbox, the watch, and what it must know of runs"""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "alert_messages",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=False),
        sa.Column("claimed_until", sa.Double(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("sent", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "alert_messages_waiting",
        "alert_messages",
        ["next_at"],
        sqlite_where=sa.text("state = 'waiting'"),
        postgresql_where=sa.text("state = 'waiting'"),
    )
    op.create_index("ix_alert_messages_channel", "alert_messages", ["channel"])
    op.create_table(
        "alert_channels",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=True),
        sa.Column("projects", sa.JSON(), nullable=True),
        sa.Column("events", sa.JSON(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "alert_watch",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("begun", sa.Double(), nullable=False),
        sa.Column("looked_at", sa.Double(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("key"),
    )
    op.create_index("alerts_by_time", "alerts", ["at"])
    op.create_table(
        "alert_deliveries",
        sa.Column("alert", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["alert"], ["alerts.id"]),
        sa.ForeignKeyConstraint(["message"], ["alert_messages.id"]),
        sa.PrimaryKeyConstraint("alert", "channel"),
    )
    op.create_index(
        "alert_deliveries_waiting",
        "alert_deliveries",
        ["channel"],
        sqlite_where=sa.text("message IS NULL"),
        postgresql_where=sa.text("message IS NULL"),
    )
    op.create_index("ix_alert_deliveries_message", "alert_deliveries", ["message"])
    op.create_table(
        "alert_rules",
        sa.Column("project", sa.Text(), nullable=False),
        sa.Column("silent_after", sa.Double(), nullable=True),
        sa.Column("bounds", sa.JSON(), nullable=False),
        sa.Column("changed_by", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("project"),
    )
    op.create_table(
        "alert_conditions",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("project", sa.Text(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("since", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    for column in (
        sa.Column("progress", sa.Text(), server_default="", nullable=False),
        sa.Column("progressed_at", sa.Double(), server_default="0", nullable=False),
        sa.Column("read_at", sa.Double(), server_default="0", nullable=False),
        sa.Column("silent_after", sa.Double(), nullable=True),
        sa.Column("alerts", sa.Integer(), server_default="0", nullable=False),
    ):
        op.add_column("runs", column)
    # Running runs are read again, so that it is known since when each has been silent.
    op.execute("UPDATE runs SET signature = '' WHERE status = 'running'")


def downgrade() -> None:
    for column in ("progress", "progressed_at", "read_at", "silent_after", "alerts"):
        op.drop_column("runs", column)
    op.drop_table("alert_conditions")
    op.drop_table("alert_rules")
    op.drop_table("alert_deliveries")
    op.drop_table("alerts")
    op.drop_table("alert_watch")
    op.drop_table("alert_channels")
    op.drop_table("alert_messages")
