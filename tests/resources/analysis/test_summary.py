"""The summary adds up: whoever reached a rung went on or is somewhere, and what was not trained was saved."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from halving.trial.messages import ReachedRung
from resources.analysis.strategy_replay import NotReplayable, read_strategy, replay_sweep
from resources.analysis.summary import SweepSummary, outcome, summarize
from resources.backend import Backend
from resources.catalog import Catalog
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import stop_sweep
from resources.sweep_spec import SweepSpec
from tests.searches import search

Spec = Callable[..., SweepSpec]


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float]:
    return {"score": (1 - (params["x"] - 0.5) ** 2) * (1 - 0.5**epochs), "latency_ms": 100 * params["x"]}


def asha(**changes: Any) -> dict[str, Any]:
    return {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 9, **changes}}


def check_rungs(summary: SweepSummary) -> None:
    for rung in summary.rungs:
        assert rung.reached == rung.promoted + rung.paused + rung.stopped + rung.completed + rung.failed
    for rung, following in itertools.pairwise(summary.rungs):
        if rung.bracket == following.bracket:
            assert rung.promoted == following.reached


def test_rungs_of_every_bracket_add_up_and_epochs_are_trained_or_saved(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec(
        strategy={"hyperband": {"min_budget": 1, "max_budget": 9}}, max_trials=20, resources={"gpus": 2}
    )
    summary = summarize(backend.catalog, search(backend, spec, score, seconds=3.0))
    check_rungs(summary)
    assert {(rung.bracket, rung.rung): rung.epochs for rung in summary.rungs} == {
        (0, 0): 1, (0, 1): 3, (0, 2): 9, (1, 0): 3, (1, 1): 9, (2, 0): 9
    }  # fmt: skip
    assert sum(rung.reached for rung in summary.rungs if rung.rung == 0) == 20
    assert summary.epochs_full == 20 * 9
    assert summary.epochs_trained == sum(standing.epochs for standing in summary.standings) < 180
    assert summary.seconds == 3 * summary.epochs_trained
    assert summary.seconds_saved == pytest.approx(3 * (180 - summary.epochs_trained))
    assert summary.gpu_seconds == pytest.approx(2 * summary.seconds)
    assert summary.gpu_seconds_saved == pytest.approx(2 * summary.seconds_saved)


def test_gpu_seconds_count_the_gpus_of_each_rung(backend: Backend, small_spec: Spec) -> None:
    spec = small_spec(
        strategy=asha(),
        max_trials=9,
        resources={"gpus": {1: 1, 3: 2, 9: 4}, "nodes": {1: 1, 9: 2}},
        image="train",
    )
    summary = summarize(backend.catalog, search(backend, spec, score, seconds=3.0))
    reached = [rung.reached for rung in summary.rungs]
    assert summary.gpu_seconds == pytest.approx(
        3.0 * (1 * 1 * reached[0] + 2 * 2 * reached[1] + 6 * 8 * reached[2])
    )
    left = [rung.paused * (9 - rung.epochs) for rung in summary.rungs]
    assert summary.gpu_seconds_saved == pytest.approx(3.0 * (1 * left[0] + 2 * left[1]))


def test_what_the_audit_trained_is_not_the_searchs(backend: Backend, small_spec: Spec) -> None:
    without_audit = summarize(
        backend.catalog, search(backend, small_spec(strategy=asha(), max_trials=12), score)
    )
    summary = summarize(
        backend.catalog, search(backend, small_spec(strategy=asha(audit=0.4), max_trials=12), score)
    )
    check_rungs(summary)
    assert (summary.epochs_trained, summary.epochs_full, summary.rungs) == (
        without_audit.epochs_trained,
        without_audit.epochs_full,
        without_audit.rungs,
    )
    assert summary.audited > 0
    assert (
        summary.audit_epochs
        == sum(standing.epochs for standing in summary.standings) - summary.epochs_trained
        > 0
    )
    assert (summary.seconds, summary.audit_seconds) == (summary.epochs_trained, summary.audit_epochs)
    assert without_audit.audit_epochs == without_audit.audit_seconds == without_audit.audited == 0


def test_the_winner_is_within_bounds_whatever_lies_beyond(backend: Backend, small_spec: Spec) -> None:
    spec = small_spec(bounds={"latency_ms": {"max": 40}}, strategy={"random": {"budget": 3}}, max_trials=12)
    summary = summarize(backend.catalog, search(backend, spec, score))
    assert summary.best is not None
    assert summary.best.violation == 0
    assert summary.best.metrics["latency_ms"] <= 40
    assert (
        0 < summary.infeasible == sum(standing.metrics["latency_ms"] > 40 for standing in summary.standings)
    )
    assert max(summary.standings, key=lambda standing: standing.objective).violation > 0


def test_trials_on_the_front_come_first_where_there_are_several_objectives(
    backend: Backend, small_spec: Spec
) -> None:
    others = [{"metric": "latency_ms", "direction": "minimize"}]
    spec = small_spec(other_objectives=others, strategy={"random": {"budget": 3}}, max_trials=12)
    summary = summarize(backend.catalog, search(backend, spec, score))
    marked = [standing.on_front for standing in summary.standings]
    assert marked == sorted(marked, reverse=True)
    assert 1 < sum(marked) < 12
    assert [objective["metric"] for objective in summary.objectives] == ["score", "latency_ms"]


def test_the_best_epochs_checkpoint_is_the_winners_only_where_the_best_counts(
    backend: Backend, small_spec: Spec
) -> None:
    for how, wanted in (("best", "sha256:best"), ("end", "sha256:last")):
        objective = {"metric": "score", "direction": "maximize", "summary": how}
        sweep = search(backend, small_spec(objective=objective, max_trials=1, seed=len(how)), score, limit=0)
        scheduler = Scheduler(backend.catalog, sweep)
        (assignment,) = scheduler.claimed_attempts()
        scheduler.report_rung(assignment, ReachedRung(1, {"score": 0.9}, "sha256:last", "sha256:best"), 1.0)
        best = summarize(backend.catalog, sweep).best
        assert best is not None
        assert best.checkpoint == wanted


def test_failed_trials_are_neither_trained_nor_saved(backend: Backend, small_spec: Spec) -> None:
    def fails_late(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float] | None:
        return None if trial % 2 or epochs > 1 else {"score": 0.9 - trial / 100}

    summary = summarize(backend.catalog, search(backend, small_spec(max_trials=8, max_retries=0), fails_late))
    check_rungs(summary)
    assert len(summary.failed) >= 4
    assert sum(rung.failed for rung in summary.rungs) == len(summary.failed)
    stopped = sum(standing.status == "paused" for standing in summary.standings)
    assert summary.epochs_trained == len(summary.standings)
    assert summary.epochs_full == summary.epochs_trained + 8 * stopped


def test_a_sweep_in_the_middle_and_one_that_is_stopped_add_up_too(backend: Backend, small_spec: Spec) -> None:
    sweep = search(backend, small_spec(strategy=asha(sampler="tpe"), max_trials=9), score, limit=4)
    running = summarize(backend.catalog, sweep)
    assert (running.status, running.planned, running.counts["running"]) == ("searching", 9, 1)
    for rung in running.rungs:
        assert rung.reached == rung.promoted + rung.paused + rung.stopped + rung.completed + rung.failed
    stop_sweep(backend.catalog, sweep)
    scheduler = Scheduler(backend.catalog, sweep)
    (assignment,) = scheduler.claimed_attempts()
    scheduler.release(assignment, 1.0)
    scheduler.next_work("w")
    stopped = summarize(backend.catalog, sweep)
    check_rungs(stopped)
    assert stopped.counts["stopped"] == 1


def test_a_status_is_told_in_a_word() -> None:
    assert outcome("paused", audited=False, searching=True) == "paused"
    assert outcome("paused", audited=False, searching=False) == "stopped"
    assert outcome("completed", audited=True, searching=False) == "audited"
    assert outcome("failed", audited=True, searching=False) == "audited, failed"


def replay_on(backend: Backend, sweep: str, *strategies: Any) -> dict[str, Any]:
    return replay_sweep(backend.store, backend.catalog, sweep, strategies)


def test_a_sweep_replayed_under_its_own_strategy_spends_and_finds_what_it_did(
    backend: Backend, small_spec: Spec
) -> None:
    spec = small_spec(strategy=asha(), max_trials=4, concurrency=1)
    replay = replay_on(
        backend, search(backend, spec, score, seconds=2.0, curves=True), {"asha": {"min_budget": 1}}, "random"
    )
    itself = replay["itself"]
    same, full = replay["replayed"]
    for name in (
        "trials",
        "completed",
        "epochs",
        "worker_seconds",
        "winner",
        "winner_epochs",
        "winner_objective",
        "place",
    ):
        expected = itself[name]
        if isinstance(expected, float):
            expected = pytest.approx(expected)
        assert same[name] == expected
    assert (same["unknown_epochs"], same["place"], replay["workers"]) == (0, 1, 1)
    assert (full["epochs"], full["unknown_epochs"]) == (36, 36 - itself["epochs"])


def test_a_sweep_that_cannot_be_replayed_says_why(backend: Backend, small_spec: Spec) -> None:
    searching = search(backend, small_spec(), score, limit=2)
    with pytest.raises(
        NotReplayable, match=f"sweep {searching} is still searching: replay it when its search is over"
    ):
        replay_on(backend, searching, "asha")
    failed = search(backend, small_spec(max_trials=1, seed=1), lambda *_: None)
    with pytest.raises(NotReplayable, match="has no trial with a result"):
        replay_on(backend, failed, "asha")
    without = search(backend, small_spec(max_trials=1, seed=2), score)
    with pytest.raises(LookupError, match="no longer has points of sweep"):
        replay_on(backend, without, "asha")
    with pytest.raises(LookupError, match="no sweep 'nope'"):
        replay_on(backend, "nope", "asha")


@pytest.mark.parametrize(
    ("text", "meant"), [("hyperband", "hyperband"), ("asha: {min_budget: 3}", {"asha": {"min_budget": 3}})]
)
def test_a_strategy_is_written_as_in_a_spec(text: str, meant: Any) -> None:
    assert read_strategy(text) == meant


def test_text_that_is_no_yaml_is_refused_in_a_line() -> None:
    with pytest.raises(
        ValueError, match=r"^strategy = '\[a' is not YAML: [^\n]*; give a name, or 'asha: \{min_budget: 3\}'$"
    ):
        read_strategy("[a")


def test_summaries_of_large_sweeps_stay_quick(
    backend: Backend, small_spec: Spec, catalog_reads: Callable[[Catalog], list[str]]
) -> None:
    sweep = search(backend, small_spec(strategy={"random": {"budget": 1}}, max_trials=40), score)
    statements = catalog_reads(backend.catalog)
    summarize(backend.catalog, sweep)
    assert len(statements) < 12  # none for each trial


@pytest.fixture
def catalog_reads() -> Callable[[Catalog], list[str]]:
    from sqlalchemy import event

    def watch(catalog: Catalog) -> list[str]:
        statements: list[str] = []
        event.listen(catalog.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
        return statements

    return watch
