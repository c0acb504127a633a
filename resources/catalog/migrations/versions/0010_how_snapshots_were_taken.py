"""how snapshots were taken, and which are deprecated"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_SNAPSHOTS = sa.table(
    "snapshots",
    sa.column("digest", sa.String()),
    sa.column("name", sa.String()),
    sa.column("source", sa.String()),
    sa.column("target", sa.String()),
    sa.column("recipe", sa.JSON()),
)


def upgrade() -> None:
    # With a default, because SQLite adds a column that may not be null in no other way, and cannot make anew a table that others refer to.
    op.add_column("snapshots", sa.Column("recipe", sa.JSON(), nullable=False, server_default="{}"))
    op.add_column("snapshots", sa.Column("deprecated", sa.Text(), nullable=True))
    connection, columns = op.get_bind(), _SNAPSHOTS.c
    for digest, *values in connection.execute(sa.select(columns.digest, columns.name, columns.source, columns.target)).all():
        recipe = dict(zip(("name", "source", "target"), values, strict=True))
        connection.execute(_SNAPSHOTS.update().where(columns.digest == digest).values(recipe=recipe))


def downgrade() -> None:
    op.drop_column("snapshots", "deprecated")
    op.drop_column("snapshots", "recipe")
