"""what retention has left of trials' checkpoints"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("checkpoints_left", sa.Text(), nullable=True))


def downgrade() -> None:
    op.execute("ALTER TABLE trials DROP COLUMN checkpoints_left")
