"""The final training is judged seed by seed: mean, spread, and the median one, which is promoted; what is
missing is named.
"""

import io
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from halving.checkpoints.serialization import unpack
from halving.errors import StoreUnavailable
from halving.models.model import trained_run
from halving.records.run_record import RunRecords
from resources.analysis.final_trials import FinalTrial
from resources.analysis.summary import SweepSummary, summarize
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.evaluation.final_seeds import FinalSeeds, judge_seeds
from resources.evaluation.predictor_calls import PredictionFailed
from resources.evaluation.report import evaluate_sweep
from resources.evaluation.scoring import Scores
from resources.execution.worker import TrialRunner, work
from resources.registry.artifacts import manifest_of_winner
from resources.registry.gates.verdict import GateFailed
from resources.registry.promotion import promote_winner
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.sweeps import open_sweep
from resources.search.decide import Wait
from resources.sweep_spec import SweepSpec
from tests.searches import search

Spec = Callable[..., SweepSpec]


@pytest.fixture
def summary(backend: Backend, small_spec: Spec) -> SweepSummary:
    """Of a sweep with three seeds."""
    spec = small_spec(strategy={"random": {"budget": 3}}, max_trials=2, final={"seeds": 3, "epochs": 5})
    return summarize(
        backend.catalog, search(backend, spec, lambda trial, params, epochs: {"score": params["x"]})
    )


def judge_with(summary: SweepSummary, values: list[float], metric: str = "accuracy") -> FinalSeeds:
    def evaluate(trial: FinalTrial) -> Scores:
        higher = {metric: metric != "rmse", "other": True}
        return Scores(
            {metric: values[trial.seed], "other": 1.0},
            intervals={},
            higher_is_better=higher,
            main_metric=metric,
        )

    return judge_seeds(summary, ["train", "validation"], evaluate)


def seeds(summary: SweepSummary, *status: str) -> SweepSummary:
    """With so many seeds, in these states."""
    done = summary.final[0]

    def seed_trial(seed: int, status: str) -> FinalTrial:
        kept = done.checkpoint if status == "completed" else ""
        error = "Traceback …\nRuntimeError: boom\n" if status == "failed" else None
        return replace(
            done, seed=seed, key=f"s.{seed}", trial=seed + 2, status=status, checkpoint=kept, error=error
        )

    return replace(summary, final=[seed_trial(seed, each) for seed, each in enumerate(status)])


@pytest.mark.parametrize(
    ("values", "metric", "median"),
    [
        ([0.9, 0.7, 0.8], "accuracy", 2),
        ([0.9, 0.7, 0.8], "rmse", 2),
        ([0.9], "accuracy", 0),
        ([0.9, 0.7], "accuracy", 1),  # of two the worse
        ([0.9, 0.7], "rmse", 0),
        ([0.9, 0.7, 0.8, 0.6], "accuracy", 1),
        ([0.9, math.nan, 0.8], "accuracy", 2),  # what is not finite is the worst
        ([0.5, 0.5, 0.5], "accuracy", 1),
    ],
)
def test_the_median_seed_is_chosen_and_of_two_in_the_middle_the_worse(
    summary: SweepSummary, values: list[float], metric: str, median: int
) -> None:
    final = judge_with(seeds(summary, *["completed"] * len(values)), values, metric)
    assert final.data["promotable"] == f"s.{median}"


def test_the_report_has_every_seed_their_mean_and_their_sample_deviation(summary: SweepSummary) -> None:
    final = judge_with(seeds(summary, "completed", "completed", "completed"), [0.9, 0.7, 0.8])
    data = final.data
    assert data["mean"] == pytest.approx({"accuracy": 0.8, "other": 1.0})
    assert data["std"] == pytest.approx({"accuracy": 0.1, "other": 0.0})
    assert [seed["metrics"]["accuracy"] for seed in data["seeds"]] == [0.9, 0.7, 0.8]
    assert (data["planned"], data["on"], data["metric"], data["missing"]) == (
        3,
        ["train", "validation"],
        "accuracy",
        [],
    )
    assert judge_with(seeds(summary, "completed"), [0.9]).data["std"] == {"accuracy": None, "other": None}
    nan = judge_with(seeds(summary, "completed", "completed"), [math.nan, 0.8]).data
    assert math.isnan(nan["mean"]["accuracy"])
    assert math.isnan(nan["std"]["accuracy"])


def test_the_median_takes_the_winners_place_and_keeps_the_searchs_objective(
    summary: SweepSummary,
) -> None:
    final = judge_with(seeds(summary, "completed", "completed", "completed"), [0.9, 0.7, 0.8])
    best = summary.standings[0]
    promotable = final.promotable
    assert promotable is not None
    assert (promotable.key, promotable.epochs, promotable.checkpoint) == (
        "s.2",
        5,
        summary.final[0].checkpoint,
    )
    assert (promotable.params, promotable.objective, promotable.metrics) == (
        best.params,
        best.objective,
        best.metrics,
    )


def test_what_is_missing_is_named_with_its_reason_and_one_complete_seed_is_enough(
    summary: SweepSummary,
) -> None:
    final = judge_with(seeds(summary, "failed", "completed"), [0.0, 0.8])
    assert final.data["promotable"] == "s.1"
    assert final.data["missing"] == [
        "seed 1 (s.0) failed: RuntimeError: boom",
        "seed 3: not begun, because the search is not over",
    ]
    none = judge_with(replace(seeds(summary, "stopped"), control="stop"), [])
    assert (none.promotable, none.data["promotable"], none.data["mean"]) == (None, None, {})
    assert none.data["missing"] == [
        "seed 1 (s.0) is stopped",
        "seeds 2 to 3: not begun, because the sweep was stopped",
    ]


def test_a_seed_that_cannot_be_judged_is_named_and_the_others_are_judged(summary: SweepSummary) -> None:
    def evaluate(trial: FinalTrial) -> Scores:
        if trial.seed == 1:
            raise PredictionFailed("predictor m:f was killed by SIGKILL")
        return Scores(
            {"accuracy": 0.8}, intervals={}, higher_is_better={"accuracy": True}, main_metric="accuracy"
        )

    data = judge_seeds(seeds(summary, "completed", "completed", "completed"), ["train"], evaluate).data
    assert data["missing"] == ["seed 2 (s.1) could not be judged: predictor m:f was killed by SIGKILL"]
    assert [seed["error"] for seed in data["seeds"]] == [None, "predictor m:f was killed by SIGKILL", None]
    assert (data["promotable"], data["mean"]) == ("s.2", {"accuracy": 0.8})


def test_a_store_that_is_away_is_no_fault_of_a_seed(summary: SweepSummary) -> None:
    def evaluate(trial: FinalTrial) -> Scores:
        raise StoreUnavailable("the store does not answer")

    with pytest.raises(StoreUnavailable):
        judge_seeds(seeds(summary, "completed"), ["train"], evaluate)


def test_metrics_that_an_evaluator_gives_for_some_seeds_only_have_no_mean(summary: SweepSummary) -> None:
    def evaluate(trial: FinalTrial) -> Scores:
        metrics = [{"bleu": 0.5, "first": 1.0}, {"second": 1.0, "bleu": 0.7}, {"second": 1.0}][trial.seed]
        return Scores(
            metrics,
            intervals={},
            higher_is_better=dict.fromkeys(metrics, True),
            main_metric=next(iter(metrics)),
        )

    data = judge_seeds(seeds(summary, "completed", "completed", "completed"), ["train"], evaluate).data
    assert (data["metric"], data["promotable"]) == ("bleu", "s.0"), "what is not given is the worst"
    assert all(math.isnan(data["mean"][name]) for name in ("bleu", "first", "second"))


def search_sweep(backend: Backend, spec: SweepSpec) -> str:
    """Search a spec and carry out its final training in this process; give the sweep."""
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="job", commit=None).id
    )
    runner = TrialRunner(
        scheduler, backend.store, dataset_name=snapshot.name, dataset_digest=snapshot.digest, labels={}
    )
    work(scheduler, runner, lambda changed: None)
    return scheduler.id


@pytest.mark.slow
def test_any_trainable_trains_on_both_splits_and_a_failed_seed_is_in_the_report(
    backend: Backend, small_spec: Spec
) -> None:
    fields: dict[str, Any] = {
        "strategy": {"random": {"budget": 2}},
        "max_trials": 1,
        "final": {"seeds": 3, "epochs": 4},
        "max_retries": 0,
    }
    spec = small_spec(
        trainable="tests.trainables:train_counting", predictor="tests.trainables:predict_counted", **fields
    )
    sweep = search_sweep(backend, spec)
    report = evaluate_sweep(backend.store, backend.catalog, sweep)
    final = report.data["final"]
    splits = report.data["snapshot"]["splits"]
    assert [seed["status"] for seed in final["seeds"]] == ["completed", "failed", "completed"]
    assert final["missing"] == [f"seed 2 ({sweep}.0002) failed: RuntimeError: this seed cannot be trained"]
    assert final["mean"]["accuracy"] == 1.0  # the predictor's train split is the one that was trained on
    assert report.data["winner"]["key"] == final["promotable"] == f"{sweep}.0003"
    record = RunRecords(backend.store, "small", f"{sweep}.0003").read()
    assert (record["parent"]["final"], record["trial"]["train_on"]) == (2, ["train", "validation"])
    assert record["seed"] != RunRecords(backend.store, "small", f"{sweep}.0001").read()["seed"]
    page = backend.store.get_blob(report.html_digest).decode()
    for said in (
        "The final training",
        "the median",
        "1.0000 ± 0.0000",
        f"seed 2 ({sweep}.0002) failed",
        "train and validation",
    ):
        assert said in page
    assert "Final training: accuracy 1.0000 ± 0.0000 over 2 seeds" in report.preview
    loaded = trained_run(backend.store, manifest_of_winner(backend.store, report))
    assert loaded.dataset.train_on == ("train", "validation")  # as where it was judged
    row, _ = promote_winner(backend, report)
    assert (row.run, row.trial) == (f"{sweep}.0003", 3)
    assert splits["train"] + splits["validation"] == 90 - splits["test"]
    # The next sweep judges this champion as it was trained: on both splits.
    sweep_without = search_sweep(
        backend,
        small_spec(
            trainable=spec.trainable, predictor=spec.predictor, strategy=spec.strategy, max_trials=1, seed=1
        ),
    )
    champion = evaluate_sweep(backend.store, backend.catalog, sweep_without).data["champion"]
    assert (champion["version"], champion["metrics"]["accuracy"]) == ("1.0.0", 1.0)


@pytest.mark.slow
def test_a_seed_whose_process_is_killed_goes_on_from_its_checkpoint(
    backend: Backend, small_spec: Spec
) -> None:
    settings: dict[str, Any] = {
        "strategy": {"random": {"budget": 1}},
        "max_trials": 1,
        "final": {"seeds": 2, "epochs": 4},
    }
    sweep = search_sweep(backend, small_spec(trainable="tests.trainables:train_crashing", **settings))
    final = evaluate_sweep(backend.store, backend.catalog, sweep).data["final"]
    assert [(seed["status"], seed["epochs"]) for seed in final["seeds"]] == [("completed", 4)] * 2
    for seed in final["seeds"]:
        saved = RunRecords(backend.store, "small", seed["key"]).checkpoints()
        assert [(each.epoch, each.attempt) for each in (saved[0], saved[-1])] == [(1, 1), (4, 2)], (
            "killed in the second epoch"
        )
        weights = unpack(io.BytesIO(backend.store.get_blob(saved[-1].digest)), {"epochs_seen": None})
        assert weights["epochs_seen"] == [1, 2, 3, 4], "none is missing, and none there twice"


@pytest.mark.slow
def test_without_a_complete_seed_the_search_is_reported_and_nothing_is_promoted(
    backend: Backend, small_spec: Spec
) -> None:
    fields: dict[str, Any] = {
        "strategy": {"random": {"budget": 2}},
        "max_trials": 1,
        "final": {"seeds": 1},
        "gates": ["finite_metrics"],
    }
    spec = small_spec(trainable="tests.trainables:train", **fields)
    snapshot = take_snapshot(backend.store, backend.catalog, spec.dataset)
    scheduler = Scheduler(
        backend.catalog, open_sweep(backend.catalog, spec, snapshot.digest, driver="job", commit=None).id
    )
    runner = TrialRunner(
        scheduler, backend.store, dataset_name=snapshot.name, dataset_digest=snapshot.digest, labels={}
    )
    runner.run(scheduler.next_work("w"), lambda changed: None)  # type: ignore[arg-type]
    failed = scheduler.next_work("w")
    assert not isinstance(failed, Wait)
    scheduler.report_failure(failed, "RuntimeError: boom", 1.0, None)  # type: ignore[arg-type]
    scheduler.next_work("w")
    report = evaluate_sweep(backend.store, backend.catalog, scheduler.id)
    assert report.data["winner"]["key"] == f"{scheduler.id}.0000"
    assert report.data["metrics"]["accuracy"] == 1.0
    assert (
        "No seed is complete, so nothing is promoted" in backend.store.get_blob(report.html_digest).decode()
    )
    with pytest.raises(
        GateFailed, match=r"lineage: missing: final training: none of its 1 seeds is complete: seed 1 .* boom"
    ):
        promote_winner(backend, report)
