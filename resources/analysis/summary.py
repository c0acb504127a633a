"""A sweep at a glance: who stands where, what was stopped at which rung, what that saved, and what the audit cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select

from resources.catalog import Catalog, RungResultRow, TrialRow
from resources.catalog.trial_key import trial_key
from resources.scheduling.state_cache import StateCache
from resources.search.decide import pareto_front, ranking
from resources.search.state import Halving, Rules, SearchState, Status, TrialState
from resources.sweep_spec import SweepSpec, stored_spec


@dataclass(frozen=True)
class Standing:
    """A trial's place: its highest rung with a result, and the result.

    Attributes:
        metrics: every objective and every bounded metric there.
        violation: how far those are out of their bounds; 0 is feasible.
        on_front: no other trial is at least as good in every objective and better in one; only with several objectives.
        audited: it was pruned, and trained on as a check on pruning.
        checkpoint: of this rung; where the objective is the best value so far, that of the best epoch.
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
    """What became of the trials that the search brought to a rung of a bracket; the last five numbers add up to ``reached``.

    Attributes:
        promoted: went on to the next rung, or are on their way there.
        paused: stand here with a checkpoint; once the search is over they stay.
        stopped: ended here, by the median rule or with their sweep.
        completed: done here: it is the last rung, or the trainable returned.
        failed: failed on their way here.
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
    """A sweep's standing.

    Attributes:
        control: what its user wants of it: run, pause or stop.
        objective, direction: the one that ranks trials.
        objectives: all of them, with how each is summarised at a rung.
        planned: trials that it may start.
        counts: trials in each status.
        standings: trials with a result, best first.
        rungs: of every bracket, the longest bracket first.
        infeasible: trials of ``standings`` that are out of bounds.
        waiting: trials whose pods have not started, with the cluster's reason.
        preemptions: times that a trial lost its worker.
        epochs_trained: by the search; failed trials count up to their last result.
        epochs_full: what it would have trained had no trial been stopped early.
        audit_epochs, audit_seconds: what the audit of pruning trained beyond that.
        seconds: of training by the search, repeated work included.
        seconds_saved: epochs not trained, at the seconds that an epoch of the same trial, or of all, took.
    """

    sweep: str
    status: str
    control: str
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
        return self.standings[0] if self.standings else None

    @property
    def saved(self) -> float:
        """Share of the full training that early stopping did not spend, 0 to 1."""
        return 1 - self.epochs_trained / self.epochs_full if self.epochs_full else 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def summarize(catalog: Catalog, sweep: str) -> SweepSummary:
    """The sweep as the catalog has it now.

    Raises:
        NotFound: no such sweep.
    """
    with catalog.read() as session:
        row = catalog.sweep(session, sweep)
        spec = stored_spec(row.spec)
        cache = StateCache(sweep, spec)
        cache.refresh(session.connection(), lock=False)
        trials = catalog.trials(session, sweep)
        results = list(session.scalars(select(RungResultRow).where(RungResultRow.sweep == sweep)))
    state, gpus = cache.state, spec.resources.gpus
    at = {(result.trial, result.rung): result for result in results}
    standings = _standings(sweep, spec, state, trials, at)
    cost = _cost(state, trials, at)
    return SweepSummary(
        sweep=sweep,
        status=row.status,
        control=row.control,
        objective=spec.objective.metric,
        direction=spec.objective.direction,
        objectives=[objective.model_dump(exclude_none=True) for objective in spec.objectives],
        bounds={metric: bounds.model_dump(exclude_none=True) for metric, bounds in spec.bounds.items()},
        brackets=len(state.rules.ladders),
        planned=state.max_trials,
        counts=dict(Counter(str(trial.status) for trial in state.trials)),
        standings=standings,
        rungs=_rungs(state, at),
        failed=[
            {"trial": trial.number, "key": trial_key(sweep, trial.number), "attempts": trial.attempt, "error": trial.error or ""}
            for trial in trials
            if trial.status == Status.FAILED
        ],
        waiting=[
            {"trial": trial.number, "key": trial_key(sweep, trial.number), "attempt": trial.attempt, "reason": trial.waiting}
            for trial in trials
            if trial.waiting
        ],
        infeasible=sum(standing.violation > 0 for standing in standings),
        audited=sum(trial.audited is not None for trial in state.trials),
        preemptions=sum(trial.preemptions for trial in state.trials),
        **cost,
        gpu_seconds=cost["seconds"] * gpus,
        gpu_seconds_saved=cost["seconds_saved"] * gpus,
    )


def state_of(catalog: Catalog, sweep: str) -> SearchState:
    """The sweep as the search sees it.

    Raises:
        NotFound: no such sweep.
    """
    with catalog.read() as session:
        cache = StateCache(sweep, stored_spec(catalog.sweep(session, sweep).spec))
        cache.refresh(session.connection(), lock=False)
    return cache.state


def outcome(status: str, *, audited: bool, searching: bool) -> str:
    """A trial's status in a word for people: once the search is over, nothing that is paused will go on."""
    if audited:
        return "audited" if status == Status.COMPLETED else f"audited, {status}"
    return "stopped" if status == Status.PAUSED and not searching else status


_At = dict[tuple[int, int], RungResultRow]


def _standings(sweep: str, spec: SweepSpec, state: SearchState, trials: Sequence[TrialRow], at: _At) -> list[Standing]:
    front = set(pareto_front(state)) if len(spec.objectives) > 1 else set()
    standings = []
    for trial, rung in ranking(state):
        row, known, result = at[trial.number, rung], trials[trial.number], trial.results[rung]
        best = row.best_checkpoint if spec.objective.summary == "best" else None
        standings.append(
            Standing(
                trial=trial.number,
                key=trial_key(sweep, trial.number),
                params=known.params,
                status=str(trial.status),
                bracket=state.rules.bracket(trial.number),
                rung=rung,
                epochs=row.epochs,
                objective=result.value if result else 0.0,
                metrics=row.metrics or {spec.objective.metric: result.value if result else 0.0},
                violation=result.violation if result else 0.0,
                on_front=trial.number in front,
                audited=trial.audited is not None,
                attempts=known.attempt,
                preemptions=trial.preemptions,
                seconds=known.seconds,
                checkpoint=best or row.checkpoint or "",
            )
        )
    return standings


def _cost(state: SearchState, trials: Sequence[TrialRow], at: _At) -> dict[str, Any]:
    """What was trained and what was not.

    An epoch that was not trained is taken to last as long as those of its trial, or as the sweep's average where that is
    less: a short training is mostly start-up. So what is said to be saved is rather too little.
    """
    trained = full = audit_epochs = 0
    saved = audit_seconds = 0.0
    average = _seconds_per_epoch([leg for leg in at.values() if leg.value is not None])
    for trial in state.trials:
        legs = [at[trial.number, rung] for rung in range(len(trial.results))]
        counted = legs[: len(trial.counted)]
        epochs = max((leg.epochs for leg in counted), default=0)
        left = _left(state.rules, trial, epochs)
        trained, full = trained + epochs, full + epochs + left
        saved += left * min(average, _seconds_per_epoch(counted)) if left else 0.0
        audit_epochs += max((leg.epochs - epochs for leg in legs[len(counted) :] if leg.value is not None), default=0)
        audit_seconds += sum(leg.seconds for leg in legs[len(counted) :])
    return {
        "epochs_trained": trained,
        "epochs_full": full,
        "audit_epochs": audit_epochs,
        "seconds": sum(trial.seconds for trial in trials) - audit_seconds,
        "seconds_saved": saved,
        "audit_seconds": audit_seconds,
    }


def _seconds_per_epoch(legs: Sequence[RungResultRow]) -> float:
    last: dict[int, int] = {}
    for leg in legs:
        last[leg.trial] = max(leg.epochs, last.get(leg.trial, 0))
    return sum(leg.seconds for leg in legs) / max(1, sum(last.values()))


def _left(rules: Rules, trial: TrialState, epochs: int) -> int:
    """Epochs to the last rung that a trial was not given, because it was stopped early."""
    stopped_early = trial.audited is not None or trial.status in (Status.PAUSED, Status.STOPPED)
    return max(0, rules.ladder(trial.number)[-1] - epochs) if stopped_early and epochs else 0


def _rungs(state: SearchState, at: _At) -> list[RungSummary]:
    happened: dict[tuple[int, int], Counter[str]] = {}
    places: dict[tuple[int, int], list[tuple[Any, float]]] = {}
    for trial in state.trials:
        bracket, last = state.rules.bracket(trial.number), len(trial.counted) - 1
        for rung, result in enumerate(trial.counted):
            what = "failed" if result is None else "promoted" if rung < last else _at_last(state, trial)
            happened.setdefault((bracket, rung), Counter())[what] += 1
            if result is not None:
                places.setdefault((bracket, rung), []).append((state.place(trial.number, result), result.value))
    rungs = []
    for bracket, ladder in enumerate(state.rules.ladders):
        for rung, epochs in enumerate(ladder):
            counts, here = happened.get((bracket, rung), Counter()), places.get((bracket, rung))
            became = {name: counts[name] for name in ("promoted", "paused", "stopped", "completed", "failed")}
            rungs.append(RungSummary(bracket, rung, epochs, sum(counts.values()), **became, best=min(here)[1] if here else None))
    return rungs


def _at_last(state: SearchState, trial: TrialState) -> str:
    """What became of a trial at the last rung where the search has a result of it."""
    if trial.audited is not None:
        return "paused" if isinstance(state.rules.early_stopping, Halving) else "stopped"
    return "promoted" if trial.status in (Status.RUNNING, Status.QUEUED) else str(trial.status)
