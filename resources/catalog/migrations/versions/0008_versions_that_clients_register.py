"""versions that clients register beside those of sweeps"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

CHAMPION = sa.text("stage = 'champion'")
OF_SWEEPS: list[tuple[str, Any]] = [
    ("sweep", sa.Text()),
    ("trial", sa.Integer()),
    ("run", sa.Text()),
    ("checkpoint", sa.Text()),
    ("snapshot", sa.Text()),
    ("report", sa.Text()),
]
NEW: list[tuple[str, Any, bool]] = [
    ("number", sa.Integer(), False),
    ("mlflow_stage", sa.Text(), False),
    ("project", sa.Text(), True),
    ("source", sa.Text(), True),
    ("storage", sa.Text(), True),
    ("run_link", sa.Text(), True),
    ("description", sa.Text(), True),
    ("tags", sa.JSON(), False),
    ("updated", sa.BigInteger(), False),
]
STAGES = {"staging": "Staging", "champion": "Production", "archived": "Archived"}


def upgrade() -> None:
    models = op.create_table(
        "registered_models",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("aliases", sa.JSON(), nullable=False),
        sa.Column("newest", sa.Text(), nullable=True),
        sa.Column("versions", sa.Integer(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("updated", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        for name, kind, _ in NEW:
            batch_op.add_column(sa.Column(name, kind, nullable=True))
    _number(op.get_bind(), models)
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        batch_op.drop_index("one_champion")
        for name, kind in OF_SWEEPS:
            batch_op.alter_column(name, existing_type=kind, nullable=True)
        for name, kind, nullable in NEW:
            if not nullable:
                batch_op.alter_column(name, existing_type=kind, nullable=False)
        batch_op.create_unique_constraint("model_versions_by_number", ["model", "number"])
        batch_op.create_foreign_key("model_of_version", "registered_models", ["model"], ["name"])
    with op.batch_alter_table("model_versions", schema=None) as batch_op:
        batch_op.create_index("one_champion", ["model"], unique=True, sqlite_where=CHAMPION, postgresql_where=CHAMPION)


def _number(connection: sa.Connection, models: sa.Table) -> None:
    """Number the versions that there are in their order, and give each model its row."""
    versions = sa.Table("model_versions", sa.MetaData(), autoload_with=connection)
    known: dict[str, dict[str, Any]] = {}
    for row in connection.execute(sa.select(versions).order_by(versions.c.model, versions.c.created_at)).all():
        at = round(1000 * row.created_at.timestamp())
        new = {"name": row.model, "description": "", "tags": {}, "aliases": {}, "versions": 0, "created": at}
        model = known.setdefault(row.model, new)
        numbers = [tuple(int(part) for part in text.split(".")) for text in (model.get("newest") or row.version, row.version)]
        model.update(newest=".".join(map(str, max(numbers))), versions=model["versions"] + 1, updated=at)
        values = {"number": model["versions"], "mlflow_stage": STAGES[row.stage], "project": row.model, "tags": {}, "updated": at}
        own = (versions.c.model == row.model) & (versions.c.version == row.version)
        connection.execute(sa.update(versions).where(own).values(**values))
    if known:
        connection.execute(sa.insert(models), list(known.values()))


def downgrade() -> None:
    op.execute('DELETE FROM model_versions WHERE sweep IS NULL')  # earlier catalogs have no place for them
    with op.batch_alter_table('model_versions', schema=None) as batch_op:
        batch_op.drop_index('one_champion')
        batch_op.drop_constraint('model_of_version', type_='foreignkey')
        batch_op.drop_constraint('model_versions_by_number', type_='unique')
        for name, kind in OF_SWEEPS:
            batch_op.alter_column(name, existing_type=kind, nullable=False)
        for name, _, _ in NEW:
            batch_op.drop_column(name)
    with op.batch_alter_table('model_versions', schema=None) as batch_op:
        batch_op.create_index('one_champion', ['model'], unique=True, sqlite_where=CHAMPION, postgresql_where=CHAMPION)
    op.drop_table('registered_models')
