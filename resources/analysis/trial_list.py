"""The trials of a sweep, each in one line: its params, where it stands, and why it waits."""

from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select

from resources.analysis.reasons import short_reason
from resources.analysis.trial_history import waits_for
from resources.catalog import Catalog, RungResultRow
from resources.catalog.trial_key import trial_key


@dataclass(frozen=True)
class TrialLine:
    """One trial.

    Attributes:
        waiting: why a trial that is not over does not train now; see
            :class:`resources.analysis.trial_history.TrialHistory`.
        final: for a trial of the final training, the number of its seed, from 0; None for the search's.
        objective, metrics, epochs, rung: at the highest rung where it has a result; None before the first.
        error: why its last attempt failed or was preempted, in short.
    """

    number: int
    key: str
    status: str
    params: dict[str, Any]
    waiting: str | None
    final: int | None
    objective: float | None
    metrics: dict[str, float]
    epochs: int | None
    rung: int | None
    seconds: float
    attempts: int
    error: str | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def trials_of(catalog: Catalog, sweep: str) -> list[TrialLine]:
    """A sweep's trials by number.

    Raises:
        NotFound: no such sweep.
    """
    with catalog.read() as session:
        opened = catalog.sweep(session, sweep)
        trials = catalog.trials(session, sweep)
        reached = select(RungResultRow).where(RungResultRow.sweep == sweep, RungResultRow.value.is_not(None))
        # The highest rung comes last and is kept.
        results = {row.trial: row for row in session.scalars(reached.order_by(RungResultRow.rung))}
    lines = []
    for trial in trials:
        result = results.get(trial.number)
        lines.append(
            TrialLine(
                number=trial.number,
                key=trial_key(sweep, trial.number),
                status=trial.status,
                params=trial.params,
                waiting=waits_for(opened, trial),
                final=trial.final,
                objective=result.value if result else None,
                metrics=(result.metrics or {}) if result else {},
                epochs=result.epochs if result else None,
                rung=result.rung if result else None,
                seconds=trial.seconds,
                attempts=trial.attempt,
                error=short_reason(trial.error),
            )
        )
    return lines
