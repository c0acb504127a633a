"""The checkpoint of another run that a training is to go on from, and retention, which may be about to delete
it.
"""

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from resources.catalog import RungResultRow, TrialRow
from resources.catalog.trial_key import parse_trial_key
from resources.sweep_spec import SweepSpec


def hold_source(session: Session, spec: SweepSpec) -> None:
    """Hold the row of the trial that a spec goes on from until the transaction that writes the spec down
    ends.

    Retention, which holds it while it decides about the trial's checkpoints, then sees the spec; or it was
    first.

    Raises:
        InvalidInput: retention has deleted the checkpoint.
    """
    source = spec.restored_from
    if source is None:
        return
    try:
        sweep, number = parse_trial_key(source.run)
    except ValueError:  # it is no trial
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
    kept = {trial.checkpoint, *((result.checkpoint, result.best_checkpoint) if result else ())}
    if trial.checkpoints_left == "none" or source.checkpoint not in kept:
        left = (
            "none of its checkpoints is"
            if trial.checkpoints_left == "none"
            else "only its newest and best checkpoint are"
        )
        raise InvalidInput(
            f"restored_from = {source.run!r}, epoch {source.epoch}, is not accepted: its sweep ended long "
            "ago, and by the retention policy "
            f"{left} kept; go on from another one, or train its params again"
        )
