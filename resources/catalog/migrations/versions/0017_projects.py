"""projects"""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("owners", sa.JSON(), nullable=False),
        sa.Column("weight", sa.Double(), nullable=False),
        sa.Column("max_trials", sa.Integer(), nullable=True),
        sa.Column("max_gpus", sa.Integer(), nullable=True),
        sa.Column("gpu_hours", sa.Double(), nullable=True),
        sa.Column("former_names", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    # Columns one by one: SQLite would make a table that is altered as a batch anew, and trials and versions refer to this one.
    op.add_column("sweeps", sa.Column("project", sa.Text(), server_default="", nullable=False))
    op.add_column("sweeps", sa.Column("priority", sa.Integer(), server_default="0", nullable=False))
    op.add_column("sweeps", sa.Column("waiting", sa.Text(), nullable=True))
    op.add_column("sweeps", sa.Column("waiting_since", sa.Double(), nullable=True))
    op.add_column("sweeps", sa.Column("asked_at", sa.Double(), nullable=True))
    op.add_column("sweeps", sa.Column("places", sa.Integer(), nullable=True))
    op.add_column("sweeps", sa.Column("wants_gpus", sa.Integer(), server_default="0", nullable=False))
    op.add_column("trials", sa.Column("gpus", sa.Integer(), server_default="0", nullable=False))
    op.add_column("trials", sa.Column("asked_back", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.execute("UPDATE sweeps SET project = name")  # until now a sweep's name was its project
    op.create_index("ix_sweeps_project", "sweeps", ["project"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_sweeps_project", table_name="sweeps")
    for column in ("asked_back", "gpus"):
        op.execute(f"ALTER TABLE trials DROP COLUMN {column}")
    for column in ("wants_gpus", "places", "asked_at", "waiting_since", "waiting", "priority", "project"):
        op.execute(f"ALTER TABLE sweeps DROP COLUMN {column}")
    op.drop_table("projects")
