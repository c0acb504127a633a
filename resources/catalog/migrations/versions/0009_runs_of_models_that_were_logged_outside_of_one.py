"""runs of models that were logged outside of one"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("tracked_runs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("of_model", sa.Boolean(), nullable=False, server_default=sa.false()))
    with op.batch_alter_table("tracked_runs", schema=None) as batch_op:
        batch_op.alter_column("of_model", existing_type=sa.Boolean(), server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("tracked_runs", schema=None) as batch_op:
        batch_op.drop_column("of_model")
