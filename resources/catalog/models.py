"""Reading a model's versions."""

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
