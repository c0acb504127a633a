"""Alerts of the registry: versions that wait for a person."""

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from resources.alerts.alert import Alert
from resources.catalog import ModelVersionRow, RegistryEventRow
from resources.registry.events import REGISTERED
from resources.registry.verdicts import blockers


def alerts_of_registry(session: Session, since: datetime) -> Iterator[Alert]:
    """Versions of sweeps that were registered from a time on, and wait in staging."""
    registered = (
        select(ModelVersionRow)
        .join(
            RegistryEventRow,
            (RegistryEventRow.model == ModelVersionRow.model)
            & (RegistryEventRow.version == ModelVersionRow.version),
        )
        .where(RegistryEventRow.kind == REGISTERED, RegistryEventRow.at >= since)
        .where(ModelVersionRow.stage == "staging", ModelVersionRow.sweep.is_not(None))
    )
    for row in session.scalars(registered):
        reasons = blockers(session, row)
        text = f"Nothing holds it back: halving promote {row.model} {row.version}"
        if reasons:
            text = "; ".join(reasons)
        yield Alert(
            key=f"version:{row.model}@{row.version}:waits",
            event="promotion waits",
            kind="model",
            subject=row.model,
            title=f"{row.model} {row.version} waits in staging for a decision",
            text=text,
            level="info",
            project=row.project,
        )
