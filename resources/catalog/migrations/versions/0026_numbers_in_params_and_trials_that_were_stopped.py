"""numbers in params of MLflow's clients, and trials that were stopped"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    is_paused = sa.text("status = 'paused'")
    op.create_index("runs_paused", "runs", ["sweep"], sqlite_where=is_paused, postgresql_where=is_paused)
    # The index has the params of MLflow's clients as texts: runs are read again, and stay as they are until then.
    op.execute("UPDATE run_index SET revision = revision + 1, stale_below = revision + 2")


def downgrade() -> None:
    op.drop_index("runs_paused", "runs")
