"""the code of feature views"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # What was there was of the transform's own lines alone, and says nothing of the code that is compared now: it is taken at the next time.
    op.add_column("feature_views", sa.Column("code", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("feature_views", sa.Column("accepted", sa.JSON(), nullable=False, server_default="[]"))
    op.drop_column("feature_views", "transform_sha256")


def downgrade() -> None:
    op.add_column("feature_views", sa.Column("transform_sha256", sa.Text(), nullable=True))
    op.drop_column("feature_views", "accepted")
    op.drop_column("feature_views", "code")
