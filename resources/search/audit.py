"""The audit: was pruning right, and how well do early rungs predict the last one?

The search's own trials cannot show it, because a stopped trial has no result at the end. So the audit
(``audit: ε`` in a spec) trains a random share of the pruned trials to the end. Its findings hold for all that
were pruned.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from resources.search.decide import pruned_trials
from resources.search.state import Result, SearchState, Status, TrialState

MIN_AUDITED = 5
"""How many audited trials a rate needs; with fewer, a single trial would decide it."""

MIN_KEPT = 3
"""How many trials that the search itself trained to the end a median needs."""

MIN_PAIRS = 8
"""How many trials with results at a rung and at the last one a correlation needs."""

MAX_FALSE_PRUNE_RATE = 0.25
"""The largest accepted false-prune rate: 0 means that pruning is always right, 0.5 that it is a coin toss."""

MIN_CORRELATION = 0.7
"""The smallest rank correlation with which a rung predicts the last one.

About half of the variance in rank is shared then.
"""


@dataclass(frozen=True)
class RungAudit:
    """The audit of one rung.

    Attributes:
        epochs: of the rung; brackets with a rung there are taken together.
        pruned: how many trials were pruned there.
        audited: how many of them were trained to the end.
        wrong: how many audited trials beat the median of the trials that the search kept.
        pairs: how many trials, also audited ones, have a result here and at the last rung.
        correlation: Spearman's rank correlation of the two results; None if there are too few pairs, or all
            results are equal.
    """

    epochs: int
    pruned: int
    audited: int
    wrong: int
    pairs: int
    correlation: float | None


@dataclass(frozen=True)
class Audit:
    """The result of the audit of a sweep's pruning.

    Attributes:
        share: ε, the share of the pruned trials that the spec asks to audit.
        kept: how many trials the search trained to the end.
        audited: how many pruned trials were trained to the end; one that failed on the way is the worst.
        wrong: how many audited trials beat the median of the kept ones.
        missed_winners: how many audited trials beat the best of the kept ones.
        best_kept, best_audited: the best objective among each; None if there is none.
        false_prune_rate: ``wrong / audited``; None if there is too little data.
        raise_to: the ``min_budget`` to use; None if it should stay as it is, or if there is too little data.
        verdict: the same in a sentence or two.
    """

    share: float
    kept: int
    audited: int
    wrong: int
    missed_winners: int
    best_kept: float | None
    best_audited: float | None
    false_prune_rate: float | None
    rungs: list[RungAudit]
    raise_to: int | None
    verdict: str = ""


def audit_of(state: SearchState) -> Audit | None:
    """The audit of a sweep; None if nothing could be pruned, because there is only one rung."""
    rules = state.rules
    if rules.early_stopping is None:
        return None
    last = rules.ladders[0][-1]
    kept = [
        trial for trial in state.trials if trial.audited is None and _value_at(state, trial, last) is not None
    ]
    checked = [
        trial
        for trial in state.trials
        if trial.audited is not None and trial.status in (Status.COMPLETED, Status.FAILED)
    ]
    best_kept = _best_result(state, kept)
    best_audited = _best_result(state, checked)
    median_loss = best_loss = float("-inf")
    if kept:
        median_loss = statistics.median(_loss(state, trial.results[-1]) for trial in kept)
        best_loss = _loss(state, best_kept)
    wrong = [trial for trial in checked if _loss(state, trial.results[-1]) < median_loss]
    enough = len(checked) >= MIN_AUDITED and len(kept) >= MIN_KEPT
    rate: float | None = None
    if enough:
        rate = len(wrong) / len(checked)
    rungs = _rungs(state, checked, wrong, last)
    raise_to: int | None = None
    if rate is not None and rate > MAX_FALSE_PRUNE_RATE:
        raise_to = _raise_to(rungs, last)
    audit = Audit(
        share=rules.audit,
        kept=len(kept),
        audited=len(checked),
        wrong=len(wrong),
        missed_winners=sum(_loss(state, trial.results[-1]) < best_loss for trial in checked),
        best_kept=best_kept.value if best_kept else None,
        best_audited=best_audited.value if best_audited else None,
        false_prune_rate=rate,
        rungs=rungs,
        raise_to=raise_to,
    )
    return replace(audit, verdict=_verdict(audit, last))


def _rungs(
    state: SearchState, checked: Sequence[TrialState], wrong: Sequence[TrialState], last: int
) -> list[RungAudit]:
    where_pruned, where_checked, where_wrong = (
        Counter(state.rules.ladder(trial.number)[len(trial.counted) - 1] for trial in trials)
        for trials in (pruned_trials(state), checked, wrong)
    )
    pairs: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for trial in state.trials:
        end = _value_at(state, trial, last)
        if end is not None:
            for epochs, result in zip(state.rules.ladder(trial.number)[:-1], trial.results, strict=False):
                if result is not None:
                    pairs[epochs].append((result.value, end))
    below = sorted({epochs for ladder in state.rules.ladders for epochs in ladder[:-1]})
    return [
        RungAudit(
            epochs,
            where_pruned[epochs],
            where_checked[epochs],
            where_wrong[epochs],
            len(pairs[epochs]),
            _spearman(pairs[epochs]),
        )
        for epochs in below
        if pairs[epochs] or where_pruned[epochs]
    ]


def _value_at(state: SearchState, trial: TrialState, epochs: int) -> float | None:
    """A trial's objective at its last rung, if that is at ``epochs`` and the trial has a result there."""
    ladder = state.rules.ladder(trial.number)
    if len(trial.results) != len(ladder) or ladder[-1] != epochs:
        return None
    result = trial.results[-1]
    if result is None:
        return None
    return result.value


def _best_result(state: SearchState, trials: Sequence[TrialState]) -> Result | None:
    """The best last result; None if there is none, or if the best trial has failed."""
    results = (trial.results[-1] for trial in trials)
    return min(results, key=lambda result: _loss(state, result), default=None)


def _loss(state: SearchState, result: Result | None) -> float:
    """A result on a scale where smaller is better; infinite if it is out of bounds or a failure."""
    if result is None or result.violation > 0:
        return float("inf")
    return -result.value if state.rules.maximize[0] else result.value


def _spearman(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation ("The proof and measurement of association between two things", 1904)."""
    if len(pairs) < MIN_PAIRS or any(len(set(side)) == 1 for side in zip(*pairs, strict=True)):
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(pairs).statistic)


def _raise_to(rungs: Sequence[RungAudit], last: int) -> int:
    """The first rung that predicts the last one, above the lowest that pruned wrongly; else the last one."""
    lowest_wrong = min(rung.epochs for rung in rungs if rung.wrong)
    above = [rung for rung in rungs if rung.epochs > lowest_wrong]
    if above and all(rung.correlation is None for rung in above):
        return above[0].epochs  # Nothing is known about these rungs, so go up by one.
    for rung in above:
        if rung.correlation is not None and rung.correlation >= MIN_CORRELATION:
            return rung.epochs
    return last


def _verdict(audit: Audit, last: int) -> str:
    if not audit.share and not audit.audited:
        return (
            "Not audited: nothing shows whether trials were pruned wrongly. Give the strategy audit: 0.1 "
            "and one in ten pruned trials is trained to the end."
        )
    if audit.false_prune_rate is None:
        return (
            f"Too little data for a verdict: {audit.audited} audited trials and {audit.kept} that the "
            f"search trained to the end, and it takes {MIN_AUDITED} and {MIN_KEPT}."
        )
    rate = f"{audit.false_prune_rate:.0%} of the audited trials beat the median of those that were kept"
    if audit.missed_winners:
        rate += (
            f", and {audit.missed_winners} beat the best of them ({audit.best_audited:.4g} against "
            f"{audit.best_kept:.4g})"
        )
    if audit.raise_to is None:
        return f"{rate}: up to {MAX_FALSE_PRUNE_RATE:.0%} is accepted. Leave min_budget where it is."
    if audit.raise_to == last:
        return (
            f"{rate}: no earlier rung predicts the last one. Train every trial to the end (strategy random "
            f"or tpe, budget: {last})."
        )
    if all(rung.correlation is None for rung in audit.rungs if rung.epochs >= audit.raise_to):
        return (
            f"{rate}: that is too many. Raise min_budget to {audit.raise_to}, the next rung, and audit again."
        )
    return (
        f"{rate}: that is too many. Raise min_budget to {audit.raise_to}, the first rung above whose ranks "
        "agree with the last one's."
    )
