"""the ledger: what attempts held, hours of GPUs that are spent, GPUs of one machine"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_GIVEN = ("nodes", "gpus", "cpus", "gpu_type", "spot")


def upgrade() -> None:
    # Columns one by one: SQLite would make a table that is altered as a batch anew, and other tables refer to these.
    op.add_column("attempts", sa.Column("held_since", sa.DateTime(timezone=True), nullable=True))
    op.add_column("attempts", sa.Column("seconds", sa.Double(), server_default="0", nullable=False))
    op.add_column("attempts", sa.Column("nodes", sa.Integer(), server_default="1", nullable=False))
    op.add_column("attempts", sa.Column("gpus", sa.Integer(), server_default="0", nullable=False))
    op.add_column("attempts", sa.Column("cpus", sa.Double(), server_default="0", nullable=False))
    op.add_column("attempts", sa.Column("gpu_type", sa.Text(), nullable=True))
    op.add_column("attempts", sa.Column("spot", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("sweeps", sa.Column("out_of_gpu_hours", sa.Text(), nullable=True))
    op.add_column("sweeps", sa.Column("gpu_hours_looked_at", sa.Double(), nullable=True))
    op.add_column("reports", sa.Column("cpu_seconds", sa.Double(), server_default="0", nullable=False))
    op.create_table(
        "held_gpus",
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("sweep", sa.Text(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("process", sa.Text(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("machine", "device"),
    )
    _fill()


def downgrade() -> None:
    op.drop_table("held_gpus")
    added = {"reports": ("cpu_seconds",), "sweeps": ("gpu_hours_looked_at", "out_of_gpu_hours"), "attempts": ("held_since", "seconds", *_GIVEN)}
    for table, columns in added.items():
        for column in columns:
            op.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def _fill() -> None:
    """What is known of attempts from before: the training that led to results, with the most that their spec gives any rung.

    Trials that run hold the GPUs of their spec, so that no other project is given those.

    Nobody recorded when such an attempt began to train, nor what it trained after its last result: those seconds stay out of the ledger.
    """
    connection = op.get_bind()
    at = "rung_results.sweep = attempts.sweep AND rung_results.trial = attempts.trial AND rung_results.attempt = attempts.attempt"
    connection.execute(
        sa.text(f"UPDATE attempts SET seconds = (SELECT coalesce(sum(rung_results.seconds), 0) FROM rung_results WHERE {at})")
    )
    attempts = sa.table("attempts", *(sa.column(name) for name in ("sweep", "worker", "started_at", "held_since", *_GIVEN)))
    trials = sa.table("trials", *(sa.column(name) for name in ("sweep", "status", "gpus")))
    connection.execute(sa.update(attempts).where(attempts.c.worker.is_not(None)).values(held_since=attempts.c.started_at))
    for sweep, spec in connection.execute(sa.select(sa.column("id"), sa.column("spec", sa.JSON)).select_from(sa.table("sweeps"))).all():
        held = _held(spec.get("resources") or {})
        connection.execute(sa.update(attempts).where(attempts.c.sweep == sweep).values(held))
        running = (trials.c.sweep == sweep) & (trials.c.status == "running")
        connection.execute(sa.update(trials).where(running).values(gpus=held["nodes"] * held["gpus"]))


def _held(resources: dict[str, Any]) -> dict[str, Any]:
    counts = {name: resources.get(name) for name in ("nodes", "gpus")}
    most = {name: max(count.values()) if isinstance(count, dict) else count for name, count in counts.items()}
    return {
        "nodes": most["nodes"] or 1,
        "gpus": most["gpus"] or 0,
        "cpus": resources.get("cpus") or 1.0,
        "gpu_type": resources.get("gpu_type"),
        "spot": bool(resources.get("spot")),
    }
