"""A winner is judged against the version that is the champion when it is registered, whatever was promoted since its report."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from resources.backend import Backend
from resources.catalog.models import champion_of, versions_of
from resources.datasets.snapshots import take_snapshot
from resources.evaluation.report import EvaluationReport, load_report
from resources.execution.worker import TrialRunner, work
from resources.registry import promotion
from resources.registry.gates import GateFailed
from resources.registry.promotion import evaluate, promote_winner
from resources.registry.versions import archive
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec

GOOD, BAD = "tests.trainables:predict", "tests.trainables:predict_badly"


@pytest.fixture
def backend(either_backend: Backend) -> Backend:
    return either_backend


@pytest.fixture
def evaluated(backend: Backend, small_spec: Callable[..., SweepSpec]) -> Callable[..., EvaluationReport]:
    """A sweep of one trial that was searched and evaluated, and not yet promoted."""

    def run(predictor: str, *, passes: bool = True, **changes: Any) -> EvaluationReport:
        spec = small_spec(strategy={"random": {"budget": 1}}, max_trials=1, predictor=predictor, auto_promote=True, **changes)
        snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
        scheduler = Scheduler(backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="job", commit=None).id)
        runner = TrialRunner(scheduler, backend.store, dataset_name=snapshot.name, dataset_digest=snapshot.digest, labels={})
        work(scheduler, runner, lambda changed: None)
        report, gates = evaluate(backend, scheduler.id)
        assert all(gate.passed for gate in gates) is passes
        return report

    return run


def champion(backend: Backend) -> tuple[str, float]:
    with backend.catalog.read() as session:
        row = champion_of(session, "small")
        assert row is not None
        return row.sweep, row.metrics["accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True], ids=["without-a-champion", "with-an-old-champion"])
def test_a_worse_winner_does_not_replace_the_champion_that_was_promoted_since_its_report(
    backend: Backend, evaluated: Callable[..., EvaluationReport], known: bool
) -> None:
    if known:
        promote_winner(backend, evaluated(BAD, seed=9))
    worse, better = evaluated(BAD), evaluated(GOOD, seed=1)
    promote_winner(backend, better)
    version = "1.0.1" if known else "1.0.0"
    reason = rf"not_worse_than_champion: accuracy 0\.\d+ against 1\.0000 of the champion small {version}"
    with pytest.raises(GateFailed, match=reason):
        promote_winner(backend, worse)
    assert champion(backend) == (better.data["sweep"], 1.0)
    with backend.catalog.read() as session:
        assert worse.data["sweep"] not in {row.sweep for row in versions_of(session, "small")}
        assert backend.catalog.sweep(session, worse.data["sweep"]).status == "rejected"
    assert load_report(backend.store, backend.catalog, worse.data["sweep"]).data["champion"]["version"] == version


@pytest.mark.slow
def test_winners_promoted_at_the_same_moment_leave_the_better_one_as_champion(
    backend: Backend, evaluated: Callable[..., EvaluationReport], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = [evaluated(BAD), evaluated(GOOD, seed=1)]
    both, register, entered = Barrier(2), promotion.register, set[str]()

    def at_once(catalog: Any, new: Any, **options: Any) -> Any:
        if new.sweep not in entered:
            entered.add(new.sweep)
            both.wait()
        return register(catalog, new, **options)

    monkeypatch.setattr(promotion, "register", at_once)
    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(promote_winner, backend, report) for report in reports]
    assert ended[1].exception() is None
    assert isinstance(ended[0].exception(), GateFailed | None)
    assert champion(backend) == (reports[1].data["sweep"], 1.0)


@pytest.mark.slow
def test_a_winner_judged_against_a_champion_that_was_archived_becomes_the_champion(
    backend: Backend, evaluated: Callable[..., EvaluationReport]
) -> None:
    promote_winner(backend, evaluated(GOOD))
    report = evaluated(GOOD, seed=1)
    archive(backend.catalog, "small", "1.0.0")
    row, made_again = promote_winner(backend, report)
    assert (row.stage, row.report) == ("champion", made_again.digest)
    assert (report.data["champion"]["version"], made_again.data["champion"]) == ("1.0.0", None)


@pytest.mark.slow
def test_a_winner_rejected_for_a_champion_that_was_archived_since_becomes_the_champion(
    backend: Backend, evaluated: Callable[..., EvaluationReport]
) -> None:
    promote_winner(backend, evaluated(GOOD))
    report = evaluated(BAD, passes=False, seed=1)
    with pytest.raises(GateFailed, match="not_worse_than_champion"):
        promote_winner(backend, report)
    archive(backend.catalog, "small", "1.0.0")
    row, _ = promote_winner(backend, report)
    assert (row.stage, row.sweep) == ("champion", report.data["sweep"])
    assert promote_winner(backend, report)[0].version == row.version, "and the same report finds it again"
