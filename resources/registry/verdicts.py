"""What stands between a version and the champion's place: its gates, a newer champion, and people's
decisions.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import HalvingError, InvalidInput, NotFound
from halving.store.store import Store
from resources.catalog import Catalog, ModelVersionRow, SweepRow
from resources.catalog.models import champion_of
from resources.registry.events import APPROVED, REJECTED, decisions
from resources.sweep_spec.sweep import Approval


class PromotionRefused(InvalidInput):
    """A version does not become the champion; the message says what stands against it, and what to do."""


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
    """What holds a version back, one reason each; no gate has judged what clients register, so none speaks
    against it.
    """
    found = [
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
        against = f"champion {row.judged_against}" if row.judged_against else "no champion"
        found.append(
            f"it was judged against {against}, and the champion is {champion.version} now: judge it again "
            "by halving models judge "
            f"{row.model} {row.version}"
        )
    return found + _undecided(session, row)


def approval_of(session: Session, row: ModelVersionRow) -> Approval:
    """What the spec of a version's sweep asks for; of a version that a client registered, that of the newest
    sweep of its model.
    """
    newest = (
        select(SweepRow)
        .where(SweepRow.name == row.model)
        .order_by(SweepRow.created_at.desc(), SweepRow.ordinal.desc())
        .limit(1)
    )
    sweep = session.get(SweepRow, row.sweep) if row.sweep else session.scalar(newest)
    return Approval.model_validate((sweep.spec.get("approval") if sweep else None) or {})


def promotes_itself(session: Session, row: ModelVersionRow) -> bool:
    """Whether a sweep's version becomes the champion as soon as nothing holds it back: the spec says so, or
    the model has none.
    """
    sweep = session.get(SweepRow, row.sweep) if row.sweep else None
    return sweep is not None and (
        champion_of(session, row.model) is None or bool(sweep.spec.get("auto_promote"))
    )


def check_whole(store: Store, catalog: Catalog, model: str, version: str) -> None:
    """Refuse a version whose report is not what it was judged by, or whose checkpoint is gone; also where its
    promotion is forced.

    Raises:
        PromotionRefused: the report was altered or is gone, or the checkpoint is.
        StoreUnavailable: the store does not say.
    """
    with catalog.read() as session:
        row = session.get(ModelVersionRow, (model, version))
        if row is None or row.report is None:
            return  # the transaction says that it is not there; of a client's version there is no report
        report = row.report
        checkpoint = row.checkpoint
    try:
        store.get_blob(report)
    except HalvingError as error:
        if isinstance(error, ConnectionError):
            raise
        gone = "is gone" if isinstance(error, NotFound) else "was altered or is damaged"
        raise PromotionRefused(
            f"{model} {version} is not promoted: its report {gone} ({error}). Judge it again by halving "
            f"models judge {model} {version}"
        ) from None
    if checkpoint is not None and not store.has_blob(checkpoint):
        raise PromotionRefused(
            f"{model} {version} is not promoted: its checkpoint {checkpoint} is gone from the store "
            f"{store.root}"
        )


def _undecided(session: Session, row: ModelVersionRow) -> list[str]:
    rule = approval_of(session, row)
    decided = decisions(session, row)
    if rejections := [event for event in decided.values() if event.kind == REJECTED]:
        return [f"{event.actor} rejected it: {event.note}" for event in rejections]
    given = sorted(
        actor
        for actor, event in decided.items()
        if event.kind == APPROVED and (not rule.by or actor in rule.by)
    )
    if not rule.required or len(given) >= rule.at_least:
        return []
    who = f" of {', '.join(rule.by)}" if rule.by else ""
    so_far = f", and {', '.join(given)} approved so far" if given else ""
    return [
        (
            f"it waits for the approval of {rule.at_least}{who}{so_far}: halving approve {row.model} "
            f"{row.version} --note WHY"
        )
    ]
