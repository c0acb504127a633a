"""Protects the checkpoint that a training starts from against retention."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.catalog import RungResultRow, TrialRow
from resources.catalog.trial_key import parse_trial_key
from resources.sweep_spec import SweepSpec


def hold_source(session: Session, spec: SweepSpec) -> None:
    """Lock the row of the trial that a spec starts from, until the transaction that stores the spec ends.

    Retention locks the same row while it decides about the trial's checkpoints. So it either sees the spec,
    or has decided before.

    Raises:
        InvalidInput: retention has deleted the checkpoint.
    """
    source = spec.restored_from
    if source is None:
        return
    try:
        sweep, number = parse_trial_key(source.run)
    except ValueError:  # The source is no trial of a sweep.
        return
    trial = session.get(TrialRow, (sweep, number), with_for_update=True, populate_existing=True)
    if trial is None or trial.checkpoints_left is None:
        return
    query = (
        select(RungResultRow)
        .where(RungResultRow.sweep == sweep, RungResultRow.trial == number)
        .order_by(RungResultRow.rung.desc())
    )
    result = session.scalar(query.limit(1))
    kept = {trial.checkpoint}
    if result:
        kept |= {result.checkpoint, result.best_checkpoint}
    has_none = trial.checkpoints_left == "none"
    if has_none or source.checkpoint not in kept:
        left = "only its newest and best checkpoint are"
        if has_none:
            left = "none of its checkpoints is"
        raise InvalidInput(
            f"restored_from = {source.run!r}, epoch {source.epoch}, is not accepted: its sweep ended long "
            f"ago, and by the retention policy {left} kept; go on from another one, or train its params again"
        )
