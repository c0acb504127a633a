"""runs side by side with their values"""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        # As the values of a name, runs are read in the order of their ids by most questions, and few of their columns are asked for.
        op.execute("ALTER TABLE runs DROP CONSTRAINT runs_pkey")
        op.execute("ALTER TABLE runs ADD PRIMARY KEY (id) INCLUDE (lifecycle, status, started, project)")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE runs DROP CONSTRAINT runs_pkey")
        op.execute("ALTER TABLE runs ADD PRIMARY KEY (id)")
