"""the log of writes by its name: write_log, no longer audit"""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _rename("audit", "write_log")


def downgrade() -> None:
    _rename("write_log", "audit")


def _rename(old: str, new: str) -> None:
    op.rename_table(old, new)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER INDEX {old}_by_time RENAME TO {new}_by_time")
        op.execute(f"ALTER INDEX {old}_pkey RENAME TO {new}_pkey")
        op.execute(f"ALTER SEQUENCE {old}_id_seq RENAME TO {new}_id_seq")
        return
    # SQLite cannot rename an index.
    op.drop_index(f"{old}_by_time", new)
    op.create_index(f"{new}_by_time", new, ["at"])
