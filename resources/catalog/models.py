"""Reading a model's versions."""

from sqlalchemy import Subquery, case, func, select
from sqlalchemy.orm import Session

from resources.catalog import ModelVersionRow, RegisteredModelRow


def champion_of(session: Session, model: str) -> ModelVersionRow | None:
    """A model's champion; None if none was promoted."""
    return session.scalar(
        select(ModelVersionRow).where(ModelVersionRow.model == model, ModelVersionRow.stage == "champion")
    )


def models_of(session: Session) -> list[RegisteredModelRow]:
    """All models by name, also those without versions."""
    return list(session.scalars(select(RegisteredModelRow).order_by(RegisteredModelRow.name)))


def versions_of(session: Session, model: str | None = None) -> list[ModelVersionRow]:
    """Versions of one model, or of all, newest last."""
    query = select(ModelVersionRow).order_by(ModelVersionRow.model, ModelVersionRow.number)
    if model:
        query = query.where(ModelVersionRow.model == model)
    return list(session.scalars(query))


def version_of_runs() -> Subquery:
    """A subquery of ``project``, ``run``, ``model``, ``version`` and ``stage`` of one version of each run.

    It is the champion, else a staging version, else another one; of several the newest.
    """
    row = ModelVersionRow
    rank = case((row.stage == "champion", 0), (row.stage == "staging", 1), else_=2)
    place = func.row_number().over(
        partition_by=(row.project, row.run),
        order_by=(rank, row.created_at.desc(), row.model, row.version.desc()),
    )
    ranked = (
        select(row.project, row.run, row.model, row.version, row.stage, place.label("place"))
        .where(row.run.is_not(None))
        .subquery()
    )
    columns = (ranked.c.project, ranked.c.run, ranked.c.model, ranked.c.version, ranked.c.stage)
    return select(*columns).where(ranked.c.place == 1).subquery("versions")
