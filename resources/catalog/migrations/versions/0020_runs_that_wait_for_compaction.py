"""runs that wait for compaction"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("runs") as batch_op:
        batch_op.add_column(sa.Column("segments", sa.Integer(), nullable=False, server_default="-1"))
        batch_op.add_column(sa.Column("compact_at", sa.Double(), nullable=False, server_default="0"))
    has_segments = sa.text("segments <> 0")
    op.create_index("runs_to_compact", "runs", ["compact_at"], sqlite_where=has_segments, postgresql_where=has_segments)


def downgrade() -> None:
    op.drop_index("runs_to_compact", "runs")
    with op.batch_alter_table("runs") as batch_op:
        batch_op.drop_column("compact_at")
        batch_op.drop_column("segments")
