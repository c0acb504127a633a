"""runs that are archived or deleted"""

import sqlalchemy as sa
from alembic import op

revision = '0019'
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    ordered = sa.Text().with_variant(sa.Text(collation='C'), 'postgresql')
    with op.batch_alter_table('runs', schema=None) as batch_op:
        batch_op.add_column(sa.Column('lifecycle', ordered, server_default='active', nullable=False))
        batch_op.drop_index('runs_by_start')
        batch_op.drop_index('runs_of_project_by_start')
        batch_op.create_index('runs_by_start', ['lifecycle', 'started', 'project', 'run'], unique=False)
        batch_op.create_index('runs_of_project_by_start', ['project', 'lifecycle', 'started', 'run'], unique=False)


def downgrade() -> None:
    with op.batch_alter_table('runs', schema=None) as batch_op:
        batch_op.drop_index('runs_by_start')
        batch_op.drop_index('runs_of_project_by_start')
        batch_op.drop_column('lifecycle')
        batch_op.create_index('runs_by_start', ['started', 'project', 'run'], unique=False)
        batch_op.create_index('runs_of_project_by_start', ['project', 'started', 'run'], unique=False)
