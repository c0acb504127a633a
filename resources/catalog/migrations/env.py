"""Alembic's entry: runs on the engine that the catalog hands over."""

from alembic import context
from sqlalchemy.types import TypeDecorator

config = context.config


def _render(kind, item, autogenerate_context):
    """Write a type of ours as its base type, because a migration must not change with our code."""
    if kind == "type" and isinstance(item, TypeDecorator):
        return f"sa.{item.impl!r}"
    return False


# write: SQLite's transaction would otherwise begin as a reader, and fail where another connects meanwhile.
with config.attributes["engine"].connect().execution_options(write=True) as connection:
    # render_as_batch: SQLite cannot alter a column, Alembic then rebuilds the table.
    context.configure(
        connection=connection,
        target_metadata=config.attributes["metadata"],
        render_as_batch=True,
        render_item=_render,
    )
    with context.begin_transaction():
        context.run_migrations()
