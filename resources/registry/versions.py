"""Versions of models: adding, numbering, and their JSON."""

from typing import Any

from sqlalchemy.orm import Session

from halving.errors import HalvingError, InvalidInput
from resources.catalog import Catalog, ModelVersionRow, RegisteredModelRow, SweepRow, utcnow
from resources.catalog.models import champion_of, versions_of
from resources.features.registry import features_of
from resources.registry.events import JUDGED, REGISTERED, add_event
from resources.registry.registered_models import create_model, now_ms
from resources.registry.stages import make_champion
from resources.registry.verdicts import blockers


class ChampionChanged(HalvingError, RuntimeError):
    """The winner was judged against a version that is not the champion now; nothing was registered."""


def register(
    catalog: Catalog, new: ModelVersionRow, *, judged_against: str | None, auto_promote: bool
) -> ModelVersionRow:
    """Add a sweep's winner as a version, and promote it if nothing holds it back.

    It is promoted if the model has no champion or ``auto_promote`` is set; otherwise it stays in staging. If
    the winner is a version already, that version is returned; if its gates have held it back until now, it
    gets the new report with its verdicts.

    Args:
        new: the new row, without its version, its stage and the time.
        judged_against: the version of the champion that the winner was compared with; None if there was no
            champion.

    Raises:
        ChampionChanged: another version is the champion now, or none is.
    """
    with catalog.write(exclusive=True) as session:
        registered = next((row for row in versions_of(session, new.model) if row.sweep == new.sweep), None)
        if registered is not None and not _waits_for_gates(registered, new):
            return registered
        champion = champion_of(session, new.model)
        now = None
        if champion is not None:
            now = champion.version
        if now != judged_against:
            raise ChampionChanged(
                f"the winner of sweep {new.sweep} was judged against champion {judged_against}; the "
                f"champion is {now}"
            )
        row = registered or new
        actor = f"sweep {new.sweep}"
        if registered is not None:
            judge(session, row, new, judged_against, actor)
        else:
            row.judged_against = judged_against
            _add(session, row, actor, "its gates passed")
        if (auto_promote or champion is None) and not blockers(session, row):
            make_champion(session, row, actor)
        return row


def _waits_for_gates(registered: ModelVersionRow, new: ModelVersionRow) -> bool:
    held = any(not gate["passed"] for gate in registered.gates or [])
    return held and registered.stage == "staging" and registered.checkpoint == new.checkpoint


def judge(
    session: Session, row: ModelVersionRow, new: ModelVersionRow, judged_against: str | None, actor: str
) -> None:
    """Replace a version's report and verdicts, in an exclusive transaction.

    Args:
        new: a row that was made of the new report.
        judged_against: the champion's version in that report; None if there was no champion.
    """
    for name in ("report", "gates", "manifest", "metrics", "input_schema", "output_schema"):
        setattr(row, name, getattr(new, name))
    row.judged_against = judged_against
    failed = [gate["name"] for gate in row.gates or [] if not gate["passed"]]
    outcome = "all gates passed"
    if failed:
        outcome = f"{', '.join(failed)} did not pass"
    note = f"against {judged_against or 'no champion'}: {outcome}"
    add_event(session, row.model, JUDGED, actor, version=row, note=note)


def register_held(
    catalog: Catalog, new: ModelVersionRow, *, judged_against: str | None, actor: str, note: str
) -> ModelVersionRow:
    """Add a winner that its gates hold back as a staging version, so that it can be promoted by force.

    If the winner is a version already, that one is returned.

    Args:
        new, judged_against: as in :func:`register`.
        actor: who registers it.
        note: why.
    """
    with catalog.write(exclusive=True) as session:
        for row in versions_of(session, new.model):
            if row.sweep == new.sweep:
                return row
        new.judged_against = judged_against
        _add(session, new, actor, note)
        return new


def _add(session: Session, new: ModelVersionRow, actor: str, note: str) -> None:
    """Add a sweep's winner as a staging version, with its number and its event."""
    earlier = versions_of(session, new.model)
    model = session.get(RegisteredModelRow, new.model) or create_model(session, new.model, actor=actor)
    new.version = next_version(earlier, new, model.newest)
    new.created_at = utcnow()
    new.stage = "staging"
    new.mlflow_stage = "Staging"
    new.project = session.get_one(SweepRow, new.sweep).project
    new.tags = {}
    number_version(model, new)
    session.add(new)
    session.flush()
    add_event(session, model.name, REGISTERED, actor, version=new, after=new.stage, note=note)


def next_version(earlier: list[ModelVersionRow], new: ModelVersionRow, last: str | None) -> str:
    """The next semantic version: major for a changed schema, minor for another snapshot, else patch.

    Args:
        earlier: the model's versions.
        last: the greatest version that the model ever had, which may be deleted; None if it had none.
    """
    if last is None:
        return "1.0.0"
    major, minor, patch = parse_version(last)
    if new.sweep is None:  # The schema of a client's version is unknown.
        return f"{major}.{minor}.{patch + 1}"
    newest = max(
        (row for row in earlier if row.sweep), key=lambda row: parse_version(row.version), default=None
    )
    if newest is None or newest.input_schema != new.input_schema or newest.output_schema != new.output_schema:
        return f"{major + 1}.0.0"
    if newest.snapshot != new.snapshot:
        return f"{major}.{minor + 1}.0"
    return f"{major}.{minor}.{patch + 1}"


def number_version(model: RegisteredModelRow, new: ModelVersionRow) -> None:
    """Number a new version, and count it in its model's row."""
    model.versions = model.versions + 1
    model.newest = new.version
    model.updated = now_ms()
    new.number = model.versions
    new.updated = model.updated


def parse_version(version: str) -> tuple[int, int, int]:
    """The three numbers of a semantic version.

    Raises:
        InvalidInput: it is not one.
    """
    try:
        major, minor, patch = (int(part) for part in version.split("."))
    except ValueError:
        raise InvalidInput(
            f"version {version!r} is not accepted: give MAJOR.MINOR.PATCH, for example 1.0.0"
        ) from None
    return major, minor, patch


def as_dict(session: Session, row: ModelVersionRow) -> dict[str, Any]:
    """A version as ``halving models list --json`` and the API give it, with its sweep's features."""
    names = (
        "model",
        "version",
        "number",
        "stage",
        "metrics",
        "project",
        "run",
        "sweep",
        "trial",
        "checkpoint",
        "snapshot",
        "framework",
    )
    more = ("source", "description", "tags", "created_at", "judged_against")
    return {
        **{name: getattr(row, name) for name in (*names, *more)},
        "gates": row.gates or [],
        "features": features_of(session, row),
    }
