"""A sweep at a glance: who stands where, what was stopped at which rung, and what that saved."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select

from resources.catalog import Catalog, RungResultRow
from resources.scheduler import Scheduler, trial_key
from resources.search import ranking


@dataclass(frozen=True)
class Standing:
    """A trial's place: its highest rung with a result, and the result."""

    trial: int
    key: str
    params: dict[str, Any]
    status: str
    rung: int
    epochs: int
    objective: float
    attempts: int
    seconds: float
    checkpoint: str


@dataclass(frozen=True)
class Rung:
    """What happened at a rung: of ``reached`` trials some were ``promoted``; ``stopped`` ones stayed or stay paused."""

    rung: int
    epochs: int
    reached: int
    promoted: int
    stopped: int
    failed: int
    best: float | None


@dataclass(frozen=True)
class Summary:
    """A sweep's standing.

    ``epochs_full`` is what training every trial that has a result to the last rung would have cost: what failed
    without one counts neither as trained nor as saved.
    """

    sweep: str
    status: str
    objective: str
    direction: str
    planned: int
    counts: dict[str, int]
    standings: list[Standing]
    rungs: list[Rung]
    failed: list[dict[str, Any]]
    epochs_trained: int
    epochs_full: int
    seconds: float
    gpu_seconds: float

    @property
    def best(self) -> Standing | None:
        return self.standings[0] if self.standings else None

    @property
    def saved(self) -> float:
        """Share of the full training that early stopping did not spend, 0 to 1."""
        return 1 - self.epochs_trained / self.epochs_full if self.epochs_full else 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarize(catalog: Catalog, sweep: str) -> Summary:
    """The sweep as the catalog has it now.

    Raises:
        NotFound: no such sweep.
    """
    scheduler = Scheduler(catalog, sweep)
    state = scheduler.state()
    with catalog.read() as session:
        row = catalog.sweep(session, sweep)
        trials = catalog.trials(session, sweep)
        results = list(session.scalars(select(RungResultRow).where(RungResultRow.sweep == sweep)))
    at = {(result.trial, result.rung): result for result in results}
    known = {trial.number: trial for trial in state.trials}
    standings = [
        Standing(
            trial=trial.number,
            key=trial_key(sweep, trial.number),
            params=trials[trial.number].params,
            status=str(trial.status),
            rung=rung,
            epochs=at[trial.number, rung].epochs,
            objective=trial.results[rung] or 0.0,
            attempts=trials[trial.number].attempt,
            seconds=trials[trial.number].seconds,
            checkpoint=at[trial.number, rung].checkpoint or "",
        )
        for trial, rung in ranking(state)
    ]
    seconds = sum(trial.seconds for trial in trials)
    return Summary(
        sweep=sweep,
        status=row.status,
        objective=scheduler.spec.objective.metric,
        direction=scheduler.spec.objective.direction,
        planned=scheduler.rules.max_trials,
        counts=dict(Counter(str(trial.status) for trial in known.values())),
        standings=standings,
        rungs=[_rung(scheduler, results, rung, epochs) for rung, epochs in enumerate(scheduler.rules.budgets)],
        failed=[
            {"trial": trial.number, "key": trial_key(sweep, trial.number), "attempts": trial.attempt, "error": trial.error or ""}
            for trial in trials
            if trial.status == "failed"
        ],
        epochs_trained=sum(standing.epochs for standing in standings),
        epochs_full=len(standings) * scheduler.rules.budgets[-1],
        seconds=seconds,
        gpu_seconds=seconds * scheduler.spec.resources.gpus,
    )


def _rung(scheduler: Scheduler, results: list[RungResultRow], rung: int, epochs: int) -> Rung:
    here = [result for result in results if result.rung == rung]
    went_on = {result.trial for result in results if result.rung == rung + 1}
    values = [result.value for result in here if result.value is not None]
    failed = sum(result.value is None for result in here)
    promoted = sum(result.trial in went_on for result in here)
    best = (max if scheduler.rules.maximize else min)(values) if values else None
    return Rung(rung, epochs, len(here), promoted, len(here) - failed - promoted, failed, best)
