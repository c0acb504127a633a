"""The trials of a sweep, each in one line: its params, where it stands, and why it waits."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy import select

from resources.analysis.reasons import short_reason
from resources.analysis.trial_history import waits_for
from resources.catalog import Catalog, RungResultRow
from resources.catalog.trial_key import trial_key


@dataclass(frozen=True, kw_only=True)
class TrialLine:
    """One trial.

    Attributes:
        waiting: why a trial that is not over does not train now; see
            :class:`resources.analysis.trial_history.TrialHistory`.
        final: for a trial of the final training, the number of its seed, from 0; None for the search's.
        objective, metrics, epochs, rung: the result at its highest rung; None, or no metrics, before it.
        error: why its last attempt failed or was preempted, in one line.
    """

    number: int
    key: str
    status: str
    params: dict[str, Any]
    waiting: str | None
    final: int | None
    objective: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    epochs: int | None = None
    rung: int | None = None
    seconds: float
    attempts: int
    error: str | None

    def as_dict(self) -> dict[str, Any]:
        """The line as plain data, for the API."""
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
        line = TrialLine(
            number=trial.number,
            key=trial_key(sweep, trial.number),
            status=trial.status,
            params=trial.params,
            waiting=waits_for(opened, trial),
            final=trial.final,
            seconds=trial.seconds,
            attempts=trial.attempt,
            error=short_reason(trial.error),
        )
        if result := results.get(trial.number):
            line = replace(
                line,
                objective=result.value,
                metrics=result.metrics or {},
                epochs=result.epochs,
                rung=result.rung,
            )
        lines.append(line)
    return lines
