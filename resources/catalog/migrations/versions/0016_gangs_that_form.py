"""gangs that form"""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "forming_gangs",
        sa.Column("gang", sa.Text(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("forms_since", sa.Double(), nullable=True),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("gang"),
    )


def downgrade() -> None:
    op.drop_table("forming_gangs")
