"""what runs held"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_attempts",
        sa.Column("run_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("month", sa.Text(), nullable=False),
        sa.Column("last", sa.Boolean(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("cpus", sa.Double(), nullable=False),
        sa.Column("gpu_type", sa.Text(), nullable=True),
        sa.Column("sweep", sa.Text(), nullable=True),
        sa.Column("trial", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "attempt", "month"),
    )
    # What the index has of runs does not say it: they are read again, and stay as they are until then.
    op.execute("UPDATE run_index SET revision = revision + 1, stale_below = revision + 2")


def downgrade() -> None:
    op.drop_table("run_attempts")
