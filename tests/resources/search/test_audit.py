"""What the audit says of pruning, on searches where it is known whether pruning was right."""

from collections.abc import Callable, Sequence

import pytest

from resources.search.audit import MIN_AUDITED, Audit, audit_of
from resources.search.state import Halving, MedianStop, Result, Rules, SearchState, Status, TrialState

ASHA = Rules(ladders=((1, 3, 9),), maximize=(True,), early_stopping=Halving(3), audit=0.5)


def kept_trial(number: int, *values: float) -> TrialState:
    return TrialState(number, Status.COMPLETED, tuple(Result((value,)) for value in values))


def audited_trial(number: int, pruned_at: int, *values: float | None) -> TrialState:
    results = tuple(Result((value,)) if value is not None else None for value in values)
    status = Status.FAILED
    if results[-1]:
        status = Status.COMPLETED
    return TrialState(number, status, results, audited=pruned_at)


def paused_trial(number: int, *values: float) -> TrialState:
    return TrialState(number, Status.PAUSED, tuple(Result((value,)) for value in values))


def audit(trials: Sequence[Callable[[int], TrialState]], rules: Rules = ASHA) -> Audit:
    result = audit_of(SearchState(rules, len(trials), [make(number) for number, make in enumerate(trials)]))
    assert result is not None
    return result


def same_order(count: int) -> list[Callable[[int], TrialState]]:
    """Kept trials, best first at every rung."""
    return [
        lambda n, worse=worse: kept_trial(n, 0.90 - worse / 100, 0.92 - worse / 100, 0.95 - worse / 100)
        for worse in range(count)
    ]


def test_pruning_is_right_and_min_budget_stays_if_early_results_predict_late_ones() -> None:
    pruned = [
        lambda n, worse=worse: audited_trial(n, 1, 0.5 - worse / 100, 0.6 - worse / 100, 0.7 - worse / 100)
        for worse in range(8)
    ]
    result = audit([*same_order(4), *pruned])
    assert (result.kept, result.audited, result.wrong, result.false_prune_rate, result.raise_to) == (
        4,
        8,
        0,
        0.0,
        None,
    )
    assert [rung.correlation for rung in result.rungs] == pytest.approx([1.0, 1.0])
    assert "Leave min_budget where it is" in result.verdict


def test_min_budget_rises_to_the_first_rung_that_predicts_the_last() -> None:
    # Pruned after 1 epoch, where they looked worst; after 3 epochs they are what they are in the end.
    late = [
        lambda n, better=better: audited_trial(
            n, 1, 0.5 - better / 100, 0.93 + better / 100, 0.96 + better / 100
        )
        for better in range(6)
    ]
    result = audit([*same_order(4), *late])
    assert (result.wrong, result.missed_winners, result.false_prune_rate, result.raise_to) == (6, 6, 1.0, 3)
    assert result.rungs[0].correlation is not None
    assert result.rungs[0].correlation < 0 < 0.9 < (result.rungs[1].correlation or 0)
    assert "Raise min_budget to 3" in result.verdict
    assert "6 beat the best of them (1.01 against 0.95)" in result.verdict


def test_where_no_rung_predicts_the_last_early_stopping_is_advised_against() -> None:
    late = [
        lambda n, better=better: audited_trial(
            n, 1, 0.5 - better / 100, 0.6 - better / 100, 0.96 + better / 100
        )
        for better in range(6)
    ]
    result = audit([*same_order(4), *late])
    assert result.raise_to == 9
    assert "Train every trial to the end" in result.verdict


def test_too_few_audited_or_kept_trials_give_no_rate_but_say_so() -> None:
    few = [lambda n: audited_trial(n, 1, 0.5, 0.9, 0.99)] * (MIN_AUDITED - 1)
    result = audit([*same_order(4), *few])
    assert (result.false_prune_rate, result.raise_to) == (None, None)
    assert "Too little data for a verdict: 4 audited trials and 4" in result.verdict
    assert audit([*same_order(1), *few, *few]).false_prune_rate is None
    assert all(rung.correlation is None for rung in audit(same_order(4)).rungs)


def test_without_an_audit_the_verdict_says_how_to_have_one() -> None:
    result = audit(
        [*same_order(4), lambda n: paused_trial(n, 0.1)],
        Rules(ladders=((1, 3, 9),), maximize=(True,), early_stopping=Halving(3)),
    )
    assert "Give the strategy audit: 0.1" in result.verdict
    assert result.rungs[0].pruned == 1


def test_a_trial_that_failed_in_its_audit_was_rightly_pruned() -> None:
    failed = [lambda n: audited_trial(n, 1, 0.5, None)] * 5
    result = audit([*same_order(4), *failed])
    assert (result.audited, result.wrong, result.missed_winners) == (5, 0, 0)


def test_a_trial_out_of_bounds_never_beats_the_kept_ones() -> None:
    def out(number: int) -> TrialState:
        return TrialState(
            number,
            Status.COMPLETED,
            (Result((0.5,)), Result((0.9,)), Result((0.99,), violation=1.0)),
            audited=1,
        )

    assert audit([*same_order(4), *[out] * 5]).wrong == 0


def test_smaller_is_better_where_the_objective_is_minimised() -> None:
    rules = Rules(ladders=((1, 3, 9),), maximize=(False,), early_stopping=MedianStop(3, 0.5), audit=0.5)
    better = [lambda n: audited_trial(n, 2, 3.0, 2.0, 0.1)] * 5
    result = audit([*[lambda n: kept_trial(n, 1.0, 0.8, 0.5)] * 3, *better], rules)
    assert (result.wrong, result.best_kept, result.best_audited) == (5, 0.5, 0.1)
    assert [rung.wrong for rung in result.rungs] == [0, 5]


def test_rungs_of_several_brackets_with_the_same_epochs_are_taken_together() -> None:
    rules = Rules(
        ladders=((1, 3, 9), (3, 9)), weights=(1, 1), maximize=(True,), early_stopping=Halving(3), audit=0.5
    )
    trials = [lambda n: kept_trial(n, *[0.1 * n] * len(rules.ladder(n)))] * 10
    assert [(rung.epochs, rung.pairs) for rung in audit(trials, rules).rungs] == [(1, 5), (3, 10)]


def test_a_strategy_that_prunes_nobody_has_no_audit() -> None:
    assert audit_of(SearchState(Rules(ladders=((9,),)), 1, [kept_trial(0, 0.5)])) is None
