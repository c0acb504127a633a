"""The final training in a report: every seed judged on the same rows, their spread, and the median seed.

The seeds are samples of one training procedure, whose expected result is their mean (Bouthillier et al.,
"Accounting for Variance in Machine Learning Benchmarks", MLSys 2021, section 2). The median seed is promoted,
not the best one. Choosing the best on the test split would make its score too good, while the median's score
is as likely too bad as too good.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from halving.errors import InvalidInput
from resources.analysis.final_trials import FinalTrial
from resources.analysis.reasons import short_reason
from resources.analysis.summary import Standing, SweepSummary
from resources.evaluation.predictor_calls import PredictionFailed
from resources.evaluation.scoring import Scores
from resources.search.state import Status


@dataclass(frozen=True)
class FinalSeeds:
    """The result of a final training.

    Attributes:
        data: plain data for the report; see :func:`judge_seeds`.
        promotable: the median seed as the report's winner; None if no seed is complete.
    """

    data: dict[str, Any]
    promotable: Standing | None


def judge_seeds(summary: SweepSummary, on: list[str], evaluate: Callable[[FinalTrial], Scores]) -> FinalSeeds:
    """Score every seed that is complete, and choose the median one.

    The report gets ``planned`` (seeds), ``on``, ``winner`` (the search's trial whose params were trained),
    ``metric`` (by which the median is chosen), ``mean`` and ``std`` (of each metric over the complete seeds;
    the sample standard deviation, None with one seed), ``seeds`` (each with ``seed``, ``key``, ``status``,
    ``epochs``, ``seconds``, ``metrics`` and ``error``), ``promotable`` (the median's key, or None) and
    ``missing`` (what became of each seed that is not complete or could not be judged, in words). A metric
    that an evaluator did not give for each of them has NaN for its mean.

    Args:
        summary: of the sweep; it has a winner.
        on: the splits that were trained on.
        evaluate: scores of a complete seed's checkpoint on the test split; their main metric is the one that
            versions are compared by.
    """
    best = summary.standings[0]
    scored = dict[str, Scores]()
    unjudged = dict[str, str]()
    for trial in summary.final:
        if trial.complete:
            try:
                scored[trial.key] = evaluate(trial)
            except (PredictionFailed, InvalidInput) as error:
                # The other seeds can still be judged. A store that is away is not caught: it is no seed's
                # fault.
                unjudged[trial.key] = str(error)
    metrics = {key: scores.metrics for key, scores in scored.items()}
    median = _median([trial for trial in summary.final if trial.key in scored], scored)
    metric = None
    if scored:
        metric = _main_metric(scored)
    promotable = None
    winner = None
    if median:
        promotable = median.key
        winner = _as_winner(best, median)
    values = _by_metric(metrics)
    data = {
        "planned": summary.final_seeds,
        "on": on,
        "winner": best.key,
        "metric": metric,
        "mean": {name: statistics.fmean(of_seeds) for name, of_seeds in values.items()},
        "std": {name: _deviation(of_seeds) for name, of_seeds in values.items()},
        "seeds": [
            _seed_data(trial, metrics.get(trial.key), unjudged.get(trial.key)) for trial in summary.final
        ],
        "promotable": promotable,
        "missing": _missing(summary, unjudged),
    }
    return FinalSeeds(data, winner)


def _median(trials: Sequence[FinalTrial], scored: Mapping[str, Scores]) -> FinalTrial | None:
    """The middle trial by its main metric; None if there are none.

    Of an even number it is the worse of the two in the middle. Scores that are not finite are the worst.
    """
    if not trials:
        return None

    def loss(trial: FinalTrial) -> tuple[float, int]:
        scores = scored[trial.key]
        metric = _main_metric(scored)
        value = scores.metrics.get(metric, math.nan)
        if not math.isfinite(value):
            return math.inf, trial.seed
        if scores.higher_is_better[metric]:
            value = -value
        return value, trial.seed

    return sorted(trials, key=loss)[len(trials) // 2]


def _main_metric(scored: Mapping[str, Scores]) -> str:
    """The main metric of the first seed, used for all, because an evaluator may give them different ones."""
    return next(iter(scored.values())).main_metric


def _as_winner(best: Standing, median: FinalTrial) -> Standing:
    """Make the winner of the median seed.

    Its own metrics on the validation split say nothing, because it was trained on that split. So the
    objective, and the metrics with bounds, stay those of the search's trial with the same params.
    """
    trained = ("trial", "key", "status", "epochs", "attempts", "preemptions", "seconds", "checkpoint")
    return replace(best, **{name: getattr(median, name) for name in trained})


def _by_metric(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, list[float]]:
    names = dict.fromkeys(name for of_seed in metrics.values() for name in of_seed)
    return {name: [of_seed.get(name, math.nan) for of_seed in metrics.values()] for name in names}


def _deviation(values: list[float]) -> float | None:
    if len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    return statistics.stdev(values)


def _seed_data(trial: FinalTrial, metrics: dict[str, float] | None, unjudged: str | None) -> dict[str, Any]:
    copied = ("seed", "key", "status", "epochs", "attempts", "seconds")
    data = {name: getattr(trial, name) for name in copied}
    error = unjudged
    if not trial.complete:
        error = _reason(trial)
    return {**data, "metrics": metrics, "error": error}


def _missing(summary: SweepSummary, unjudged: Mapping[str, str]) -> list[str]:
    """Why seeds are not complete or could not be judged, a sentence for each."""
    problems = []
    for trial in summary.final:
        seed = f"seed {trial.seed + 1} ({trial.key})"
        if trial.status == Status.FAILED:
            problems.append(f"{seed} {trial.status}: {_reason(trial)}")
        elif not trial.complete:
            problems.append(f"{seed} is {trial.status}")
        elif trial.key in unjudged:
            problems.append(f"{seed} could not be judged: {unjudged[trial.key]}")
    begun = len(summary.final)
    if begun < summary.final_seeds:
        rest = f"seed {summary.final_seeds}"
        if begun + 1 < summary.final_seeds:
            rest = f"seeds {begun + 1} to {summary.final_seeds}"
        problems.append(f"{rest}: not begun, {_why_not_begun(summary)}")
    return problems


def _why_not_begun(summary: SweepSummary) -> str:
    if summary.control == "stop":
        return "because the sweep was stopped"
    if summary.standings[0].violation > 0:
        return "because no trial is within its bounds"
    return "because the search is not over"


def _reason(trial: FinalTrial) -> str:
    return short_reason(trial.error) or "no reason was recorded"
