"""The summary of a sweep: its trials ranked, how many were stopped at each rung, and what that saved."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from resources.analysis.final_trials import FinalTrial, final_trials
from resources.analysis.spent import ResultsAt, gpus_of_attempts, spent_and_saved
from resources.catalog import Catalog, RungResultRow, SweepRow, TrialRow
from resources.catalog.trial_key import trial_key
from resources.scheduling.state_cache import StateCache
from resources.search.decide import pareto_front, ranking
from resources.search.rules import seeds_of
from resources.search.state import Halving, SearchState, Status, TrialState
from resources.sweep_spec import SweepSpec, stored_spec


@dataclass(frozen=True)
class Standing:
    """A trial in the ranking, with the result at its highest rung.

    Attributes:
        metrics: every objective and every bounded metric at that rung.
        violation: how far the metrics are out of their bounds; 0 when they are within them.
        on_front: whether no other trial is at least as good in every objective and better in at least one;
            only with several objectives.
        audited: whether it was pruned and then trained on, to check the pruning.
        checkpoint: the checkpoint of the rung; that of the best epoch when the best value so far counts.
    """

    trial: int
    key: str
    params: dict[str, Any]
    status: str
    bracket: int
    rung: int
    epochs: int
    objective: float
    metrics: dict[str, float]
    violation: float
    on_front: bool
    audited: bool
    attempts: int
    preemptions: int
    seconds: float
    checkpoint: str


@dataclass(frozen=True)
class RungSummary:
    """What happened to the trials that reached a rung of a bracket.

    Attributes:
        reached: the number of these trials; the sum of the five numbers that follow.
        promoted: how many went on towards the next rung.
        paused: how many wait here with a checkpoint, or did so when the search ended.
        stopped: how many ended here, by the median rule or because their sweep was stopped.
        completed: how many are done, because this is the last rung or the trainable returned.
        failed: how many failed on the way here.
        best: the best trial's first objective; None without a result.
    """

    bracket: int
    rung: int
    epochs: int
    reached: int
    promoted: int
    paused: int
    stopped: int
    completed: int
    failed: int
    best: float | None


@dataclass(frozen=True)
class SweepSummary:
    """A sweep as it stands.

    Attributes:
        control: what its user wants: run, pause or stop.
        project: the project whose share it uses.
        held_back: why none of its trials is started though it has work: a quota, or the others' shares. None
            if nothing holds it back.
        objective, direction: the objective that ranks trials.
        objectives: all objectives, with how each is summarised at a rung.
        planned: the number of trials that its search may start.
        counts: the number of trials in each status.
        standings: the search's trials with a result, best first.
        rungs: the rungs of every bracket, the longest bracket first.
        infeasible: the number of ``standings`` that are out of bounds.
        waiting: the trials whose pods have not started, with the cluster's reason.
        preemptions: how often a trial lost its worker.
        epochs_trained: the epochs that the search trained; failed trials count up to their last result.
        epochs_full: the epochs that the search would have trained without early stopping.
        final: the trainings of the winner's params after the search that have begun, by seed. Besides, they
            count only in ``failed`` and ``waiting``.
        final_seeds: the number of seeds that are planned; 0 without a final training.
        audit_epochs, audit_seconds: the additional training of the audit of pruning.
        seconds: the training time of the search, including repeated work.
        seconds_saved: an estimate of the training time of the epochs that were saved.
    """

    sweep: str
    project: str
    status: str
    control: str
    held_back: str | None
    objective: str
    direction: str
    objectives: list[dict[str, Any]]
    bounds: dict[str, dict[str, float]]
    brackets: int
    planned: int
    counts: dict[str, int]
    standings: list[Standing]
    rungs: list[RungSummary]
    failed: list[dict[str, Any]]
    waiting: list[dict[str, Any]]
    infeasible: int
    audited: int
    final: list[FinalTrial]
    final_seeds: int
    preemptions: int
    epochs_trained: int
    epochs_full: int
    audit_epochs: int
    seconds: float
    seconds_saved: float
    audit_seconds: float
    gpu_seconds: float
    gpu_seconds_saved: float

    @property
    def best(self) -> Standing | None:
        """The leading trial; None if no trial has a result."""
        if not self.standings:
            return None
        return self.standings[0]

    @property
    def saved(self) -> float:
        """The share of the full training that early stopping saved, 0 to 1."""
        if not self.epochs_full:
            return 0.0
        return 1 - self.epochs_trained / self.epochs_full

    def as_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return asdict(self)


def summarize(catalog: Catalog, sweep: str) -> SweepSummary:
    """Summarize a sweep as it stands now.

    Raises:
        NotFound: no such sweep.
    """
    with catalog.read() as session:
        row = catalog.sweep(session, sweep)
        spec = stored_spec(row.spec)
        state = state_of(session, row)
        trials = catalog.trials(session, sweep)
        results = session.scalars(select(RungResultRow).where(RungResultRow.sweep == sweep))
        rows = {(result.trial, result.rung): result for result in results}
        gpus: dict[tuple[int, int], int] = {}
        if spec.resources.largest.gpus:
            gpus = gpus_of_attempts(session, sweep)
    searched = trials[: len(state.trials)]
    results_of_search = {place: row for place, row in rows.items() if place[0] < len(state.trials)}
    standings = _standings(sweep, spec, state, searched, results_of_search)
    cost = spent_and_saved(state, searched, results_of_search, gpus)
    return SweepSummary(
        sweep=sweep,
        project=row.project,
        status=row.status,
        control=row.control,
        held_back=row.held_back,
        objective=spec.objective.metric,
        direction=spec.objective.direction,
        objectives=[objective.model_dump(exclude_none=True) for objective in spec.objectives],
        bounds={metric: bounds.model_dump(exclude_none=True) for metric, bounds in spec.bounds.items()},
        brackets=len(state.rules.ladders),
        planned=state.max_trials,
        counts=dict(Counter(str(trial.status) for trial in state.trials)),
        standings=standings,
        rungs=_rungs(state),
        failed=[
            {
                "trial": trial.number,
                "key": trial_key(sweep, trial.number),
                "attempts": trial.attempt,
                "error": trial.error or "",
            }
            for trial in trials
            if trial.status == Status.FAILED
        ],
        waiting=[
            {
                "trial": trial.number,
                "key": trial_key(sweep, trial.number),
                "attempt": trial.attempt,
                "reason": trial.waiting,
            }
            for trial in trials
            if trial.waiting
        ],
        infeasible=sum(standing.violation > 0 for standing in standings),
        audited=sum(trial.audited is not None for trial in state.trials),
        final=final_trials(sweep, trials, rows.values()),
        final_seeds=seeds_of(spec),
        preemptions=sum(trial.preemptions for trial in state.trials),
        **cost,
    )


def state_of(session: Session, sweep: SweepRow) -> SearchState:
    """The state of a sweep's search."""
    cache = StateCache(sweep.id, stored_spec(sweep.spec))
    cache.refresh(session.connection(), lock=False)
    return cache.state


def outcome(status: str, *, audited: bool, searching: bool) -> str:
    """A trial's status for people.

    When the search is over, paused trials count as stopped, because they will not go on.
    """
    if audited and status == Status.COMPLETED:
        return "audited"
    if audited:
        return f"audited, {status}"
    if status == Status.PAUSED and not searching:
        return "stopped"
    return status


def _standings(
    sweep: str, spec: SweepSpec, state: SearchState, trials: Sequence[TrialRow], results: ResultsAt
) -> list[Standing]:
    front: set[int] = set()
    if len(spec.objectives) > 1:
        front.update(pareto_front(state))
    standings = []
    for trial, rung in ranking(state):
        row = results[trial.number, rung]
        row_of_trial = trials[trial.number]
        result = trial.results[rung]
        assert result is not None  # every trial of the ranking has a result
        checkpoint = row.checkpoint
        if spec.objective.summary == "best":
            checkpoint = row.best_checkpoint or checkpoint
        standings.append(
            Standing(
                trial=trial.number,
                key=trial_key(sweep, trial.number),
                params=row_of_trial.params,
                status=str(trial.status),
                bracket=state.rules.bracket(trial.number),
                rung=rung,
                epochs=row.epochs,
                objective=result.value,
                metrics=row.metrics or {spec.objective.metric: result.value},
                violation=result.violation,
                on_front=trial.number in front,
                audited=trial.audited is not None,
                attempts=row_of_trial.attempt,
                preemptions=trial.preemptions,
                seconds=row_of_trial.seconds,
                checkpoint=checkpoint or "",
            )
        )
    return standings


def _rungs(state: SearchState) -> list[RungSummary]:
    fates_at: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for trial in state.trials:
        bracket = state.rules.bracket(trial.number)
        last = len(trial.counted) - 1
        for rung, result in enumerate(trial.counted):
            fate = "promoted"
            if result is None:
                fate = "failed"
            elif rung == last:
                fate = _fate_at_last(state, trial)
            fates_at[bracket, rung][fate] += 1
    rungs = []
    for bracket, ladder in enumerate(state.rules.ladders):
        for rung, epochs in enumerate(ladder):
            counts = fates_at[bracket, rung]
            fates = {name: counts[name] for name in ("promoted", "paused", "stopped", "completed", "failed")}
            best = None
            ordered = state.rungs[bracket][rung].results
            if ordered and (leader := state.trials[ordered[0][2]].results[rung]):
                best = leader.value
            rungs.append(RungSummary(bracket, rung, epochs, sum(counts.values()), **fates, best=best))
    return rungs


def _fate_at_last(state: SearchState, trial: TrialState) -> str:
    """What happened to a trial at the last rung where it has a result in the search."""
    if trial.audited is not None and isinstance(state.rules.early_stopping, Halving):
        return "paused"
    if trial.audited is not None:
        return "stopped"
    if trial.status in (Status.RUNNING, Status.QUEUED):
        return "promoted"
    return str(trial.status)
