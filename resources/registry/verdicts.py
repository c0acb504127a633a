"""What holds a version back from promotion: its gates, a newer champion, and people's decisions."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import HalvingError, InvalidInput, NotFound
from halving.store.store import Store
from resources.catalog import Catalog, ModelVersionRow, SweepRow
from resources.catalog.models import champion_of
from resources.registry.events import APPROVED, REJECTED, decisions
from resources.sweep_spec.sweep import Approval


class PromotionRefused(InvalidInput):
    """A version does not become the champion; the message says what holds it back, and what to do."""


def check_promotable(session: Session, row: ModelVersionRow) -> None:
    """Refuse a version that its gates or people hold back.

    Raises:
        PromotionRefused: naming all that holds it back.
    """
    if reasons := blockers(session, row):
        raise PromotionRefused(
            f"{row.model} {row.version} is not promoted: {'; '.join(reasons)}. To promote it all the same: "
            f"halving promote {row.model} "
            f"{row.version} --force --note WHY"
        )


def blockers(session: Session, row: ModelVersionRow) -> list[str]:
    """Reasons that hold a version back; no gate has judged a version that a client registered."""
    reasons = [
        f"gate {gate['name']} did not pass: {gate['reason']}"
        for gate in row.gates or []
        if not gate["passed"]
    ]
    champion = champion_of(session, row.model)
    if (
        row.gates is not None
        and champion is not None
        and champion is not row
        and champion.version != row.judged_against
    ):
        against = "no champion"
        if row.judged_against:
            against = f"champion {row.judged_against}"
        reasons.append(
            f"it was judged against {against}, and the champion is {champion.version} now: judge it again "
            "by halving models judge "
            f"{row.model} {row.version}"
        )
    return reasons + _missing_approval(session, row)


def approval_of(session: Session, row: ModelVersionRow) -> Approval:
    """The approval that the spec of a version's sweep asks for.

    For a version that a client registered it is the spec of the model's newest sweep.
    """
    if row.sweep:
        sweep = session.get(SweepRow, row.sweep)
    else:
        newest = select(SweepRow).order_by(SweepRow.created_at.desc(), SweepRow.ordinal.desc()).limit(1)
        sweep = session.scalar(newest.where(SweepRow.name == row.model))
    if sweep is None:
        return Approval()
    return Approval.model_validate(sweep.spec.get("approval") or {})


def promotes_itself(session: Session, row: ModelVersionRow) -> bool:
    """Whether a sweep's version becomes the champion as soon as nothing holds it back.

    It does if the spec says so, or if the model has no champion.
    """
    if not row.sweep:
        return False
    sweep = session.get(SweepRow, row.sweep)
    if sweep is None:
        return False
    return champion_of(session, row.model) is None or bool(sweep.spec.get("auto_promote"))


def check_whole(store: Store, catalog: Catalog, model: str, version: str) -> None:
    """Refuse a version whose report was altered or whose checkpoint is gone, even by force.

    Raises:
        PromotionRefused: the report was altered or is gone, or the checkpoint is.
        StoreUnavailable: the store does not answer.
    """
    with catalog.read() as session:
        row = session.get(ModelVersionRow, (model, version))
        if row is None or row.report is None:
            # A missing version is refused in the transaction, and a client's version has no report.
            return
        report = row.report
        checkpoint = row.checkpoint
    try:
        store.get_blob(report)
    except HalvingError as error:
        if isinstance(error, ConnectionError):
            raise
        problem = "was altered or is damaged"
        if isinstance(error, NotFound):
            problem = "is gone"
        raise PromotionRefused(
            f"{model} {version} is not promoted: its report {problem} ({error}). Judge it again by halving "
            f"models judge {model} {version}"
        ) from None
    if checkpoint is not None and not store.has_blob(checkpoint):
        raise PromotionRefused(
            f"{model} {version} is not promoted: its checkpoint {checkpoint} is gone from the store "
            f"{store.root}"
        )


def _missing_approval(session: Session, row: ModelVersionRow) -> list[str]:
    """A version's rejections, or the approval that it waits for, in words; empty if nothing is missing."""
    rule = approval_of(session, row)
    decided = decisions(session, row)
    if rejections := [event for event in decided.values() if event.kind == REJECTED]:
        return [f"{event.actor} rejected it: {event.note}" for event in rejections]
    approvers = sorted(
        actor
        for actor, event in decided.items()
        if event.kind == APPROVED and (not rule.by or actor in rule.by)
    )
    if not rule.required or len(approvers) >= rule.at_least:
        return []
    reason = f"it waits for the approval of {rule.at_least}"
    if rule.by:
        reason += f" of {', '.join(rule.by)}"
    if approvers:
        reason += f", and {', '.join(approvers)} approved so far"
    return [f"{reason}: halving approve {row.model} {row.version} --note WHY"]
