"""workers that ask for a place"""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sweeps", sa.Column("asking", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.execute("ALTER TABLE sweeps DROP COLUMN asking")
