"""experiments, and what clients track over HTTP"""

import time

import sqlalchemy as sa
from alembic import op

revision = '0007'
down_revision = '0006'
branch_labels = None
depends_on = None


def upgrade() -> None:
    ordered = sa.Text().with_variant(sa.Text(collation='C'), 'postgresql')
    experiments = op.create_table(
        'experiments',
        sa.Column('id', sa.BigInteger().with_variant(sa.Integer(), 'sqlite'), nullable=False),
        sa.Column('name', ordered, nullable=False),
        sa.Column('project', sa.Text(), nullable=False),
        sa.Column('stage', sa.Text(), nullable=False),
        sa.Column('artifacts', sa.Text(), nullable=False),
        sa.Column('created', sa.BigInteger(), nullable=False),
        sa.Column('updated', sa.BigInteger(), nullable=False),
        sa.Column('tags', sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint('id'),
        sa.UniqueConstraint('name'),
        sa.UniqueConstraint('project'),
    )
    op.create_table(
        'tracked_runs',
        sa.Column('id', sa.Text(), nullable=False),
        sa.Column('experiment', sa.BigInteger(), nullable=False),
        sa.Column('name', sa.Text(), nullable=False),
        sa.Column('user', sa.Text(), nullable=False),
        sa.Column('status', sa.Text(), nullable=False),
        sa.Column('stage', sa.Text(), nullable=False),
        sa.Column('started', sa.BigInteger(), nullable=False),
        sa.Column('ended_at', sa.BigInteger(), nullable=True),
        sa.Column('deleted_at', sa.BigInteger(), nullable=True),
        sa.Column('attempt', sa.Integer(), nullable=False),
        sa.Column('ended', sa.Text(), nullable=True),
        sa.Column('metrics', sa.Text(), nullable=False),
        sa.Column('params', sa.Text(), nullable=False),
        sa.Column('tags', sa.Text(), nullable=False),
        sa.Column('inputs', sa.Text(), nullable=False),
        sa.Column('model_inputs', sa.Text(), nullable=False),
        sa.Column('outputs', sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(['experiment'], ['experiments.id']),
        sa.PrimaryKeyConstraint('id'),
    )
    with op.batch_alter_table('tracked_runs', schema=None) as batch_op:
        batch_op.create_index('tracked_runs_by_start', ['experiment', 'started', 'id'], unique=False)
    op.create_table(
        'tracked_artifacts',
        sa.Column('run', sa.Text(), nullable=False),
        sa.Column('path', ordered, nullable=False),
        sa.Column('name', sa.Text(), nullable=False),
        sa.Column('digest', sa.Text(), nullable=False),
        sa.Column('bytes', sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(['run'], ['tracked_runs.id']),
        sa.PrimaryKeyConstraint('run', 'path'),
    )
    op.create_table(
        'logged_models',
        sa.Column('id', sa.Text(), nullable=False),
        sa.Column('run', sa.Text(), nullable=False),
        sa.Column('experiment', sa.BigInteger(), nullable=False),
        sa.Column('stage', sa.Text(), nullable=False),
        sa.Column('created', sa.BigInteger(), nullable=False),
        sa.Column('message', sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(['experiment'], ['experiments.id']),
        sa.ForeignKeyConstraint(['run'], ['tracked_runs.id']),
        sa.PrimaryKeyConstraint('id'),
    )
    with op.batch_alter_table('logged_models', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_logged_models_run'), ['run'], unique=False)
        batch_op.create_index('logged_models_by_time', ['experiment', 'created'], unique=False)
    # The experiment of clients that name none.
    now = round(1000 * time.time())
    default = {'id': 0, 'name': 'Default', 'project': 'Default', 'stage': 'active', 'artifacts': 'mlflow-artifacts:/0', 'tags': {}}
    op.bulk_insert(experiments, [{**default, 'created': now, 'updated': now}])


def downgrade() -> None:
    with op.batch_alter_table('logged_models', schema=None) as batch_op:
        batch_op.drop_index('logged_models_by_time')
        batch_op.drop_index(batch_op.f('ix_logged_models_run'))
    op.drop_table('logged_models')
    op.drop_table('tracked_artifacts')
    with op.batch_alter_table('tracked_runs', schema=None) as batch_op:
        batch_op.drop_index('tracked_runs_by_start')
    op.drop_table('tracked_runs')
    op.drop_table('experiments')
