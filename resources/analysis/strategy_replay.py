"""Replay of other strategies on the trials of a sweep that is over, for ``halving replay``."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

import yaml
from sqlalchemy import select

from halving import Store
from halving.errors import HalvingError, InvalidInput, NotFound
from halving.query.api import curves as all_points
from resources.analysis.summary import SweepSummary, summarize
from resources.analysis.trial_curves import curves
from resources.catalog import AttemptRow, Catalog, RungResultRow, TrialRow
from resources.catalog.trial_key import trial_key
from resources.search.replay import TrialCurve, curve_of, replay, spec_with
from resources.search.state import Status
from resources.sweep_spec import SweepSpec, stored_spec
from resources.sweep_spec.yaml_text import read_yaml

# Curves with at most this many points are kept point by point, whatever retention deletes.
_SINGLE_POINTS = 2000


class NotReplayable(HalvingError, RuntimeError):
    """The sweep is not over, or has no result that could be replayed."""


def read_strategy(text: str) -> Any:
    """Read a strategy from the command line: its name, or YAML.

    Raises:
        InvalidInput: it is not YAML.
    """
    try:
        return read_yaml(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or error
        raise InvalidInput(
            f"strategy = {text!r} is not YAML: {problem}; give a name, or 'asha: {{min_budget: 3}}'"
        ) from None


def replay_sweep(store: Store, catalog: Catalog, sweep: str, strategies: Sequence[Any]) -> dict[str, Any]:
    """Replay each strategy on the curves of a sweep whose search is over.

    Args:
        strategies: names, or ``{name: {setting: value}}``.

    Returns:
        ``sweep``, ``objective``, ``direction``, ``trials`` and ``workers``. ``itself`` is the sweep's own
        search without the audit of pruning; its ``seconds`` are None if no attempt was recorded.
        ``replayed`` has the searches in the order of the strategies. Each search has its winner's key, and
        the winner's place among the sweep's own results.

    Raises:
        NotFound: there is no such sweep, or the store no longer has its points.
        NotReplayable: it is still searching, or has no result.
        InvalidInput: a strategy is not accepted.
    """
    with catalog.read() as session:
        row = catalog.sweep(session, sweep)
        if row.status == "searching":
            raise NotReplayable(
                f"sweep {sweep} is still searching: replay it when its search is over, or end it with "
                f"halving stop {sweep}"
            )
        spec = stored_spec(row.spec)
        trials = [
            trial for trial in catalog.trials(session, sweep) if trial.attempt > 0 and trial.final is None
        ]
        results = list(
            session.scalars(
                select(RungResultRow).where(RungResultRow.sweep == sweep).order_by(RungResultRow.rung)
            )
        )
        numbers = {trial.number for trial in trials}
        attempts = [
            row
            for row in session.scalars(select(AttemptRow).where(AttemptRow.sweep == sweep))
            if row.trial in numbers
        ]
    specs = [spec_with(spec, strategy, max(1, len(trials))) for strategy in strategies]
    summary = summarize(catalog, sweep)
    if summary.best is None:
        raise NotReplayable(f"sweep {sweep} has no trial with a result, so there is nothing to replay")
    curves_of_trials = _curves(store, spec, sweep, trials, results)
    workers = spec.concurrency or _peak_concurrency(attempts)
    places = {standing.key: place for place, standing in enumerate(summary.standings, start=1)}
    replayed = []
    for replayed_spec in specs:
        search = replay(replayed_spec, curves_of_trials, workers)
        winner = None
        place = None
        if search.winner is not None:
            winner = trial_key(sweep, trials[search.winner].number)
            place = places.get(winner)
        replayed.append({**asdict(search), "winner": winner, "place": place})
    return {
        "sweep": sweep,
        "objective": summary.objective,
        "direction": summary.direction,
        "trials": len(trials),
        "workers": workers,
        "itself": _own_search(spec, summary, attempts),
        "replayed": replayed,
    }


def _curves(
    store: Store, spec: SweepSpec, sweep: str, trials: Sequence[TrialRow], results: Sequence[RungResultRow]
) -> list[TrialCurve]:
    points: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(dict)
    runs = [trial_key(sweep, trial.number) for trial in trials]
    for metric in dict.fromkeys([*(objective.metric for objective in spec.objectives), *spec.bounds]):
        for run, of_metric in _points(store, spec.project, runs, metric).items():
            points[run][metric] = of_metric
    if not points:
        raise NotFound(
            f"the store {store.root} no longer has points of sweep {sweep}, so there is nothing to replay"
        )
    reached: dict[int, list[RungResultRow]] = defaultdict(list)
    for result in results:
        if result.value is not None:
            reached[result.trial].append(result)
    rates = {
        trial: sum(rung.seconds for rung in rungs) / rungs[-1].epochs
        for trial, rungs in reached.items()
        if rungs[-1].epochs
    }
    usual = 0.0
    if rates:
        usual = statistics.median(rates.values())
    return [
        curve_of(
            spec,
            points.get(trial_key(sweep, trial.number), {}),
            _end_of(spec, trial, reached),
            rates.get(trial.number, usual),
        )
        for trial in trials
    ]


def _points(
    store: Store, project: str, runs: Sequence[str], metric: str
) -> dict[str, list[tuple[int, float]]]:
    """Every ``(epoch, value)`` of each run."""
    table = curves(store, project, runs, metric, max_points=_SINGLE_POINTS)
    if any(count > 1 for count in table["count"].to_pylist()):
        table = all_points(
            sorted(set(table["run"].to_pylist())), metric, project=project, root=store, max_points=None
        )
    points: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for run, step, value in zip(*(table[name].to_pylist() for name in ("run", "step", "value")), strict=True):
        points[run].append((step, value))
    return points


def _end_of(
    spec: SweepSpec, trial: TrialRow, reached: dict[int, list[RungResultRow]]
) -> Literal["stopped", "returned", "failed"]:
    if trial.status == Status.FAILED:
        return "failed"
    if trial.status == Status.COMPLETED and reached[trial.number][-1].epochs < spec.budgets[-1]:
        return "returned"
    return "stopped"


def _peak_concurrency(attempts: Sequence[AttemptRow]) -> int:
    """The greatest number of attempts that ran at the same time; at least 1."""
    changes = [(attempt.started_at, 1) for attempt in attempts]
    changes += [(attempt.ended_at, -1) for attempt in attempts if attempt.ended_at]
    peak = 1
    running = 0
    for _, change in sorted(changes):
        running += change
        peak = max(peak, running)
    return peak


def _own_search(spec: SweepSpec, summary: SweepSummary, attempts: Sequence[AttemptRow]) -> dict[str, Any]:
    winner = next((standing for standing in summary.standings if not standing.audited), summary.standings[0])
    ends = [attempt.ended_at for attempt in attempts if attempt.ended_at]
    seconds = None
    if ends:
        seconds = (max(ends) - min(attempt.started_at for attempt in attempts)).total_seconds()
    return {
        "strategy": spec.strategy.model_dump(exclude_none=True),
        "trials": sum(summary.counts.values()) - summary.counts.get("suggested", 0),
        "completed": sum(
            standing.status == "completed" and not standing.audited for standing in summary.standings
        ),
        "epochs": summary.epochs_trained,
        "seconds": seconds,
        "worker_seconds": summary.seconds,
        "winner": winner.key,
        "winner_epochs": winner.epochs,
        "winner_objective": winner.objective,
        "place": summary.standings.index(winner) + 1,
    }
