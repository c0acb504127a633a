"""what runs held by month"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create("month", sa.Column("last", sa.Boolean(), nullable=False))


def downgrade() -> None:
    _create()


def _create(key: str | None = None, *also: sa.Column) -> None:
    """Begin the table anew. It is the index's, which reads all runs again and stays as it is until then."""
    op.drop_table("run_attempts")
    op.create_table(
        "run_attempts",
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("month", sa.Text(), nullable=False),
        *also,
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("cpus", sa.Double(), nullable=False),
        sa.Column("gpu_type", sa.Text(), nullable=True),
        sa.Column("sweep", sa.Text(), nullable=True),
        sa.Column("trial", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", *([key] if key else [])),
    )
    op.execute("UPDATE run_index SET revision = revision + 1, stale_below = revision + 2")
