"""Reading a model's versions."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from resources.catalog import ModelVersionRow


def champion_of(session: Session, model: str) -> ModelVersionRow | None:
    """A model's champion; None where none was promoted."""
    return session.scalar(select(ModelVersionRow).where(ModelVersionRow.model == model, ModelVersionRow.stage == "champion"))


def versions_of(session: Session, model: str | None = None) -> list[ModelVersionRow]:
    """Versions of one model, or of all, newest last."""
    query = select(ModelVersionRow).order_by(ModelVersionRow.model, ModelVersionRow.created_at)
    return list(session.scalars(query.where(ModelVersionRow.model == model) if model else query))


def as_dict(row: ModelVersionRow) -> dict[str, Any]:
    """A version as ``halving models --json`` and the API give it."""
    names = ("model", "version", "stage", "metrics", "sweep", "trial", "run", "checkpoint", "snapshot", "framework", "created_at")
    return {name: getattr(row, name) for name in names}
