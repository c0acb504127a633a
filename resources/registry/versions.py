"""The model registry: versions, and which of them is the champion.

A change of stage is a transaction of its own, or a part of the one that it is given (``within``).
"""

from typing import Any

from sqlalchemy.orm import Session

from halving.errors import HalvingError, InvalidInput, NotFound
from resources.catalog import Catalog, ModelVersionRow, RegisteredModelRow, utcnow
from resources.catalog.models import champion_of, versions_of
from resources.features.registered_views import features_of
from resources.registry.registered_models import create_model, now_ms


class ChampionChanged(HalvingError, RuntimeError):
    """The winner was judged against a version that is not the champion now; nothing was registered."""


def register(catalog: Catalog, new: ModelVersionRow, *, judged_against: str | None, auto_promote: bool) -> ModelVersionRow:
    """Add a version: champion when the model has none or on ``auto_promote``, else staging.

    Registering a sweep's winner again gives the version that it already has.

    Args:
        new: what the registry is to record, all but its version, its stage and the time.
        judged_against: the champion's version that the winner was compared with; None where there was no champion.

    Raises:
        ChampionChanged: another version is the champion now, or none is.
    """
    with catalog.write(exclusive=True) as session:
        earlier = versions_of(session, new.model)
        for row in earlier:
            if row.sweep == new.sweep:
                return row
        champion = champion_of(session, new.model)
        now = champion.version if champion else None
        if now != judged_against:
            raise ChampionChanged(f"the winner of sweep {new.sweep} was judged against champion {judged_against}; the champion is {now}")
        model = session.get(RegisteredModelRow, new.model) or create_model(session, new.model)
        new.version, new.created_at = next_version(earlier, new, model.newest), utcnow()
        new.stage, new.mlflow_stage, new.project, new.tags = "staging", "Staging", new.model, {}
        number_version(model, new)
        session.add(new)
        session.flush()
        if auto_promote or champion is None:
            make_champion(session, new)
        return new


def promote(catalog: Catalog, model: str, version: str, within: Session | None = None) -> ModelVersionRow:
    """Make a version the champion and archive the one before; an archived version can become champion again.

    Raises:
        NotFound: there is no such version; the message names those that the model has.
    """
    with catalog.write(exclusive=True, within=within) as session:
        row = _version(session, model, version)
        make_champion(session, row)
        return row


def archive(catalog: Catalog, model: str, version: str, within: Session | None = None) -> ModelVersionRow:
    """Take a version out of use. When it was the champion, the next winner that passes its gates becomes the champion.

    Raises:
        NotFound: there is no such version; the message names those that the model has.
    """
    with catalog.write(exclusive=True, within=within) as session:
        row = _version(session, model, version)
        row.stage, row.mlflow_stage, row.updated = "archived", "Archived", now_ms()
        return row


def next_version(earlier: list[ModelVersionRow], new: ModelVersionRow, last: str | None) -> str:
    """The next semantic version: major when a schema has changed (callers must adapt), minor for another snapshot, else patch.

    Args:
        earlier: the model's versions.
        last: the greatest that it was ever given, which may be deleted; None: it was given none.
    """
    if last is None:
        return "1.0.0"
    major, minor, patch = parse_version(last)
    if new.sweep is None:  # a client's: nothing is known of its schema
        return f"{major}.{minor}.{patch + 1}"
    newest = max((row for row in earlier if row.sweep), key=lambda row: parse_version(row.version), default=None)
    if newest is None or newest.input_schema != new.input_schema or newest.output_schema != new.output_schema:
        return f"{major + 1}.0.0"
    if newest.snapshot != new.snapshot:
        return f"{major}.{minor + 1}.0"
    return f"{major}.{minor}.{patch + 1}"


def number_version(model: RegisteredModelRow, new: ModelVersionRow) -> None:
    """Count a version that the model gets."""
    model.versions, model.newest, model.updated = model.versions + 1, new.version, now_ms()
    new.number, new.updated = model.versions, model.updated


def parse_version(version: str) -> tuple[int, int, int]:
    """The three numbers of a semantic version.

    Raises:
        InvalidInput: it is not one.
    """
    try:
        major, minor, patch = (int(part) for part in version.split("."))
    except ValueError:
        raise InvalidInput(f"version {version!r} is not accepted: give MAJOR.MINOR.PATCH, for example 1.0.0") from None
    return major, minor, patch


def as_dict(session: Session, row: ModelVersionRow) -> dict[str, Any]:
    """A version as ``halving models --json`` and the API give it; ``features`` are those that its sweep's spec names."""
    names = ("model", "version", "number", "stage", "metrics", "project", "run", "sweep", "trial", "checkpoint", "snapshot", "framework")
    more = ("source", "description", "tags", "created_at")
    return {**{name: getattr(row, name) for name in (*names, *more)}, "features": features_of(session, row)}


def _version(session: Session, model: str, version: str) -> ModelVersionRow:
    row = session.get(ModelVersionRow, (model, version))
    if row is None:
        known = [f"{row.model} {row.version} ({row.stage})" for row in versions_of(session, model)]
        raise NotFound(f"no version {version!r} of model {model!r}; there are {', '.join(known) or 'no versions yet: run a sweep first'}")
    return row


def make_champion(session: Session, row: ModelVersionRow) -> None:
    """Make a version the champion and archive the one before, in an exclusive transaction."""
    before, now = champion_of(session, row.model), now_ms()
    if before is row:
        return
    if before is not None:
        before.stage, before.mlflow_stage, before.updated = "archived", "Archived", now
        session.flush()  # an index allows one champion at any time
    row.stage, row.mlflow_stage, row.updated = "champion", "Production", now
